"""Strict JSON in, ProtoJSON text out."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from a2a.types import Artifact, Message, Part, SendMessageRequest, Task
from google.protobuf.json_format import ParseDict

from a2a_django.protocol import codec, errors


def refused(raw):
    with pytest.raises(errors.JSONParseError) as caught:
        codec.parse_json(raw)
    return str(caught.value)


# --- reading


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400"])
def test_what_is_no_number_is_refused(number):
    """CASES 16"""
    with pytest.raises(errors.InvalidParamsError):
        codec.parse_json(b'{"message":{"parts":[{"data":{"n":' + number + b"}}]}}")


def test_a_number_beyond_a_double_is_refused():
    """CASES 16: an integer of JSON that protobuf's double can't hold."""
    data = codec.parse_json(b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":1' + b"0" * 400 + b"}]}}")
    with pytest.raises(errors.InvalidParamsError):
        codec.to_proto(data, SendMessageRequest)
    assert refused(b"1" * 5000)


@pytest.mark.parametrize("raw", [b'"a\\u0000b"', b'{"a\\u0000":1}', b'["\\\\\\u0000"]', b'"a\x00b"'])
def test_nul_is_refused(raw):
    """CASES 18"""
    assert refused(raw)


@pytest.mark.parametrize("raw", [b'"\\ud800"', b'{"\\udfff":1}', b'"\\udc00\\ud800"', b'"\xed\xa0\x80"'])
def test_lone_surrogates_are_refused(raw):
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


def test_a_key_stands_once():
    assert "twice" in refused(b'{"a":{"b":1,"b":2}}')


def nested(levels, unit=(b"[", b"]")):
    return unit[0] * levels + b"1" + unit[1] * levels


@pytest.mark.parametrize("unit", [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_bounded(settings, unit):
    settings.A2A = {**settings.A2A, "MAX_NESTING": 20}
    assert codec.parse_json(nested(20, unit))
    assert "20 levels" in refused(nested(21, unit))
    assert "nested" in refused(nested(100_000, unit))


def test_width_is_no_depth(settings):
    settings.A2A = {**settings.A2A, "MAX_NESTING": 3}
    assert len(codec.parse_json(b"[" + b",".join([b"[[]]"] * 500) + b"]")) == 500


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


def test_a_time_survives_the_way_out_and_in():
    text = "2026-01-31T12:00:00.007Z"
    assert codec.timestamp(codec.moment(text)) == text
