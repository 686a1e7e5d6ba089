"""Signatures of agent cards (A2A 8.4)."""

import json
import logging
from functools import cache, lru_cache
from typing import Any, cast

from a2a.client.card_resolver import parse_agent_card
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from google.protobuf.json_format import ParseError

from a2a_django import accidents, keys
from a2a_django.encryption import DecryptionError
from a2a_django.protocol import codec

try:
    import rfc8785
    from a2a.utils import signing
    from jwt import PyJWS
except ImportError:
    INSTALLED = False
else:
    INSTALLED = True

NOT_INSTALLED = "Agent cards can't be signed: pip install 'a2a-django[signing]'"

log = logging.getLogger(__name__)


@ec.EllipticCurvePrivateKey.register
class Repeatable:
    """A key whose signature of a text is always the same (RFC 6979), so that all processes serve the same card."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self.curve = key.curve
        self._key = key

    def sign(self, data: bytes, algorithm: ec.ECDSA) -> bytes:
        return self._key.sign(data, ec.ECDSA(algorithm.algorithm, deterministic_signing=True))


def of(card: str, jku: str) -> list[dict[str, str]]:
    """The AgentCardSignatures of a card in JSON that has none yet; `jku` is where the public keys are, if anywhere.

    Every key that signs gives two. The first is the a2a-sdk's, which its clients check. It leaves out what is empty and
    what A2A 1.0 doesn't know; the second covers the JSON as it stands, which is as A2A 8.4.1 demands.
    """
    found = keys.signing()
    if found and not INSTALLED:
        _tell_what_is_missing()
        return []
    return [signature for key in found for signature in _by(key, card, jku)]


@cache
def _tell_what_is_missing() -> None:
    log.error(NOT_INSTALLED)


@lru_cache(maxsize=512)
def _by(key: keys.Key, card: str, jku: str) -> tuple[dict[str, str], ...]:
    """None where the key or the card is unfit: then the card is served without, and the log says why."""
    header = {"alg": key.algorithm, "kid": key.kid, "typ": "JOSE"} | ({"jku": jku} if jku else {})
    try:
        private: Any = keys.load(key.pem)
        if isinstance(private, ec.EllipticCurvePrivateKey):
            private = Repeatable(private)
        signatures = (_of_the_sdk(card, private, header), _literal(card, private, header))
    except (DecryptionError, ValueError, UnsupportedAlgorithm, ParseError) as error:
        reason = error if isinstance(error, DecryptionError) else accidents.place(error)
        log.error("A card is not signed with key %s. %s", key.kid, reason)
        return ()
    return signatures if signatures[0] != signatures[1] else signatures[:1]


def _of_the_sdk(card: str, private: Any, header: dict[str, str]) -> dict[str, str]:
    sign = signing.create_agent_card_signer(private, cast(signing.ProtectedHeader, header))
    # What its clients make of the JSON, fields of 0.3 and all.
    return cast(dict[str, str], codec.to_data(sign(parse_agent_card(codec.loads(card))).signatures[0]))


def _literal(card: str, private: Any, header: dict[str, str]) -> dict[str, str]:
    canonical = rfc8785.dumps(json.loads(card, parse_int=float))  # JSON's numbers are doubles (RFC 8785 3.2.2.3)
    protected, _, signature = PyJWS().encode(canonical, private, header["alg"], header).split(".")
    return {"protected": protected, "signature": signature}
