"""Strict JSON in, ProtoJSON text out."""

import json
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from a2a.types import Artifact, GetTaskRequest, Message, Part, SendMessageRequest, StreamResponse, Task
from google.protobuf.json_format import ParseDict

from a2a_django.protocol import codec, errors, wire


def refused(raw):
    """What the JSONParseError for `raw` says."""
    with pytest.raises(errors.JSONParseError) as caught:
        codec.parse_json(raw)
    return caught.value.message


def faults(raw, kind=SendMessageRequest):
    """{field: what is wrong} of a request in JSON text; empty when it is accepted."""
    try:
        codec.to_proto(codec.parse_json(raw), kind)
    except errors.InvalidParamsError as error:
        return {item["field"]: item["message"] for item in error.data["errors"]}
    return {}


def send(part, **fields):
    """A send in JSON text, from JSON text of a part and of the message's other fields."""
    given = {"messageId": '"m"', "role": '"ROLE_USER"'} | fields
    others = "".join(f',"{name}":{value}' for name, value in given.items())
    return f'{{"message":{{"parts":[{part}]{others}}}}}'.encode()


# --- reading


NUMBERS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "1E+999999",
    "1" + "0" * 309,
    "9" * 5000,
    f"-{'9' * 5000}",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_no_double_can_hold_is_refused(number):
    """CASES 16: wherever it stands, and with the field named."""
    for part, field in [
        (f'{{"data":{number}}}', "message.parts[0].data"),
        (f'{{"data":{{"a":[1,{number}]}}}}', "message.parts[0].data.a[1]"),
        (f'{{"text":"","metadata":{{"n":{number}}}}}', "message.parts[0].metadata.n"),
    ]:
        assert list(faults(send(part))) == [field]
    for field in ("text", "raw", "url", "mediaType"):
        assert f"message.parts[0].{field}" in faults(send(f'{{"{field}":{number}}}'))
    assert list(faults(f'{{"id":"t","historyLength":{number}}}'.encode(), GetTaskRequest)) == ["historyLength"]


@pytest.mark.parametrize("number", ["1e308", "-1.7976931348623157e308", "1e-400", "9" * 308, "9007199254740993", "-0"])
def test_what_a_double_can_hold_is_taken(number):
    """CASES 16: as near as a double comes."""
    message = codec.to_proto(codec.parse_json(send(f'{{"data":{number}}}')), SendMessageRequest).message
    assert codec.to_data(message)["parts"] == [{"data": float(number)}]


@pytest.mark.parametrize(("text", "wrong"), [(r"a\u0000b", "NUL"), (r"\\\u0000", "NUL")]
    + [(text, "surrogate") for text in (r"\ud800", r"a\udfff", r"\udc00\ud800")])  # fmt: skip
def test_what_no_database_can_hold_is_refused(text, wrong):
    """CASES 18: NUL and lone surrogates, in values and in names, with the field named."""
    for part, field in [
        (f'{{"text":"{text}"}}', "message.parts[0].text"),
        (f'{{"data":["{text}"]}}', "message.parts[0].data[0]"),
        (f'{{"text":"","filename":"{text}"}}', "message.parts[0].filename"),
        (f'{{"text":"","metadata":{{"a":"{text}"}}}}', "message.parts[0].metadata.a"),
    ]:
        found = faults(send(part))
        assert list(found) == [field]
        assert wrong in found[field]
    found = faults(send(f'{{"data":{{"{text}":1}}}}'))
    assert [wrong in message for message in found.values()] == [True]
    for field in ("messageId", "contextId", "taskId"):
        assert list(faults(send('{"text":""}', **{field: f'"{text}"'}))) == [f"message.{field}"]
    assert list(faults(send('{"text":""}', referenceTaskIds=f'["t","{text}"]'))) == ["message.referenceTaskIds[1]"]


@pytest.mark.parametrize("raw", [b'"a\x00b"', b'"\xed\xa0\x80"', b'{"a":"\x1f"}'])
def test_raw_control_characters_and_surrogates_are_no_json(raw):
    """CASES 18"""
    assert refused(raw)


