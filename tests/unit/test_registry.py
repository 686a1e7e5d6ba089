"""Which executors there are, and one instance of each per process (DESIGN 2)."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from a2a.server.agent_execution import AgentExecutor
from django.core.exceptions import ImproperlyConfigured

import a2a_django
from a2a_django.agents import registry
from tests import executors


class Own(AgentExecutor):
    async def execute(self, context, event_queue): ...

    async def cancel(self, context, event_queue): ...


@pytest.fixture(autouse=True)
def _empty(monkeypatch, settings):
    """No executors but those of the test."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(registry, "_instances", {})
    settings.A2A = {}


def test_a_class_is_registered_by_name():
    assert a2a_django.executor("own")(Own) is Own
    assert registry.names() == ["own"]
    assert registry.registration("own") == registry.Registration(Own)
    assert type(registry.get("own")) is Own


def test_a_function_may_make_the_executor():
    registry.executor("own")(partial(Own))
    assert type(registry.get("own")) is Own


def test_an_executor_that_blocks_says_so():
    registry.executor("own", blocking=True)(Own)
    assert registry.registration("own").blocking
    assert not registry.Registration(Own).blocking


def test_one_instance_serves_the_process():
    made = []

    def make():
        made.append(None)
        time.sleep(0.01)  # long enough for others to come in between
        return Own()

    registry.executor("own")(make)
    with ThreadPoolExecutor(8) as threads:
        instances = set(threads.map(lambda _: registry.get("own"), range(8)))
    assert len(instances) == len(made) == 1


def test_a_name_is_given_once():
    registry.executor("own")(Own)
    registry.executor("own")(Own)  # the same class again is no harm: a module may be imported twice
    with pytest.raises(ImproperlyConfigured, match="“own” is taken"):
        registry.executor("own")(partial(Own))
    assert registry.registration("own").make is Own


def test_a_dotted_path_must_be_listed(settings):
    path = "tests.executors.Echo"
    with pytest.raises(LookupError, match="there are: none"):
        registry.registration(path)
    settings.A2A = {"EXECUTORS": [path]}
    registry.executor("own")(Own)
    assert registry.names() == ["own", path]
    assert registry.registration(path) == registry.Registration(executors.Echo)
    assert type(registry.get(path)) is executors.Echo


def test_an_unknown_name_is_told_with_those_there_are():
    registry.executor("own")(Own)
    for ask in (registry.registration, registry.get):
        with pytest.raises(LookupError, match="“other”; there are: own"):
            ask("other")


def test_a_class_that_cannot_be_made_is_tried_again():
    """A backend that was away when the first turn came must not stay away for ever."""
    tries = []

    def make():
        tries.append(None)
        if len(tries) == 1:
            raise ConnectionError
        return Own()

    registry.executor("own")(make)
    with pytest.raises(ConnectionError):
        registry.get("own")
    assert type(registry.get("own")) is Own
