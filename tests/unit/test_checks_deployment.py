"""System checks of a site in production: each is there when it should be, and gone when it was heeded."""

import types

import pytest
from cryptography.fernet import Fernet
from django.core import checks
from django.db import DatabaseError, InterfaceError

from a2a_django.checks import deployment
from a2a_django.checks.deployment import check_deployment
from a2a_django.models import Agent
from a2a_django.models.agent import AnonymousAccess

SAFE = {
    "BASE_URL": "https://agents.example.com",
    "ENCRYPTION_KEYS": [Fernet.generate_key().decode()],
    "EXECUTORS": ["tests.executors.Echo"],
}


@pytest.fixture
def found(settings, db):
    """found(**a2a): the checks of a site in good order, but for these settings, as `id -> message`."""
    settings.DEBUG, settings.ASGI_APPLICATION = False, "site.asgi.application"

    def run(**a2a):
        settings.A2A = {**SAFE, **a2a}
        return {message.id: message for message in check_deployment(None)}

    return run


@pytest.fixture
def database(monkeypatch):
    """database(vendor, **settings): as if the default database had these."""

    def use(vendor, **settings):
        connection = types.SimpleNamespace(vendor=vendor, settings_dict=settings)
        monkeypatch.setattr(deployment, "connections", {"default": connection})

    return use


def test_a_site_in_good_order_passes(found):
    assert check_deployment in checks.registry.registry.deployment_checks
    assert found() == {}


def test_debug(found, settings):
    settings.DEBUG = True
    assert list(found()) == ["a2a.W010"]


def test_no_keys_of_its_own(found):
    message = found(ENCRYPTION_KEYS=())["a2a.W011"]
    assert "reencrypt" in message.hint


@pytest.mark.parametrize(
    ("url", "what"),
    [("", "is empty"), ("http://agents.example.com", "credentials"), ("HTTP://a.example", "credentials")],
)
def test_an_address_that_is_not_safe(found, url, what):
    messages = found(BASE_URL=url)
    assert list(messages) == ["a2a.W012"]
    assert what in messages["a2a.W012"].msg


@pytest.mark.parametrize("age", [None, 60])
def test_connections_that_are_kept(found, database, settings, age):
    database("postgresql", CONN_MAX_AGE=age)
    assert list(found()) == ["a2a.W013"]
    database("postgresql", CONN_MAX_AGE=age, OPTIONS={"pool": True})
    assert found() == {}
    database("postgresql", CONN_MAX_AGE=0)
    assert found() == {}
    database("postgresql", CONN_MAX_AGE=age)
    settings.ASGI_APPLICATION = None
    assert found() == {}


def test_agents_for_everybody(found, make_agent):
    make_agent(slug="closed", anonymous_access=AnonymousAccess.DENIED)
    assert found() == {}
    make_agent(slug="open", anonymous_access=AnonymousAccess.SHARED)
    make_agent(slug="off", anonymous_access=AnonymousAccess.SHARED, enabled=False)
    messages = found()
    assert list(messages) == ["a2a.W014"]
    assert messages["a2a.W014"].msg.endswith(": open.")


def test_agents_that_nobody_can_run(found, make_agent):
    agent = make_agent(anonymous_access=AnonymousAccess.DENIED)
    Agent.objects.update(executor="gone")
    messages = found()
    assert list(messages) == ["a2a.E009"]
    assert repr(agent.slug) in messages["a2a.E009"].msg
    Agent.objects.update(enabled=False)
    assert found() == {}


@pytest.mark.parametrize("error", [DatabaseError("no such table"), InterfaceError("connection already closed")])
def test_a_database_without_tables_is_for_others_to_tell_of(found, monkeypatch, error):
    def absent(**conditions):
        raise error

    monkeypatch.setattr(Agent.objects, "filter", absent)
    assert found() == {}


@pytest.mark.parametrize("a2a", [None, [], {"BASE_URL": 5}, {"BASE_URL": "https://[a"}])
def test_settings_that_are_wrong_are_told_elsewhere(found, settings, a2a):
    found()
    settings.A2A = a2a
    assert "a2a.W012" not in {message.id for message in check_deployment(None)}