@pytest.mark.parametrize(("raw", "value"), [
    (b'"a\\\\u0000b"', "a\\u0000b"),
    (b'"\\\\\\\\u0000"', "\\\\u0000"),
    (b'"\\ud83d\\ude00"', "\U0001f600"),
    (b'"\xf0\x9f\x98\x80"', "\U0001f600"),
    (b'"\\u0001"', "\x01"),
])  # fmt: skip
def test_what_only_looks_like_them_is_text(raw, value):
    """CASES 18"""
    assert codec.parse_json(raw) == value


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"{'a':1}", b'{"a":1}x', b"\xff", b'"\xc3"', b'{"a":1,}', b"\xef\xbb\xbf{}"]
)
def test_what_is_no_json_is_refused(raw):
    assert refused(raw)


@pytest.mark.parametrize(("raw", "says"), [
    (b'"\xff"', "not UTF-8: see byte 1"),
    (b"\xef\xbb\xbf{}", "byte order mark"),
    (b'{"a":\n 1,}', "see line 2, column 4"),
])  # fmt: skip
def test_what_is_said_of_no_json_is_ours(raw, says):
    assert says in refused(raw)


@pytest.mark.parametrize(("raw", "field"), [
    (send('{"text":"a","text":"b"}'), "message.parts[0]"),
    (send('{"text":"a","text":"a"}'), "message.parts[0]"),
    (send('{"data":{"a":{"b":1,"b":2}}}'), "message.parts[0].data.a"),
    (send('{"text":"a","metadata":{"b":1,"b":2}}'), "message.parts[0].metadata"),
    (b'{"message":{},' + send('{"text":"a"}')[1:], "SendMessageRequest"),
])  # fmt: skip
def test_a_key_stands_once(raw, field):
    found = faults(raw)
    assert list(found) == [field]
    assert "twice" in found[field]


def test_what_is_within_an_object_with_a_key_twice_is_named_as_well():
    assert set(faults(send('{"text":5,"text":6}', role='"x"'))) == {
        "message.parts[0]",
        "message.parts[0].text",
        "message.role",
    }


def nested(levels, unit=("[", "]")):
    return unit[0] * levels + "1" + unit[1] * levels


LIST, OBJECT = ("[", "]"), ('{"a":', "}")


@pytest.mark.parametrize("unit", [LIST, OBJECT])
def test_nesting_is_bounded(settings, unit):
    settings.A2A = {**settings.A2A, "MAX_NESTING": 20}
    for levels, wrong in ((20, []), (21, ["GetTaskRequest"])):
        raw = f'{{"id":"t","unknown":{nested(levels - 1, unit)}}}'.encode()
        assert list(faults(raw, GetTaskRequest)) == wrong
    assert "nested" in refused(nested(100_000, unit).encode())


@pytest.mark.parametrize(("unit", "most"), [(LIST, 47), (OBJECT, 31)])
def test_data_is_no_deeper_than_protobuf_carries(unit, most):
    """gRPC's clients read 100 messages within each other; a Task's status is what has the most around the data."""
    request = codec.to_proto(codec.parse_json(send(f'{{"data":{nested(most, unit)}}}')), SendMessageRequest)
    event = StreamResponse()
    event.task.status.message.CopyFrom(request.message)
    assert StreamResponse.FromString(event.SerializeToString()) == event
    assert codec.read(codec.to_text(event), StreamResponse) == event

    found = faults(send(f'{{"data":{nested(most + 1, unit)}}}'))
    assert list(found) == ["message.parts[0].data"]
    assert "31 objects or 47 arrays" in found["message.parts[0].data"]


def test_width_is_no_depth(settings):
    settings.A2A = {**settings.A2A, "MAX_NESTING": 5}
    raw = send('{"data":[' + ",".join(["[]"] * 5000) + "]}")
    assert list(faults(raw)) == ["SendMessageRequest"]  # message, parts, part, data, its elements
    settings.A2A = {**settings.A2A, "MAX_NESTING": 6}
    assert faults(raw) == {}


