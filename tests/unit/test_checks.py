"""System checks: each wrong setting is named once, with what to do about it."""

import sys
import types

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from django.core import checks

from a2a_django.checks.settings import check_settings

REDIS = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer"}}


@pytest.fixture
def found(settings):
    """Returns a function that runs the checks with the given A2A dict and says `id -> message`."""
    settings.ASGI_APPLICATION = "site.asgi.application"
    settings.ALLOWED_HOSTS = ["site.example.com"]

    def run(a2a):
        settings.A2A = a2a
        return {message.id: message for message in check_settings(None)}

    return run


@pytest.fixture
def database(monkeypatch):
    """database(vendor, **options): gives the default database's OPTIONS as if it were that one."""

    def use(vendor, **options):
        connection = types.SimpleNamespace(vendor=vendor, settings_dict={"OPTIONS": options})
        monkeypatch.setattr("a2a_django.checks.settings.connections", {"default": connection})

    return use


def test_the_checks_are_registered_and_the_example_site_passes_them():
    assert check_settings in checks.registry.registry.registered_checks
    assert [message for message in check_settings(None) if message.level >= checks.ERROR] == []


@pytest.mark.parametrize("a2a", [None, [], "celery", 5])
def test_a2a_that_is_no_dict(found, a2a):
    messages = found(a2a)
    assert list(messages) == ["a2a.E001"]
    assert "A2A = {}" in messages["a2a.E001"].hint


def test_a_site_without_the_setting_is_fine(found, settings, database):
    database("sqlite", transaction_mode="IMMEDIATE")
    del settings.A2A
    assert check_settings(None) == []


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("EXECUTON", 'Did you mean "EXECUTION"?'),
        ("streaming", 'Did you mean "STREAMING"?'),
        ("XYZZY", "Remove it"),
        (7, "Remove it"),
    ],
)
def test_an_unknown_key_gets_the_nearest_name(found, key, hint):
    message = found({key: True})["a2a.W001"]
    assert repr(key) in message.msg
    assert hint in message.hint


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONTEXT_BUILDER", "no_such_module.f"),
        ("OWNER_RESOLVER", "nodots"),
        ("ID_GENERATOR", "a2a_django.settings.nothing"),
        ("REQUEST_CONTEXT_BUILDER", ""),
        ("CARD_MODIFIER", "a2a_django..x"),
        ("AUTHENTICATION_CLASSES", ["rest_framework.authentication.Wrong"]),
        ("PERMISSION_CLASSES", ("rest_framework.permissions.AllowAny", "no.such.Permission")),
        ("THROTTLE_CLASSES", ["no.such.Throttle"]),
        ("CARD_PERMISSION_CLASSES", ["no.such.Permission"]),
        ("EXECUTORS", ["no.such.Executor"]),
        ("EXECUTORS", [object]),
    ],
)
def test_what_cannot_be_imported(found, name, value):
    message = found({name: value})["a2a.E002"]
    assert name in message.msg
    assert message.hint


def test_a_module_that_fails_when_imported_does_not_end_the_checks(found, monkeypatch, tmp_path):
    (tmp_path / "breaks_when_imported.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    assert "ZeroDivisionError" in found({"CARD_MODIFIER": "breaks_when_imported.f"})["a2a.E002"].msg
    assert "breaks_when_imported" not in sys.modules


@pytest.mark.parametrize(
    "a2a",
    [
        {"CARD_MODIFIER": lambda card: card},
        {"CONTEXT_BUILDER": None, "AUTHENTICATION_CLASSES": []},
        {"AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"]},
        {"BLOCKING_TIMEOUT": None, "STREAM_MAX_SECONDS": 60, "LEASE_SECONDS": 2.5, "AGENT_CARD_MAX_AGE": 0},
        {"IDEMPOTENCY_SECONDS": 0},
        {"TASK_RETENTION": 0, "EVENT_RETENTION": 0},
        {"EXECUTION": "inprocess", "STREAMING": False, "PATH": ""},
    ],
)
def test_right_settings_are_not_complained_about(found, database, a2a):
    database("sqlite", transaction_mode="IMMEDIATE")
    assert found(a2a) == {}


