"""The keys that sign for this site: those in A2A["SIGNING_KEYS"], and those in the database (A2A 8.4)."""

import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.utils import timezone

from a2a_django.encryption import Secret
from a2a_django.models import SigningKey
from a2a_django.models.signing_key import Algorithm
from a2a_django.settings import a2a_settings

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey

BITS = 2048  # of an RSA key (RFC 7518 3.3)

log = logging.getLogger(__name__)


class Key(NamedTuple):
    """A key that signs; hashable, so that what it has signed can be kept."""

    kid: str
    algorithm: str
    pem: Secret | str


def signing() -> list[Key]:
    """The keys that sign now."""
    ours = [Key(kid, _algorithm(key), pem) for kid, pem, key in _in_settings() if isinstance(key, PrivateKey)]
    rows = SigningKey.objects.active().values_list("kid", "algorithm", "private_key")
    return [*ours, *(Key(*row) for row in rows)]


def published() -> list[dict[str, Any]]:
    """The JWKs of all keys whose signatures hold (RFC 7517)."""
    ours = [_jwk(kid, key.public_key() if isinstance(key, PrivateKey) else key) for kid, _, key in _in_settings()]
    return [*ours, *SigningKey.objects.published().values_list("public_key", flat=True)]


def generate(algorithm: str) -> SigningKey:
    """A new key, not saved yet."""
    private: PrivateKey
    if algorithm == Algorithm.ES256:
        private = ec.generate_private_key(ec.SECP256R1())
    else:
        private = rsa.generate_private_key(65537, BITS)
    kid = f"{timezone.now():%Y-%m-%d}-{secrets.token_hex(4)}"
    pem = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return SigningKey(
        kid=kid, algorithm=algorithm, private_key=pem.decode(), public_key=_jwk(kid, private.public_key())
    )


@lru_cache(maxsize=64)
def load(pem: Secret | str) -> PrivateKey | PublicKey:
    """The key in `pem`, or in the file of that name. ValueError says what is wrong with it; DecryptionError."""
    text = pem.reveal() if isinstance(pem, Secret) else pem
    key = _parsed((text if "-----BEGIN " in text else _read(text)).encode())
    if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey) and key.key_size >= BITS:
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey | ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1":
        return key
    raise ValueError(f"It must be of the elliptic curve P-256, or RSA of at least {BITS} bits.")


def _parsed(pem: bytes) -> Any:
    try:
        if b"PUBLIC KEY" in pem:
            return serialization.load_pem_public_key(pem)
        return serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # a TypeError where a password is needed
        raise ValueError("It is no key in PEM, or it has a password.") from None


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise ValueError(f"Its file can't be read: {error.strerror}.") from None


def _in_settings() -> Iterator[tuple[str, str, PrivateKey | PublicKey]]:
    """Those that can be used; the system checks name the others, too."""
    for kid, pem in a2a_settings.SIGNING_KEYS.items():
        try:
            yield kid, pem, load(pem)
        except ValueError as error:
            log.error("A2A['SIGNING_KEYS'][%r] can't be used. %s", kid, error)


def _algorithm(key: PrivateKey | PublicKey) -> str:
    return Algorithm.RS256 if isinstance(key, rsa.RSAPrivateKey | rsa.RSAPublicKey) else Algorithm.ES256


def _jwk(kid: str, key: PublicKey) -> dict[str, str]:
    if isinstance(key, rsa.RSAPublicKey):
        rsa_numbers = key.public_numbers()
        numbers = {"kty": "RSA", "n": _base64(rsa_numbers.n), "e": _base64(rsa_numbers.e)}
    else:
        point = key.public_numbers()
        numbers = {"kty": "EC", "crv": "P-256", "x": _base64(point.x, 32), "y": _base64(point.y, 32)}
    return {"kid": kid, "alg": _algorithm(key), "use": "sig", **numbers}


def _base64(number: int, length: int = 0) -> str:
    raw = number.to_bytes(length or (number.bit_length() + 7) // 8, "big")
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