HOSTILE = [
    json.dumps({"message": {"parts": [{}] * 100_000}}),
    json.dumps({"message": {"parts": [{"text": 5}] * 100_000, "referenceTaskIds": [5] * 100_000}}),
    send(json.dumps({"data": [float("inf")] * 100_000})).decode(),
    send(f'{{"data":{{"{"x" * 1_000_000}":{{"{"y" * 1_000_000}":NaN}}}}}}').decode(),
    json.dumps({"message": {"x" * 1_000_000: 1, "role": "x" * 1_000_000}}),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_said_of_a_hostile_body_is_bounded(text):
    """All violations at once, but not a hundred thousand."""
    with pytest.raises(errors.InvalidParamsError) as caught:
        codec.to_proto(codec.parse_json(text.encode()), SendMessageRequest)
    assert 1 <= len(caught.value.data["errors"]) <= errors.MAX_VIOLATIONS
    assert len(codec.dumps(errors.rest_body(caught.value))) < 20_000


def test_reading_takes_time_in_proportion():
    """A body with ten times the parts takes about ten times as long, not a hundred times."""

    def seconds(number):
        raw = json.dumps({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x" * 40}] * number}})
        start = time.process_time()
        assert faults(raw.encode()) == {}
        return time.process_time() - start

    few = min(seconds(3000) for _ in range(3))
    assert seconds(30_000) < 40 * few


# --- writing


@pytest.mark.parametrize("text", ["a\u2028b", "a\u2029b", "a\x85b", "\r\n", "\x0b\x0c\x1c\x1d\x1e"])
def test_the_text_is_one_line_for_every_reader(text):
    """httpx, and so the a2a-sdk's client, ends a line of a stream at any of these."""
    written = codec.dumps({text: [text]})
    assert written.splitlines() == [written]
    assert codec.loads(written) == {text: [text]}


def test_the_text_is_compact_and_not_escaped():
    assert codec.dumps({"a": ["é", "\U0001f600", None, True, 1.5]}) == '{"a":["é","\U0001f600",null,true,1.5]}'


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_json_cannot_hold_is_not_written(number):
    """CASES 16: what an executor puts into an artifact."""
    artifact = Artifact(artifact_id="a", parts=[Part()])
    artifact.parts[0].data.struct_value.fields["n"].number_value = number
    with pytest.raises(ValueError, match=r"NaN|nan|Infinity|inf"):
        codec.to_data(artifact)
    with pytest.raises(ValueError, match="JSON"):
        codec.dumps({"n": number})


def test_bytes_go_out_as_padded_base64():
    """CASES 23"""
    assert codec.to_data(Part(raw=b"\xff\xfe")) == {"raw": "//4="}


def test_stored_text_is_read_back():
    data = {"messageId": "m", "role": "ROLE_USER", "parts": [{"data": {"a": None}}, {"text": "\u2028"}]}
    message = ParseDict(data, Message())
    assert codec.read(codec.to_text(message), Message) == message
    assert json.loads(codec.to_text(message)) == data


def test_stored_text_may_have_fields_of_a_later_version():
    assert codec.read('{"id":"t","isNew":true}', Task) == Task(id="t")


def test_our_own_data_may_lack_fields():
    assert codec.parse({"id": "t"}, Task) == Task(id="t")
    with pytest.raises(errors.InvalidParamsError, match="Task"):
        codec.parse({"id": 5}, Task)


# --- times


def test_a_time_is_written_in_utc_to_the_millisecond():
    moment = datetime(2026, 1, 31, 13, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert codec.timestamp(moment) == "2026-01-31T12:00:00.999Z"
    assert codec.timestamp(datetime(2026, 1, 31, 12, tzinfo=UTC)) == "2026-01-31T12:00:00.000Z"


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00.123456789Z", "2026-01-31T13:00:00.123+01:00"])
def test_a_time_is_read_to_the_millisecond(text):
    assert codec.moment(text) == datetime(2026, 1, 31, 12, 0, 0, 123_000, tzinfo=UTC)


def test_protobuf_is_checked_like_json():
    right = ParseDict({"message": {"messageId": "m", "role": 1, "parts": [{"text": "hi"}]}}, SendMessageRequest())
    assert wire.checked(right) == right
    right.message.parts.add(text="a\0b")
    right.configuration.history_length = -1
    with pytest.raises(errors.InvalidParamsError) as caught:
        wire.checked(right)
    fields = {item["field"] for item in caught.value.data["errors"]}
    assert fields == {"message.parts[1].text", "configuration.historyLength"}


def test_a_time_survives_the_way_out_and_in():
    text = "2026-01-31T12:00:00.007Z"
    assert codec.timestamp(codec.moment(text)) == text