KEY = "Zm9yIHRlc3RzIG9ubHksIG5vdCBhIHNlY3JldCEhISE="  # 32 bytes


def test_encryption_keys(found, database):
    database("sqlite", transaction_mode="IMMEDIATE")
    assert found({"ENCRYPTION_KEYS": [KEY]}) == {}
    message = found({"ENCRYPTION_KEYS": [KEY, "hunter2"]})["a2a.E006"]
    assert "['ENCRYPTION_KEYS'][1]" in message.msg
    assert "generate_key" in message.hint


@pytest.mark.parametrize("pem", ["hunter2", "/nowhere/key.pem", "-----BEGIN PRIVATE KEY-----\nhunter2"])
def test_signing_keys(found, pem):
    message = found({"SIGNING_KEYS": {"mine": pem}})["a2a.E007"]
    assert "['SIGNING_KEYS']['mine']" in message.msg


@pytest.mark.parametrize("curve", [ec.SECP384R1(), None])
def test_a_signing_key_of_another_kind(found, curve):
    key = ec.generate_private_key(curve) if curve else ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert "P-256" in found({"SIGNING_KEYS": {"mine": pem}})["a2a.E007"].msg
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2")).decode()
    assert "has a password" in found({"SIGNING_KEYS": {"mine": locked}})["a2a.E007"].msg


@pytest.mark.parametrize("name", ["ENCRYPTION_KEYS", "SIGNING_KEYS"])
@pytest.mark.parametrize("value", ["hunter2", {"hunter2": 5}, ("hunter2",)])
def test_no_check_shows_a_secret(found, name, value):
    messages = found({name: value})
    assert {"a2a.E004", "a2a.E006"} & messages.keys()
    for message in messages.values():
        assert "hunter2" not in f"{message.msg} {message.hint}"


def test_signing_keys_without_the_libraries(found, monkeypatch):
    """tests/integration/test_keys.py has a process that really lacks them."""
    monkeypatch.setattr("a2a_django.agents.signatures.INSTALLED", False)
    assert "a2a-django[signing]" in found({"SIGNING_KEYS": {"mine": "x"}})["a2a.E008"].msg
    assert "a2a.E008" not in found({})


def test_execution_is_one_of_two(found):
    message = found({"EXECUTION": "Celery"})["a2a.E003"]
    assert '"celery"' in message.hint


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("MAX_BODY_BYTES", "10 MB", "a whole number"),
        ("MAX_BODY_BYTES", 1.5, "a whole number"),
        ("MAX_NESTING", True, "a whole number"),
        ("LEASE_SECONDS", "30", "a number"),
        ("LEASE_SECONDS", None, "a number"),
        ("BLOCKING_TIMEOUT", "5", "a number or None"),
        ("STREAMING", "no", "True or False"),
        ("STREAMING", 0, "True or False"),
        ("BASE_URL", None, "a string"),
        ("EXECUTION", None, "a string"),
        ("EXECUTORS", "one.dotted.path", "a list or tuple"),
        ("AUTHENTICATION_CLASSES", None, "a list or tuple"),
        ("REQUEST_THREADS", 0, "more than 0"),
        ("HEARTBEAT_SECONDS", -1, "more than 0"),
        ("LOOK_SECONDS", float("nan"), "more than 0"),
        ("AGENT_CARD_MAX_AGE", -1, "0 or more"),
        ("TASK_RETENTION", -1, "0 or more"),
        ("CANCEL_TIMEOUT", float("inf"), "0 or more"),
    ],
)
def test_a_value_of_the_wrong_type_or_size(found, name, value, wanted):
    messages = found({name: value})
    assert name in messages["a2a.E004"].msg
    assert wanted in messages["a2a.E004"].msg
    assert "a2a.E002" not in messages


