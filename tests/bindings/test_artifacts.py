"""What an executor's artifact events make of a task (A2A 4.2.2), over every binding."""

import json

import pytest

from tests.clients import Error, folded, state


def piece(parts, artifact_id="a", append=False, last=False, **artifact):
    """A word of the script."""
    data = {"artifact": {"artifactId": artifact_id, "parts": parts, **artifact}}
    data |= ({"append": True} if append else {}) | ({"lastChunk": True} if last else {})
    return f"piece:{json.dumps(data, separators=(',', ':'))}"


FIRST = piece([{"text": "one"}], name="report", description="d", metadata={"a": 1, "b": {"c": [None]}})
SECOND = piece([{"text": "two"}, {"data": 2}], append=True, metadata={"a": 2, "d": True}, name="ignored")
LAST = piece([{"raw": "//4="}], append=True, last=True)


@pytest.mark.v0_3
def test_pieces_are_joined_and_their_metadata_merged(client):
    """CASES 42: none is lost, in the answer, in the stream and later."""
    script = f"task {FIRST} {piece([{'text': 'x'}], 'b')} {SECOND} {LAST} completed"
    task = client.task(script)

    first, second = task["artifacts"]
    assert first == {
        "artifactId": "a",
        "name": "report",
        "description": "d",
        "parts": [{"text": "one"}, {"text": "two"}, {"data": 2}, {"raw": "//4="}],
        "metadata": {"a": 2, "b": {"c": [None]}, "d": True},
    }
    assert second == {"artifactId": "b", "parts": [{"text": "x"}]}
    assert client.get(task["id"])["artifacts"] == task["artifacts"]


@pytest.mark.v0_3
def test_the_last_piece_says_so_in_the_stream_alone(client):
    events = client.stream(f"task {FIRST} {SECOND} {LAST} completed").all()
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]

    assert [update.get("append", False) for update in updates] == [False, True, True]
    assert [update.get("lastChunk", False) for update in updates] == [False, False, True]
    (whole,) = client.get(events[0]["task"]["id"])["artifacts"]
    assert "lastChunk" not in whole
    assert [part for update in updates for part in update["artifact"]["parts"]] == whole["parts"]


@pytest.mark.v0_3
def test_an_artifact_without_append_takes_the_place_of_the_old(client):
    new = piece([{"text": "new"}], metadata={"n": 1})
    task = client.task(f"task {FIRST} {piece([{'text': 'x'}], 'b')} {SECOND} {new} completed")

    assert task["artifacts"] == [
        {"artifactId": "a", "parts": [{"text": "new"}], "metadata": {"n": 1}},
        {"artifactId": "b", "parts": [{"text": "x"}]},
    ]


@pytest.mark.v0_3
def test_a_later_turn_goes_on_with_an_artifact(client):
    """CASES 42: also one that was begun, finished and folded long ago."""
    asked = client.task(f"task {FIRST} {LAST} input:more?")
    done = client.follow(asked, f"{SECOND} completed")

    (whole,) = done["artifacts"]
    assert whole["parts"] == [{"text": "one"}, {"raw": "//4="}, {"text": "two"}, {"data": 2}]
    assert whole["metadata"] == {"a": 2, "b": {"c": [None]}, "d": True}


@pytest.mark.v0_3
def test_a_piece_of_nothing_is_the_agents_fault(client):
    """A2A 4.2.2: what is appended to must be there."""
    assert state(client.task(f"task {SECOND} completed")) == "FAILED"
    with pytest.raises(Error) as error:
        client.task(LAST)
    assert error.value.reason == "INVALID_AGENT_RESPONSE"


@pytest.mark.v0_3
def test_subscribers_have_the_same_in_the_end(client, gate):
    task = client.task(f"task {FIRST} wait:a {SECOND} {LAST} completed", returnImmediately=True)
    gate("a").reached()
    stream = client.subscribe(task["id"])
    opening = next(stream).data
    gate("a").open()

    (whole,) = folded([opening, *stream.all()])["artifacts"]
    (stored,) = client.get(task["id"])["artifacts"]
    assert whole["parts"] == stored["parts"]
