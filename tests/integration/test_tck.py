"""The agent for conformance tools: there only when it is asked for, and doing what they expect."""

import os
import subprocess
import sys
from base64 import b64decode

import pytest
from django.conf import settings as site_settings
from django.core.management import call_command

from a2a_django.agents import registry
from a2a_django.models import Agent
from example_project.tck import rows
from tests.clients import artifact, kinds, message, state
from tests.clients_grpc import CLIENTS

ASKED = "from django.conf import settings; print('example_project.tck' in settings.INSTALLED_APPS)"


@pytest.mark.parametrize(("asked", "there"), [("", "False"), ("0", "False"), ("1", "True")])
def test_it_is_there_only_when_it_is_asked_for(asked, there):
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "example_project.settings", "A2A_TCK": asked}
    environment = environment if asked else {name: value for name, value in environment.items() if name != "A2A_TCK"}
    said = subprocess.run([sys.executable, "-c", ASKED], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == there


def test_the_demo_makes_its_rows_only_then(transactional_db, settings):
    call_command("demo", verbosity=0)
    assert not Agent.objects.filter(executor="tck").exists()
    settings.A2A_TCK = True
    call_command("demo", verbosity=0)
    call_command("demo", verbosity=0)
    assert Agent.objects.filter(executor="tck").count() == len(rows.AGENTS)
    assert Agent.objects.get(is_default=True).slug == "v1"


@pytest.fixture
def tck(site, a2a, monkeypatch, binding):
    """A client of the agent `v1`."""
    path = "example_project.tck.agents.Tck"
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))  # other tests don't know of it
    a2a(EXECUTORS=[*site_settings.A2A["EXECUTORS"], path])
    rows.make_agents()
    Agent.objects.filter(executor="tck").update(executor=path)
    return CLIENTS[binding](site, "v1")


def by_id(prefix):
    return message("anything", messageId=f"{prefix}-0815")


def test_its_card(tck):
    card = tck.site.get("/.well-known/agent-card.json").json()
    assert [skill["id"] for skill in card["skills"]] == ["tck"]
    assert card["defaultInputModes"] == ["text/plain"]
    assert card["capabilities"] == {"streaming": True, "pushNotifications": True, "extendedAgentCard": True}
    assert "protocolVersion" not in card  # the kit's schema allows nothing besides 1.0
    required = tck.site.get("/a2a/required/.well-known/agent-card.json").json()
    assert required["capabilities"]["extensions"][0] | {"description": ""} == {
        "uri": rows.REQUIRED,
        "required": True,
        "description": "",
    }


def test_what_the_message_id_means(tck):
    assert tck.send(by_id("tck-message-response"))["message"]["parts"] == [{"text": "Direct message response"}]
    assert artifact(tck.task(by_id("tck-artifact-text"))) == "Generated text content"
    (data,) = tck.task(by_id("tck-artifact-data"))["artifacts"][0]["parts"]
    assert data["data"] == {"key": "value", "count": 42}
    (file,) = tck.task(by_id("tck-artifact-file"))["artifacts"][0]["parts"]
    assert (file["filename"], file["mediaType"]) == ("output.txt", "text/plain")
    assert b64decode(file["raw"])
    (url,) = tck.task(by_id("tck-artifact-file-url"))["artifacts"][0]["parts"]
    assert url == {"url": "https://example.com/output.txt", "filename": "output.txt", "mediaType": "text/plain"}
    assert state(tck.task(by_id("tck-whatever-else"))) == "COMPLETED"


def test_conversations_and_streams(tck):
    asked = tck.task(by_id("tck-input-required"))
    again = tck.task(by_id("tck-input-required") | {"taskId": asked["id"]})
    done = tck.task(by_id("tck-complete-task") | {"taskId": asked["id"]})
    assert [state(task) for task in (asked, again, done)] == ["INPUT_REQUIRED", "INPUT_REQUIRED", "COMPLETED"]
    assert done["status"]["message"]["parts"][0]["text"] == "Hello from TCK"
    for prefix in ("tck-stream-001", "tck-stream-003", "tck-stream-ordering-001"):
        assert kinds(tck.stream(by_id(prefix)).all()) == ["task", "WORKING", "artifactUpdate", "COMPLETED"]
    assert kinds(tck.stream(by_id("tck-stream-002")).all())[-1] == "COMPLETED"


def test_what_the_text_means(tck):
    assert tck.send("msg: hello")["message"]["parts"] == [{"text": "hello"}]
    assert artifact(tck.task("chunks: two")) == "chunk-1 chunk-2"
    assert state(tck.task("input: what?")) == "INPUT_REQUIRED"
    assert state(tck.task("fail: now")) == "FAILED"
    assert state(tck.task("task-probe")) == "COMPLETED"
    echo = tck.task("hello")
    assert (artifact(echo), echo["status"]["message"]["parts"][0]["text"]) == ("hello", "echo: hello")
    slow = tck.task("slow: 600", returnImmediately=True)
    assert state(tck.cancel(slow["id"])) == "CANCELED"