@pytest.mark.parametrize("layers", [{}, {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}])
def test_celery_without_a_channel_layer_that_reaches_other_processes(found, settings, layers):
    settings.CHANNEL_LAYERS = layers
    assert "RedisPubSubChannelLayer" in found({"EXECUTION": "celery"})["a2a.W002"].hint
    assert "a2a.W002" not in found({"EXECUTION": "inprocess"})
    settings.CHANNEL_LAYERS = REDIS
    assert "a2a.W002" not in found({"EXECUTION": "celery"})


def test_streams_without_asgi(found, settings):
    settings.ASGI_APPLICATION = None
    assert "A2A['STREAMING'] = False" in found({})["a2a.W003"].hint
    assert "a2a.W003" not in found({"STREAMING": False})


@pytest.mark.parametrize(
    "url", ["agents.example.com", "//agents.example.com", "ftp://a.example", "https://", "https://a/?b=c", "https://[a"]
)
def test_a_base_url_that_is_no_address(found, url):
    assert "https://agents.example.com" in found({"BASE_URL": url})["a2a.E005"].hint


@pytest.mark.parametrize("url", ["https://agents.example.com", "http://[::1]:8000/", "https://example.com/agents"])
def test_a_base_url_that_is_an_address(found, database, url):
    database("sqlite", transaction_mode="IMMEDIATE")
    assert found({"BASE_URL": url}) == {}


def test_a_base_url_that_repeats_the_script_name(found, settings):
    """CASES 10."""
    settings.FORCE_SCRIPT_NAME = "/agents"
    assert "a2a.W005" in found({"BASE_URL": "https://example.com/agents/"})
    assert "a2a.W005" not in found({"BASE_URL": "https://example.com"})


def test_cards_that_name_any_host(found, settings):
    """CASES 10."""
    settings.ALLOWED_HOSTS = ["*"]
    assert "a2a.W006" in found({})
    assert "a2a.W006" not in found({"BASE_URL": "https://example.com"})
    settings.DEBUG = True
    assert "a2a.W006" not in found({})


def test_celery_that_runs_jobs_where_they_are_sent(found, celery_app):
    celery_app(task_always_eager=True)
    assert "EXECUTION" in found({"EXECUTION": "celery"})["a2a.W007"].hint
    assert "a2a.W007" not in found({})
    celery_app()
    assert "a2a.W007" not in found({"EXECUTION": "celery"})


@pytest.mark.parametrize("limit", ["time_limit", "soft_time_limit"])
def test_a_time_limit_for_turns(found, celery_app, limit):
    celery_app(task_annotations={"a2a_django.run_turn": {limit: 90}})
    assert "90 s" in found({"EXECUTION": "celery"})["a2a.W008"].msg
    assert "a2a.W008" not in found({})
    celery_app(task_time_limit=90, task_soft_time_limit=80)  # for all jobs, but not for ours
    assert "a2a.W008" not in found({"EXECUTION": "celery"})


def test_sqlite_that_locks(found, database):
    database("sqlite")
    message = found({})["a2a.W004"]
    assert "DEFERRED" in message.msg
    assert "'transaction_mode': 'IMMEDIATE'" in message.hint
    database("sqlite", transaction_mode="immediate")
    assert "a2a.W004" not in found({})


@pytest.mark.parametrize("pool", [True, {"timeout": 5}, {"min_size": 9}, {"min_size": 2, "max_size": 9}])
def test_a_pool_that_is_too_small(found, database, pool):
    """Our threads keep nine connections by default."""
    database("postgresql", pool=pool)
    message = found({})["a2a.W009"]
    assert "keep 9" in message.msg
    assert "'max_size': 20" in message.hint
    assert "a2a.W009" not in found({"REQUEST_THREADS": 1, "LOG_THREADS": 1})
    assert found({"REQUEST_THREADS": "many"}).keys() == {"a2a.E004"}


@pytest.mark.parametrize("options", [{}, {"pool": False}, {"pool": {"min_size": 10}}, {"pool": {"max_size": 20}}])
def test_a_pool_that_is_large_enough(found, database, options):
    database("postgresql", **options)
    assert "a2a.W009" not in found({})


def test_the_checks_ask_no_database(found):
    found({"EXECUTION": "celery", "CARD_MODIFIER": "nodots"})  # pytest-django fails a test that does
