"""Whatever a client may say is understood and comes back; whatever else it says is refused in order."""

import json

import pytest
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskPushNotificationConfig,
)
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from a2a_django import entries
from a2a_django.agents import claims
from a2a_django.agents.contract import Contract
from a2a_django.operations import sending
from a2a_django.protocol import codec, errors, wire
from tests import strategies
from tests.strategies import examples

KINDS = [SendMessageRequest, GetTaskRequest, ListTasksRequest, CancelTaskRequest, TaskPushNotificationConfig, Task]


def taken_in(request):
    """`request` as a body is read."""
    return codec.to_proto(codec.parse_json(strategies.text(request).encode()), SendMessageRequest)


@examples(300)
@given(strategies.SEND)
def test_a_request_is_read_as_it_was_meant(request):
    proto = taken_in(request)
    assert codec.to_data(proto) == strategies.plain(request)
    assert codec.read(codec.to_text(proto), SendMessageRequest) == proto
    assert SendMessageRequest.FromString(proto.SerializeToString()) == proto
    assert wire.checked(proto) == proto


@examples(200)
@given(strategies.SEND, st.randoms(use_true_random=False))
def test_names_may_be_spelled_either_way_and_unknown_ones_stand_anywhere(request, random):
    """ProtoJSON, A2A 5.7"""

    def changed(value, free=False):
        if isinstance(value, list):
            return [changed(item, free) for item in value]
        if not isinstance(value, dict) or free:
            return value
        found = {}
        for name, item in value.items():
            spelled = name if random.random() < 0.5 else strategies.snake(name)
            found[spelled] = changed(item, free=name in ("data", "metadata"))
        return found | {"later": random.choice([None, 1, {"role": "x"}, [{}]])}

    assert taken_in(changed(request)) == taken_in(request)


@examples(200)
@given(strategies.SEND)
def test_a_turn_keeps_the_whole_request(request):
    """What a worker rebuilds from the rows is what was sent, all but the secrets."""
    proto = taken_in(request)
    body = codec.to_text(proto.message)
    assert claims._request(sending._without_secrets(proto), body) == proto


@examples(300)
@given(strategies.MESSAGE)
def test_a_message_is_the_same_within_a_task(said):
    """Stored, sent in one line, and read again by clients: of JSON and of protobuf."""
    message = ParseDict(said, Message())
    expected = strategies.plain(said)
    entry = entries.submitted("t", message.context_id or "c", codec.to_text(message))
    assert entry.text.splitlines() == [entry.text]
    assert entry.text.encode().decode() == entry.text
    assert json.loads(entry.text)["task"]["history"] == [expected]

    event = codec.read(entry.text, StreamResponse)
    assert event.task.history[0] == message
    assert StreamResponse.FromString(event.SerializeToString()) == event


@examples(300)
@given(st.lists(strategies.PART, min_size=1, max_size=3), strategies.STRUCT, st.booleans())
def test_what_an_executor_says_is_sent_as_it_was_said(parts, metadata, nul):
    parts = [*parts, {"text": "a\0b"}] if nul else parts
    event = TaskArtifactUpdateEvent()
    ParseDict({"artifactId": "a", "parts": parts, "metadata": metadata}, event.artifact)
    entry = Contract("t", "c", follow_up=True, artifact_ids=set()).entry(event)
    artifact = json.loads(entry.text)["artifactUpdate"]["artifact"]
    assert artifact["parts"] == [strategies.plain(part) for part in parts]
    assert artifact["metadata"] == metadata
    assert entry.text.splitlines() == [entry.text]


# --- what is no request


def understood(raw, kind):
    """Whether `raw` is a `kind`; if it is, it is readable, if not, the refusal is in order."""
    proto, refusal = attempt(lambda: codec.to_proto(codec.parse_json(raw), kind))
    if isinstance(refusal, errors.JSONParseError):
        assert refusal.message
    elif refusal:
        in_order(refusal)
    else:
        text = codec.to_text(proto)
        assert codec.read(text, kind) == proto
        assert kind.FromString(proto.SerializeToString()) == proto
        assert "\\u0000" not in text.replace("\\\\", "")
    return refusal is None


def attempt(call):
    """What `call` returns, or else the refusal."""
    try:
        return call(), None
    except (errors.JSONParseError, errors.InvalidParamsError) as error:
        return None, error


def in_order(refusal):
    named = refusal.data["errors"]
    assert 1 <= len(named) <= errors.MAX_VIOLATIONS
    assert all(item["field"] and item["message"] for item in named)
    assert len(json.dumps(errors.rest_body(refusal), allow_nan=False, ensure_ascii=False).encode()) < 100_000


@pytest.mark.parametrize("kind", KINDS)
def test_anything_is_understood_or_refused_in_order(kind):
    @examples(300)
    @given(strategies.VALUE | strategies.STRUCT)
    def check(value):
        understood(strategies.text(value).encode(errors="surrogatepass"), kind)

    check()


def test_a_request_with_something_wrong_is_understood_or_refused_in_order():
    seen = set()

    @examples(1500)
    @given(strategies.SEND.flatmap(strategies.spoiled))
    def check(raw):
        seen.add(understood(raw, SendMessageRequest))

    check()
    assert seen == {True, False}


@examples(700)
@given(strategies.SEND.flatmap(strategies.broken) | st.binary(max_size=50))
def test_bytes_are_understood_or_refused_in_order(raw):
    understood(raw, SendMessageRequest)


@examples(500)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [field.json_name for field in ListTasksRequest.DESCRIPTOR.fields] + ["page_size", "format"]
            ),
            st.lists(st.sampled_from(strategies.NASTY_TEXT) | strategies.TEXT, min_size=1, max_size=2),
        ),
        max_size=4,
    )
)
def test_a_query_is_understood_or_refused_in_order(query):
    _, refusal = attempt(lambda: codec.query_to_proto(query, {}, ListTasksRequest))
    if refusal:
        in_order(refusal)
        assert {item["field"] for item in refusal.data["errors"]} <= {name for name, _ in query}
