"""A2A-Version and A2A-Extensions: what a call asks for (A2A 3.2.6, 3.6)."""

import re
from collections.abc import Iterable, Mapping, Set
from typing import Any

from a2a_django.protocol import errors
from a2a_django.settings import a2a_settings

CURRENT, LEGACY = "1.0", "0.3"  # an empty version means the second (A2A 3.6.2)
ACTIVATED = "a2a_activated_extensions"
"""Key in `call_context.state` where executors and the CONTEXT_BUILDER put the URIs of what they have activated."""
_NUMBER = re.compile(r"(\d+\.\d+)(\.\d+)?")


def supported() -> tuple[str, ...]:
    """The versions that this site speaks, as Major.Minor."""
    return (CURRENT, LEGACY) if a2a_settings.ENABLE_V0_3 else (CURRENT,)


def negotiate(asked: str | None, spoken: str | None = CURRENT) -> str:
    """The version that `asked` means, for a path or method of version `spoken`, None being one of any.

    VersionNotSupportedError names the ones there are, and the one to ask for here.
    """
    given = {part.strip() for part in (asked or "").split(",")}  # a header that stands twice comes joined
    match = _NUMBER.fullmatch(given.pop() or LEGACY)
    version = match[1] if match and not given else ""
    if version in supported() and spoken in (version, None):
        return version
    shown = (asked or "").strip()[:20] or f"{LEGACY} (no A2A-Version was sent)"
    raise errors.VersionNotSupportedError(
        f"A2A version {shown} is not supported here; send the header A2A-Version: {spoken or CURRENT}",
        {"supportedVersions": ", ".join(supported())},
    )


def major_minor(version: str) -> str:
    """`version` as cards and headers show it: without the patch number (A2A 3.6)."""
    match = _NUMBER.fullmatch(version.strip())
    return match[1] if match else version


def extensions(headers: Iterable[str]) -> frozenset[str]:
    """The extension URIs in A2A-Extensions header values, split at commas and trimmed; what can't be one is ignored."""
    uris = (part.strip() for value in headers for part in value.split(","))
    return frozenset(uri for uri in uris if uri and uri.isascii() and uri.isprintable())


def require(asked: Set[str], offers: Mapping[str, bool]) -> None:
    """ExtensionSupportRequiredError names the required ones of `offers` that were not asked for (A2A 3.3.4)."""
    missing = ",".join(sorted(uri for uri, required in offers.items() if required and uri not in asked))
    if missing:
        raise errors.ExtensionSupportRequiredError(
            f"The agent requires extensions; send the header A2A-Extensions: {missing}", {"requiredExtensions": missing}
        )


def activated(state: Mapping[str, Any]) -> frozenset[str]:
    """The URIs that were put into a call's state as activated, in whatever collection."""
    given = state.get(ACTIVATED) or ()
    # As a tuple first: an executor that blocks may be adding to its set in another thread.
    return frozenset(map(str, tuple(given) if isinstance(given, Set | list | tuple) else (given,)))


def tell(activated: Set[str], version: str) -> dict[str, str]:
    """The headers, or gRPC metadata, that name the extensions that take part in a call of A2A `version`."""
    if not activated:
        return {}
    value = ",".join(sorted(activated))
    return {"A2A-Extensions": value} | ({"X-A2A-Extensions": value} if version == LEGACY else {})
