"""A2A-Version and A2A-Extensions: what a call asks for (A2A 3.2.6, 3.6)."""

import re
from collections.abc import Iterable

from a2a_django.protocol import errors

SUPPORTED = ("1.0",)
ASSUMED = "0.3"  # what an empty version means (A2A 3.6.2)
_NUMBER = re.compile(r"(\d+\.\d+)(\.\d+)?")


def negotiate(asked: str | None) -> str:
    """The supported Major.Minor that `asked` means; VersionNotSupportedError names the ones there are."""
    match = _NUMBER.fullmatch((asked or "").strip() or ASSUMED)
    version = match[1] if match else ""
    if version in SUPPORTED:
        return version
    shown = (asked or "").strip()[:20] or f"{ASSUMED} (no A2A-Version was sent)"
    raise errors.VersionNotSupportedError(
        f"A2A version {shown} is not supported; send the header A2A-Version: {SUPPORTED[0]}",
        {"supportedVersions": ", ".join(SUPPORTED)},
    )


def extensions(headers: Iterable[str]) -> frozenset[str]:
    """The extension URIs in A2A-Extensions header values, split at commas and trimmed; what can't be one is ignored."""
    uris = (part.strip() for value in headers for part in value.split(","))
    return frozenset(uri for uri in uris if uri and uri.isascii() and uri.isprintable())
