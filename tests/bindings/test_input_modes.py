"""Media types of what comes in (CASES 84; A2A 3.1.1, 3.3.2), over every binding."""

import pytest
from a2a.types import Message as ProtoMessage
from a2a.types import Part

from a2a_django.models import Agent, AgentSkill, Message, Task, Turn
from a2a_django.operations import input_modes
from a2a_django.protocol import errors
from tests.clients import Error, message, state

PNG = {"raw": "iVBORw==", "mediaType": "image/png"}


@pytest.fixture
def takes(make_client):
    """takes(*modes): a client of an agent that repeats parts of these types."""

    def make(*modes):
        return make_client("Echo", default_input_modes=list(modes))

    return make


def refused(client, *parts, **fields):
    """The error for a message with these parts, by either kind of send; nothing is stored."""
    before = [model.objects.count() for model in (Task, Message, Turn)]
    found = []
    for call in (client.send, client.stream):
        with pytest.raises(Error) as error:
            call(message(parts=list(parts), **fields))
        found.append((error.value.reason, error.value.fields, error.value.metadata))
    assert [model.objects.count() for model in (Task, Message, Turn)] == before
    assert found[0] == found[1]
    assert found[0][0] == "CONTENT_TYPE_NOT_SUPPORTED"
    return error.value


def taken(client, *parts):
    """Whether the parts come to the executor as they are."""
    return client.task(message(parts=list(parts)))["artifacts"][0]["parts"] == list(parts)


def test_a_picture_for_an_agent_that_reads_text(takes):
    """CASES 84."""
    error = refused(takes("text/plain"), {"text": "look"}, PNG, {"text": "here"}, PNG)

    assert error.fields == ["message.parts[1].mediaType", "message.parts[3].mediaType"]
    assert error.metadata == {"supportedMediaTypes": "text/plain"}
    assert "image/png" in error.message
    assert error.code == ("INVALID_ARGUMENT" if error.status == 400 else -32005)


@pytest.mark.parametrize(
    ("modes", "part"),
    [
        (["image/png"], PNG),
        (["text/plain", "image/*"], PNG),
        (["*/*"], PNG),
        (["IMAGE/PNG; q=1"], PNG),
        (["image/png"], PNG | {"mediaType": "Image/PNG"}),
        (["text/plain"], {"text": "a", "mediaType": "text/plain; charset=utf-8"}),
        (["text/markdown"], {"text": "a", "mediaType": "text/markdown"}),
        (["application/vnd.x+json"], {"data": 1, "mediaType": "application/vnd.x+json"}),
        ([], PNG),
    ],
)
def test_types_that_are_taken(takes, modes, part):
    assert taken(takes(*modes), part)


@pytest.mark.parametrize(
    ("modes", "part"),
    [
        (["image/jpeg"], PNG),
        (["text/*"], PNG),
        (["image/pn"], PNG),
        (["image/png"], PNG | {"mediaType": "image"}),
        (["text/plain"], {"text": "a", "mediaType": "text/html"}),
        (["application/json"], {"data": 1, "mediaType": "text/plain"}),
        (["image/png"], PNG | {"mediaType": "x" * 1000}),
    ],
)
def test_types_that_are_refused(takes, modes, part):
    assert len(refused(takes(*modes), part).message) < 300


@pytest.mark.parametrize(
    ("part", "mode"),
    [
        ({"text": "a"}, "text/plain"),
        ({"data": {"a": 1}}, "application/json"),
        ({"data": None}, "application/json"),
        ({"raw": "AA=="}, "application/octet-stream"),
        ({"raw": "AA==", "filename": "a.png"}, "image/png"),
        ({"raw": "AA==", "filename": "a.tar.gz"}, "application/octet-stream"),
        ({"raw": "AA==", "filename": "a"}, "application/octet-stream"),
        ({"url": "https://example.com/a.PDF?page=2#top"}, "application/pdf"),
        ({"url": "https://example.com/a.pdf"}, "application/pdf"),
        ({"url": "https://example.com/"}, "application/octet-stream"),
        ({"url": "https://example.com/x.pdf", "filename": "a.csv"}, "text/csv"),
    ],
)
def test_a_part_without_a_type_is_what_its_kind_is(takes, part, mode):
    """CASES 84: a text is text/plain, data is JSON; of a file its name may tell."""
    client = takes(mode)
    assert taken(client, part)

    Agent.objects.update(default_input_modes=["audio/ogg"])
    refused(client, part)


def test_what_a_skill_takes_the_agent_takes(takes, make_user):
    """A message names no skill; but those that a caller's card hides take nothing from that caller."""
    client = takes("text/plain")
    agent = Agent.objects.get()
    AgentSkill.objects.create(agent=agent, skill_id="a", name="A", description="-", input_modes=["image/*"])
    hidden = {"name": "B", "description": "-", "input_modes": ["audio/ogg"], "visibility": "authenticated"}
    AgentSkill.objects.create(agent=agent, skill_id="b", **hidden)
    sound = {"raw": "AA==", "mediaType": "audio/ogg"}

    assert taken(client, {"text": "look"}, PNG)
    assert refused(client, PNG, sound).metadata == {"supportedMediaTypes": "image/*, text/plain"}
    make_user("alice")
    assert taken(client.as_("alice"), PNG, sound)
    assert "audio/ogg, image/*" in refused(client.as_("alice"), {"data": 1}).message


def test_an_agent_with_types_in_skills_only(takes):
    client = takes()
    AgentSkill.objects.create(agent=Agent.objects.get(), skill_id="a", name="A", description="-", input_modes=["a/b"])
    refused(client, {"text": "a"})
    assert taken(client, {"text": "a", "mediaType": "a/b"})


def test_a_follow_up_is_looked_at_too(make_client):
    client = make_client(default_input_modes=["text/plain"])
    task = client.task("task input:what?")
    refused(client, PNG, taskId=task["id"])

    assert client.get(task["id"]) == task
    assert state(client.follow(task, "completed")) == "COMPLETED"


@pytest.mark.parametrize("modes", [["text/html"], ["text/plain", "image/*"], []])
def test_accepted_output_modes_are_for_the_executor(make_client, modes):
    """CASES 84: what the client wants back is a wish, which the executor is told; no send is refused for it."""
    task = make_client("Dump").task("hi", acceptedOutputModes=modes)
    told = task["artifacts"][0]["parts"][0]["data"]["configuration"]
    assert told.get("acceptedOutputModes", []) == modes


@pytest.mark.parametrize("binding", ["rest"], indirect=True)
def test_what_the_agent_itself_takes_costs_no_query(takes, make_caller, django_assert_num_queries):
    takes("text/plain")
    caller = make_caller(Agent.objects.get())
    with django_assert_num_queries(0):
        input_modes.check(caller, ProtoMessage(parts=[Part(text="a")]))
    with django_assert_num_queries(2), pytest.raises(errors.ContentTypeNotSupportedError):
        input_modes.check(caller, ProtoMessage(parts=[Part(raw=b"a")]))
