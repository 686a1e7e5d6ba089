"""Signed agent cards: they verify with the SDK, and taken literally, by the keys that the site publishes (A2A 8.4)."""

import base64
import json
import logging
from datetime import timedelta
from functools import reduce
from urllib.parse import urlsplit

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_agent_card_signer, create_signature_verifier
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from google.api.field_behavior_pb2 import FieldBehavior, field_behavior
from google.protobuf.json_format import MessageToDict, ParseDict
from jwt import PyJWK

from a2a_django import keys
from a2a_django.agents import signatures
from a2a_django.models import Agent, AgentExtension, AgentSkill, SigningKey

CARD = "/a2a/test/.well-known/agent-card.json"
JWKS = "/a2a/jwks.json"
ALGORITHMS = ["ES256", "RS256"]
SCHEMES = {
    "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT", "description": "A token"}},
    "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
    "openid": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example.com"}},
    "certificate": {"mtlsSecurityScheme": {}},
    "device": {
        "oauth2SecurityScheme": {
            "flows": {
                "deviceCode": {
                    "deviceAuthorizationUrl": "https://a",
                    "tokenUrl": "https://t",
                    "scopes": {"b": "", "a": ""},
                }
            }
        }
    },
    "oauth": {
        "oauth2SecurityScheme": {
            "oauth2MetadataUrl": "https://m",
            "flows": {
                "authorizationCode": {"authorizationUrl": "https://a", "tokenUrl": "https://t", "pkceRequired": True}
            },
        }
    },
}


@pytest.fixture
def make_key(transactional_db):
    """make_key(algorithm="ES256"): a key in the database, as staff make them."""

    def make(algorithm="ES256"):
        key = keys.generate(algorithm)
        key.save()
        return key

    return make


@pytest.fixture
def agent(site, make_agent):
    """One whose card has all that is hard to get right: what is empty, numbers, letters beyond ASCII, maps."""
    made = make_agent(
        name="Prüfer \U0001f600", security_schemes=SCHEMES, provider_organization="P", provider_url="https://p"
    )
    required = [{"schemes": {"oauth": {"list": ["a"]}, "key": {"list": []}}}]
    AgentSkill.objects.create(agent=made, skill_id="talk", name="Talk", description="", security_requirements=required)
    params = {
        "half": 0.5,
        "tiny": 1e-7,
        "huge": 1e21,
        "whole": 3,
        "none": None,
        "empty": [],
        "\U0001f600": 1,
        "\ufb33": 2,
    }
    AgentExtension.objects.create(agent=made, uri="urn:x", params=params)
    return made


# --- verifiers


def verify(site, card):
    """As the SDK's client verifies `card`, by the keys that the site publishes now."""

    def provider(kid, jku):
        found = site.get(urlsplit(jku).path if jku else JWKS).json()["keys"]
        return PyJWK(next((key for key in found if key["kid"] == kid), found[0]))

    create_signature_verifier(provider, ALGORITHMS)(card)


def decoded(text):
    return base64.urlsafe_b64decode(text + "==")


def header(signature):
    return json.loads(decoded(signature["protected"]))


def number(text):
    return int.from_bytes(decoded(text), "big")


