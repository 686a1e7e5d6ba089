"""Unexpected exceptions: what the log may say of them (where, never their text) and what staff may read."""

import traceback

MAX_CHARACTERS = 20_000


def place(error: BaseException) -> str:
    """Type of `error` and where it came from; its text may hold secrets and is left out."""
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-6))
    return f"{type(error).__module__}.{type(error).__qualname__} at\n{frames}"


def report(error: BaseException) -> str:
    """The whole traceback, for the admin."""
    return clean("".join(traceback.format_exception(error))[-MAX_CHARACTERS:])


def clean(text: object) -> str:
    """`text` without what no database column and no UTF-8 answer can hold: NUL and lone surrogates."""
    return str(text).encode(errors="replace").decode().replace("\0", "")
