"""Text that is encrypted where it is kept: Fernet, with the keys of A2A["ENCRYPTION_KEYS"] (A2A 13.4)."""

from base64 import urlsafe_b64encode
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import salted_hmac

from a2a_django.settings import a2a_settings


class DecryptionError(Exception):
    """The key that a text was encrypted with is none of this site's any more."""

    def __str__(self) -> str:
        return (
            "It was encrypted with a key that this site no longer has: put that key last in A2A['ENCRYPTION_KEYS'], "
            "or in SECRET_KEY_FALLBACKS if it was a SECRET_KEY."
        )


@dataclass(frozen=True, repr=False)
class Secret:
    """A text that only `reveal()` gives: no log, page or error report shows it by accident."""

    ciphertext: str

    @classmethod
    def of(cls, text: str) -> "Secret":
        """`text`, encrypted; where there is none there is nothing to hide."""
        return cls(_fernet().encrypt(text.encode()).decode() if text else "")

    def __bool__(self) -> bool:
        return bool(self.ciphertext)

    def __repr__(self) -> str:
        return "********" if self else ""

    def reveal(self) -> str:
        """The text; DecryptionError without the key."""
        try:
            return _fernet().decrypt(self.ciphertext.encode()).decode() if self else ""
        except InvalidToken:
            raise DecryptionError from None

    def renewed(self) -> "Secret":
        """The same text, encrypted with the first key; DecryptionError."""
        try:
            return Secret(_fernet().rotate(self.ciphertext.encode()).decode())
        except InvalidToken:
            raise DecryptionError from None

    @property
    def readable(self) -> bool:
        """Whether `reveal()` will give it."""
        try:
            self.reveal()
        except DecryptionError:
            return False
        return True


def is_key(key: Any) -> bool:
    """Whether `key` can stand in A2A["ENCRYPTION_KEYS"]."""
    try:
        Fernet(key)
    except (ValueError, TypeError):
        return False
    return True


def _fernet() -> MultiFernet:
    """Encrypts with the first key, decrypts with any.

    Those made from SECRET_KEY and its fallbacks come last. They let a site begin without a key of its own, and read
    what it wrote then when it has one.
    """
    return _with(tuple(a2a_settings.ENCRYPTION_KEYS), (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))


@lru_cache(maxsize=8)
def _with(keys: tuple[str, ...], secret_keys: tuple[str, ...]) -> MultiFernet:
    if not all(map(is_key, keys)):
        raise ImproperlyConfigured("A2A['ENCRYPTION_KEYS'] holds what is no Fernet key; `manage.py check` says which.")
    return MultiFernet([Fernet(key) for key in (*keys, *map(_made_from, secret_keys))])


def _made_from(secret_key: str) -> str:
    return urlsafe_b64encode(salted_hmac(__name__, "", secret_key, algorithm="sha256").digest()).decode()