def holds(signature, payload, jwk):
    """Whether a JWS over `payload` holds, by nothing but the cryptography (RFC 7515, 7518)."""
    signed = f"{signature['protected']}.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}".encode()
    raw = decoded(signature["signature"])
    try:
        if jwk["kty"] == "RSA":
            key = rsa.RSAPublicNumbers(number(jwk["e"]), number(jwk["n"])).public_key()
            key.verify(raw, signed, padding.PKCS1v15(), hashes.SHA256())
        else:
            key = ec.EllipticCurvePublicNumbers(number(jwk["x"]), number(jwk["y"]), ec.SECP256R1()).public_key()
            der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
            key.verify(der, signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def canonical(value):
    """RFC 8785, as far as the numbers in this file go."""
    match value:
        case dict():
            pairs = sorted(value.items(), key=lambda pair: pair[0].encode("utf-16-be"))
            return "{" + ",".join(f"{canonical(name)}:{canonical(item)}" for name, item in pairs) + "}"
        case list():
            return "[" + ",".join(map(canonical, value)) + "]"
        case float() if value.is_integer() and value < 1e21:
            return str(int(value))
        case float():
            return repr(value).replace("e-0", "e-")
    return json.dumps(value, ensure_ascii=False)


def literally(card):
    """The payload that A2A 8.4.3 has a client make of the JSON it has received."""
    fields = MessageToDict(ParseDict(card, AgentCard(), ignore_unknown_fields=True))
    assert list(amiss(card, fields, AgentCard.DESCRIPTOR)) == []  # so that its third step removes nothing
    return canonical({name: value for name, value in card.items() if name != "signatures"}).encode()


def amiss(data, fields, descriptor):
    """Fields of a card that A2A 8.4.1 says are to be left out, or are not to be; `fields` are those that are set."""
    for field in descriptor.fields:
        name, message = field.json_name, field.message_type
        required = FieldBehavior.REQUIRED in field.GetOptions().Extensions[field_behavior]
        if (name in data) != (required or name in fields):
            yield name
        if not fields.get(name) or message is None or message.full_name.startswith("google."):
            continue
        pairs = [(data[name], fields[name])]
        if message.GetOptions().map_entry:
            message = message.fields_by_name["value"].message_type
            pairs = [(item, fields[name][key]) for key, item in data[name].items()] if message else []
        elif field.is_repeated:
            pairs = zip(data[name], fields[name], strict=True)
        for inner, inner_fields in pairs:
            yield from amiss(inner, inner_fields, message)


# --- what is signed


@pytest.mark.parametrize("legacy", [True, False], ids=["with 0.3", "without 0.3"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_card_verifies_with_the_sdk_and_literally(site, agent, make_key, a2a, algorithm, legacy):
    a2a(ENABLE_V0_3=legacy)
    key = make_key(algorithm)
    card = site.get(CARD).json()
    sdk, literal = card["signatures"]

    assert ("protocolVersion" in card) == legacy
    verify(site, parse_agent_card(site.get(CARD).json()))
    verify(site, ParseDict(card, AgentCard(), ignore_unknown_fields=True))  # as other SDKs and gRPC see it
    assert holds(literal, literally(card), key.public_key)
    assert not holds(sdk, literally(card), key.public_key)
    wanted = {"alg": algorithm, "kid": key.kid, "typ": "JOSE", "jku": f"http://testserver{JWKS}"}
    assert header(sdk) == header(literal) == wanted


def test_an_empty_card_is_signed_literally_too(site, make_agent, make_key):
    """The SDK leaves out what A2A 8.4.1 demands: required fields that are empty."""
    key = make_key()
    make_agent(name="", description="", version="", default_input_modes=[], default_output_modes=[])
    card = site.get(CARD).json()

    assert card["name"] == card["description"] == card["version"] == ""
    assert card["defaultInputModes"] == card["skills"] == []
    verify(site, parse_agent_card(site.get(CARD).json()))
    assert holds(card["signatures"][1], literally(card), key.public_key)


def tampered(card, how):
    match how:
        case "name":
            card["name"] = "Somebody else"
        case "url":
            card["supportedInterfaces"][0]["url"] = "https://evil.test"
        case "skill":
            card["skills"].append({"id": "evil", "name": "Evil", "description": "", "tags": []})
        case "empty":
            del card["skills"][0]["tags"]
        case "0.3":
            card["url"] = "https://evil.test"
    return card


@pytest.mark.parametrize("how", ["name", "url", "skill", "empty", "0.3"])
def test_a_card_that_was_tampered_with_is_refused(site, agent, make_key, how):
    key = make_key()
    card = tampered(site.get(CARD).json(), how)

    payload = canonical({name: value for name, value in card.items() if name != "signatures"}).encode()
    assert not any(holds(signature, payload, key.public_key) for signature in card["signatures"])
    if how in ("name", "url", "skill"):  # the rest the SDK doesn't look at
        with pytest.raises(InvalidSignaturesError):
            verify(site, parse_agent_card(card))


def test_a_card_is_refused_by_another_sites_key(site, agent, make_key):
    make_key()
    card = site.get(CARD).json()
    SigningKey.objects.all().delete()
    make_key()
    with pytest.raises(InvalidSignaturesError):
        verify(site, parse_agent_card(card))


def test_without_a_key_a_card_has_no_signatures(site, agent):
    assert "signatures" not in site.get(CARD).json()


def test_signatures_of_the_modifier_are_kept(site, agent, make_key, a2a):
    """A site may have signed its cards by itself, with the SDK."""
    own = ec.generate_private_key(ec.SECP256R1())
    a2a(CARD_MODIFIER=create_agent_card_signer(own, {"alg": "ES256", "kid": "own", "typ": "JOSE"}))
    alone = site.get(CARD).json()["signatures"]
    make_key()
    both = site.get(CARD).json()

    assert [header(signature)["kid"] for signature in alone] == ["own"]
    assert header(both["signatures"][0])["kid"] == "own"
    assert len(both["signatures"]) == 3
    verify(site, parse_agent_card(both))
    create_signature_verifier(lambda kid, jku: own.public_key(), ["ES256"])(parse_agent_card(site.get(CARD).json()))


# --- the same card from every process (CASES 11)


def forget():
    """What this process has signed and loaded: the next answer is that of a new one."""
    signatures._by.cache_clear()
    keys.load.cache_clear()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_process_serves_the_same_card(site, agent, make_key, algorithm):
    make_key(algorithm)
    first = site.get(CARD)
    forget()
    again = site.get(CARD)

    assert (again.body, again.headers["etag"]) == (first.body, first.headers["etag"])
    forget()
    assert site.get(CARD, **{"If-None-Match": first.headers["etag"]}).status == 304


def test_names_come_in_the_same_order_in_every_process(site, agent):
    """Protobuf's maps don't: their order is that of hashes with another seed in each process."""

    def in_order(pairs):
        assert [name for name, _ in pairs] == sorted(name for name, _ in pairs)
        return dict(pairs)

    json.loads(site.get(CARD).body, object_pairs_hook=in_order)


def test_a_card_is_signed_once(site, agent, make_key):
    make_key()
    site.get(CARD)
    before = signatures._by.cache_info().misses
    for _ in range(3):
        site.get(CARD)
    assert signatures._by.cache_info().misses == before

    agent.name = "Changed"
    agent.save()
    card = site.get(CARD).json()
    assert signatures._by.cache_info().misses == before + 1
    verify(site, parse_agent_card(card))


# --- other cards


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_extended_card_is_signed(client, make_user, make_key, algorithm):
    make_user("alice")
    key = make_key(algorithm)
    Agent.objects.update(extended_card=True)
    agent = Agent.objects.get()
    AgentSkill.objects.create(agent=agent, skill_id="more", name="More", description="M.", visibility="authenticated")
    card = client.as_("alice").extended_card()

    verify(client.site, ParseDict(card, AgentCard(), ignore_unknown_fields=True))
    assert {header(signature)["kid"] for signature in card["signatures"]} == {key.kid}
    assert [skill["id"] for skill in card["skills"]] == ["more"]


def test_an_extended_card_of_0_3_has_no_signatures_of_another_form(site, agent, make_user, make_key, a2a):
    a2a(AUTHENTICATION_CLASSES=["tests.clients.BearerName"])
    make_user("alice")
    make_key()
    agent.extended_card = True
    agent.save()
    agent.skills.update(visibility="authenticated")
    call = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
    headers = {"Authorization": "Bearer alice", "Content-Type": "application/json"}
    answer = site.request("POST", "/a2a/test", json.dumps(call).encode(), headers).json()

    assert answer["result"]["name"] == agent.name
    assert "signatures" not in answer["result"]


# --- keys come and go


def kids(card):
    return {header(signature)["kid"] for signature in card["signatures"]}


def test_rotation(site, agent, make_key):
    """Both sign while both are there; what the old one signed holds until it is published no more."""
    old = make_key()
    before = site.get(CARD).json()
    new = make_key("RS256")
    between = site.get(CARD).json()
    SigningKey.objects.filter(pk=old.pk).retire()
    after = site.get(CARD).json()

    assert (kids(before), kids(between), kids(after)) == ({old.kid}, {old.kid, new.kid}, {new.kid})
    for card in (before, between, after):
        verify(site, parse_agent_card(json.loads(json.dumps(card))))
    SigningKey.objects.filter(pk=old.pk).retire(keep=timedelta(0))
    assert [key["kid"] for key in site.get(JWKS).json()["keys"]] == [new.kid]
    with pytest.raises(InvalidSignaturesError):
        verify(site, parse_agent_card(before))


def test_a_retired_key_has_no_private_half(make_key):
    key = make_key()
    SigningKey.objects.retire()
    key.refresh_from_db()
    assert not key.private_key
    assert key.state.startswith("retired, published until")


def pem(key):
    unprotected = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unprotected).decode()


def public_pem(key):
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, spki).decode()


def test_keys_in_the_settings(site, agent, a2a, tmp_path):
    """CASES: a site that keeps its keys elsewhere; as text, as a file, and an old one's public half."""
    rsa_key, ec_key, old = (
        rsa.generate_private_key(65537, 2048),
        *(ec.generate_private_key(ec.SECP256R1()) for _ in "ab"),
    )
    file = tmp_path / "key.pem"
    file.write_text(pem(rsa_key))
    a2a(SIGNING_KEYS={"old": pem(old)})
    before = site.get(CARD).json()
    a2a(SIGNING_KEYS={"file": str(file), "text": pem(ec_key), "old": public_pem(old)})
    after = site.get(CARD).json()

    assert kids(after) == {"file", "text"}
    assert {header(one)["kid"]: header(one)["alg"] for one in after["signatures"]} == {"file": "RS256", "text": "ES256"}
    assert {key["kid"] for key in site.get(JWKS).json()["keys"]} == {"file", "text", "old"}
    for card in (before, after):
        verify(site, parse_agent_card(card))


def test_a_key_in_the_settings_that_is_none(site, agent, make_key, a2a, caplog):
    """The site goes on without it, and the log says so."""
    key = make_key()
    a2a(SIGNING_KEYS={"wrong": "-----BEGIN NONSENSE: hunter2", "gone": "/nowhere/at/all.pem"})

    assert kids(site.get(CARD).json()) == {key.kid}
    assert [one["kid"] for one in site.get(JWKS).json()["keys"]] == [key.kid]
    assert "['wrong'] can't be used" in caplog.text
    assert "['gone'] can't be used. Its file can't be read" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_key_that_can_not_be_decrypted(site, agent, make_key, settings, caplog):
    """The card is served unsigned, and the log says which key and what to do."""
    settings.SECRET_KEY = "the first"
    key = make_key()
    settings.SECRET_KEY = "the second"
    forget()

    assert "signatures" not in site.get(CARD).json()
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert key.kid in record.getMessage()
    assert "ENCRYPTION_KEYS" in record.getMessage()
    assert key.private_key.ciphertext not in caplog.text
    settings.SECRET_KEY_FALLBACKS = ["the first"]
    forget()
    verify(site, parse_agent_card(site.get(CARD).json()))


def test_a_card_that_has_no_canonical_form(site, agent, make_key, a2a, caplog):
    """One that is nested deeper than the SDK goes is served unsigned."""

    def modify(card):
        card.capabilities.extensions[0].params.update(reduce(lambda inner, _: {"in": inner}, range(140), {}))
        return card

    make_key()
    a2a(CARD_MODIFIER=modify)
    assert "signatures" not in site.get(CARD).json()
    assert "not signed" in caplog.text


# --- the public keys


def test_the_public_keys(site, make_key):
    key = make_key()
    response = site.get(JWKS)

    assert (response.status, response.headers["content-type"]) == (200, "application/jwk-set+json")
    assert response.headers["cache-control"] == "public, max-age=300"
    (jwk,) = response.json()["keys"]
    assert jwk == key.public_key
    assert jwk.keys() == {"kty", "crv", "x", "y", "kid", "alg", "use"}
    assert (jwk["alg"], jwk["use"], jwk["kid"]) == ("ES256", "sig", key.kid)
    assert site.get(JWKS + "/").body == response.body


def test_the_public_half_of_rsa(site, make_key):
    make_key("RS256")
    (jwk,) = site.get(JWKS).json()["keys"]
    assert jwk.keys() == {"kty", "n", "e", "kid", "alg", "use"}  # and none of d, p, q, dp, dq, qi


def test_no_keys(site):
    assert site.get(JWKS).json() == {"keys": []}


def test_public_keys_that_are_known_are_not_sent_again(site, make_key):
    make_key()
    first = site.get(JWKS)
    known = {"If-None-Match": first.headers["etag"]}
    assert (site.get(JWKS, **known).status, site.get(JWKS, **known).body) == (304, b"")
    make_key()
    assert site.get(JWKS, **known).status == 200


def test_public_keys_are_for_everybody(site, make_key, a2a):
    make_key()
    closed = ["rest_framework.permissions.IsAuthenticated"]
    a2a(CARD_PERMISSION_CLASSES=closed, PERMISSION_CLASSES=closed)
    assert site.get(JWKS, Authorization="Basic bm9ib2R5Ondyb25n").status == 200
    assert site.request("HEAD", JWKS).status == 200
    for method in ("POST", "PUT", "DELETE"):
        assert site.request(method, JWKS, b"{}").status == 405


def test_the_keys_address_is_the_public_one(site, agent, make_key, a2a):
    make_key()
    a2a(BASE_URL="https://agents.example.com")
    assert header(site.get(CARD).json()["signatures"][0])["jku"] == "https://agents.example.com/a2a/jwks.json"
