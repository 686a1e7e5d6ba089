"""What a2a.proto demands of JSON data, and how a breach of it is named (A2A 5.7, 11.5)."""

import base64

import pytest
from a2a.types import (
    GetTaskRequest,
    ListTasksRequest,
    Role,
    SendMessageRequest,
    TaskPushNotificationConfig,
    TaskState,
)

from a2a_django.protocol import codec, errors


def send(*parts, **message):
    """A SendMessageRequest whose message has `parts` and the fields given, None for one that is left out."""
    fields = {"messageId": "m", "role": "ROLE_USER", "parts": list(parts) or [{"text": "hi"}]} | message
    return {"message": {name: value for name, value in fields.items() if value is not None}}


def faults(data, kind=SendMessageRequest):
    """The fields that are at fault in `data`; none when it is accepted."""
    try:
        codec.to_proto(data, kind)
    except errors.InvalidParamsError as error:
        return [item["field"] for item in error.data["errors"]]
    return []


def accepted(data, kind=SendMessageRequest):
    return codec.to_data(codec.to_proto(data, kind))


# --- null (CASES 21)


@pytest.mark.parametrize(("data", "field"), [
    ({"message": {"messageId": "m", "role": "ROLE_USER", "parts": None}}, "message.parts"),
    (send(None), "message.parts[0]"),
    ({"message": None}, "message"),
    (None, "SendMessageRequest"),
    ([], "SendMessageRequest"),
    ({"message": "hi"}, "message"),
])  # fmt: skip
def test_null_is_no_value_for_what_is_required(data, field):
    """CASES 21"""
    assert faults(data) == [field]


def test_null_leaves_a_field_unset():
    """CASES 21"""
    data = send() | {"configuration": None, "metadata": None}
    data["message"] |= {"contextId": None, "extensions": None, "metadata": None}
    assert accepted(data) == accepted(send())


@pytest.mark.parametrize("value", [None, 5, 0, False, "", "x", [], {}, [1, None, {"a": None}]])
def test_any_json_is_a_data_part(value):
    """CASES 21"""
    assert accepted(send({"data": value}))["message"]["parts"] == [{"data": value}]


def test_null_within_metadata_survives():
    """CASES 21, 20"""
    metadata = {"a": {"b": [1, None]}, "c": None}
    assert accepted(send() | {"metadata": metadata})["metadata"] == metadata


# --- unknown fields and enums (CASES 22)


def test_unknown_fields_are_ignored_at_every_depth():
    """CASES 22"""
    data = send({"text": "hi", "foo": 1}, foo={"role": "user"}) | {"foo": 1, "configuration": {"foo": [{}]}}
    assert accepted(data) == accepted(send() | {"configuration": {}})


@pytest.mark.parametrize("role", ["user", "USER", "role_user", 99, 0, -1, 1.5, True, "", "ROLE_UNSPECIFIED", {}, "1"])
def test_an_unknown_enum_is_named(role):
    """CASES 22"""
    assert faults(send(role=role)) == ["message.role"]


@pytest.mark.parametrize("role", [1, "ROLE_USER"])
def test_an_enum_is_its_name_or_number(role):
    """CASES 22"""
    assert codec.to_proto(send(role=role), SendMessageRequest).message.role == Role.ROLE_USER


def test_a_wrong_enum_in_a_query_is_no_filter():
    """CASES 22"""
    assert query_faults(status="TASK_STATE_RUNNING") == ["status"]
    assert query(status="TASK_STATE_WORKING").status == TaskState.TASK_STATE_WORKING


# --- base64 (CASES 23)


@pytest.mark.parametrize(("text", "raw"), [
    ("aGk=", b"hi"),
    ("aGk", b"hi"),
    ("-_8", b"\xfb\xff"),
    ("+/8=", b"\xfb\xff"),
    ("", b""),
    ("+_-/", base64.b64decode("+/+/")),
])  # fmt: skip
def test_base64_may_be_of_either_alphabet_and_unpadded(text, raw):
    """CASES 23"""
    message = codec.to_proto(send({"raw": text}), SendMessageRequest).message
    assert message.parts[0].raw == raw
    assert message.parts[0].WhichOneof("content") == "raw"


@pytest.mark.parametrize(
    "text", ["!!!", "a", "aGk=aGk=", "é", 5, True, [], {}, "aG k=", "aGk==", "=", "aGk=\n", "aGl====="]
)
def test_what_is_no_base64_is_refused(text):
    """CASES 23"""
    assert faults(send({"raw": text})) == ["message.parts[0].raw"]


def test_base64_goes_out_padded():
    """CASES 23"""
    assert accepted(send({"raw": "-_8"}))["message"]["parts"] == [{"raw": "+/8="}]


# --- parts and required fields (CASES 24)


@pytest.mark.parametrize(("data", "fields"), [
    ({"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}, ["message.parts"]),
    (send({}), ["message.parts[0]"]),
    (send({"foo": 1}), ["message.parts[0]"]),
    (send({"mediaType": "text/plain"}), ["message.parts[0]"]),
    (send({"text": "a", "url": "https://x"}), ["message.parts[0]"]),
    (send({"text": "a", "url": "u"}), ["message.parts[0].url", "message.parts[0]"]),
    (send({"text": "a"}, {"data": 1, "raw": ""}), ["message.parts[1]"]),
    (send({"text": 5}), ["message.parts[0].text"]),
    (send("hi"), ["message.parts[0]"]),
    ({"message": {"messageId": "m", "role": "ROLE_USER", "parts": {"text": "a"}}}, ["message.parts"]),
    (send(messageId=None), ["message.messageId"]),
    (send(messageId=""), ["message.messageId"]),
    (send(messageId=7), ["message.messageId"]),
    (send(role=None), ["message.role"]),
    ({}, ["message"]),
    (send({}, messageId=None, role="user"), ["message.role", "message.parts[0]", "message.messageId"]),
])  # fmt: skip
def test_each_field_at_fault_is_named(data, fields):
    """CASES 24"""
    assert sorted(faults(data)) == sorted(fields)


def test_an_empty_text_is_a_text():
    """CASES 24"""
    assert accepted(send({"text": ""}))["message"]["parts"] == [{"text": ""}]


def test_the_violations_are_a_bad_request_detail():
    """CASES 24"""
    with pytest.raises(errors.InvalidParamsError) as caught:
        codec.to_proto(send({}, messageId=None), SendMessageRequest)
    bad_request = errors.details(caught.value)[1]
    assert bad_request["@type"] == "type.googleapis.com/google.rpc.BadRequest"
    assert {item["field"] for item in bad_request["fieldViolations"]} == {"message.messageId", "message.parts[0]"}
    assert all(item["description"] for item in bad_request["fieldViolations"])


def test_a_nested_message_is_checked_as_well():
    config = {"taskPushNotificationConfig": {"authentication": {"scheme": ""}}}
    assert sorted(faults(send() | {"configuration": config})) == [
        "configuration.taskPushNotificationConfig.authentication.scheme",
        "configuration.taskPushNotificationConfig.url",
    ]


def test_a_field_has_two_names_but_one_value():
    data = send()
    data["message"] |= {"contextId": "a", "context_id": "b"}
    assert faults(data) == ["message.contextId"]
    data["message"] |= {"contextId": None}
    assert faults(data) == ["message.contextId"]
    data["message"] |= {"contextId": "a", "context_id": None}
    assert faults(data) == ["message.contextId"]
    data["message"] |= {"context_id": "b"}
    del data["message"]["contextId"]
    assert accepted(data)["message"]["contextId"] == "b"


@pytest.mark.parametrize("field", ["contextId", "messageId"])
@pytest.mark.parametrize(("text", "right"), [("ä" * 256, True), ("ä" * 257, False), ("a\0b", False)])
def test_ids_fit_their_columns(field, text, right):
    assert faults(send(**{field: text})) == ([] if right else [f"message.{field}"])


@pytest.mark.parametrize(("field", "most"), [("id", 256), ("url", 2000)])
def test_push_configs_fit_their_columns(field, most):
    data = {"taskId": "t", "url": "https://x"}
    assert faults(data | {field: "x" * most}, TaskPushNotificationConfig) == []
    assert faults(data | {field: "x" * (most + 1)}, TaskPushNotificationConfig) == [field]


def test_a_link_in_a_part_may_be_long():
    assert faults(send({"url": "https://x/" + "x" * 5000})) == []


URLS = [
    "https://x",
    "http://x:8000/a?b#c",
    "HTTPS://X/%20",
    "https://müller.example/ä",
    "https://u:p@x/",
    "https://[::1]/a",
]


@pytest.mark.parametrize("url", URLS)
def test_the_link_in_a_part_is_absolute(url):
    assert accepted(send({"url": url}))["message"]["parts"] == [{"url": url}]


NO_URLS = [
    "",
    "x",
    "/x",
    "//x/y",
    "x.example/y",
    "https:",
    "https:x",
    "https://",
    "https:///x",
    "https://x:no",
    "https://[",
]
NO_URLS += [
    "https://x/a b",
    " https://x",
    "https://x\n",
    "ftp://x",
    "file:///etc/passwd",
    "data:,x",
    "javascript:x",
    5,
    {},
]


@pytest.mark.parametrize("url", NO_URLS)
def test_any_other_link_is_refused_with_the_schemes_named(url):
    with pytest.raises(errors.InvalidParamsError) as caught:
        codec.to_proto(send({"url": url}), SendMessageRequest)
    (wrong,) = caught.value.data["errors"]
    assert wrong["field"] == "message.parts[0].url"
    assert "http: or https:" in wrong["message"]


def test_the_schemes_of_links_are_a_setting(settings):
    settings.A2A = {**settings.A2A, "PART_URL_SCHEMES": ["s3", "data"]}
    for url in ("s3://bucket/key", "data:,x"):
        assert faults(send({"url": url})) == []
    for url in ("https://x", "s3:", "data:"):
        assert faults(send({"url": url})) == ["message.parts[0].url"]


@pytest.mark.parametrize(("value", "right"), [
    ({"historyLength": 2}, True),
    ({"historyLength": "2"}, True),
    ({"historyLength": 2.0}, True),
    ({"historyLength": 0}, True),
    ({"historyLength": 2**31 - 1}, True),
    ({"historyLength": -1}, False),
    ({"historyLength": "-1"}, False),
    ({"historyLength": "٣"}, False),
    ({"historyLength": 2.5}, False),
    ({"historyLength": True}, False),
    ({"historyLength": 2**31}, False),
    ({"historyLength": "x"}, False),
    ({"historyLength": []}, False),
    ({"returnImmediately": True}, True),
    ({"returnImmediately": "true"}, False),
    ({"returnImmediately": 1}, False),
    ({"acceptedOutputModes": ["text/plain"]}, True),
    ({"acceptedOutputModes": "text/plain"}, False),
    ({"acceptedOutputModes": [1]}, False),
])  # fmt: skip
def test_scalars_have_the_type_of_their_field(value, right):
    assert bool(faults(send() | {"configuration": value})) is not right


@pytest.mark.parametrize("metadata", [5, "x", [], True])
def test_metadata_is_an_object(metadata):
    assert faults(send(metadata=metadata)) == ["message.metadata"]


# --- queries (CASES 26)


def query(kind=ListTasksRequest, /, path=(), **parameters):
    lists = [(name, value if isinstance(value, list) else [value]) for name, value in parameters.items()]
    return codec.query_to_proto(lists, dict(path), kind)


def query_faults(kind=ListTasksRequest, /, **parameters):
    with pytest.raises(errors.InvalidParamsError) as caught:
        query(kind, **parameters)
    return [item["field"] for item in caught.value.data["errors"]]


@pytest.mark.parametrize("value", ["TRUE", "True", "1", "", "yes"])
def test_a_boolean_is_written_in_lower_case(value):
    """CASES 26"""
    assert query_faults(includeArtifacts=value) == ["includeArtifacts"]


@pytest.mark.parametrize(("value", "meant"), [("true", True), ("false", False)])
def test_a_boolean_in_a_query(value, meant):
    """CASES 26"""
    assert query(includeArtifacts=value).include_artifacts is meant


@pytest.mark.parametrize("value", ["1.5", "1.0", "abc", "", " 1", "1_0", "2147483648", "-2147483649", "9" * 5000])
def test_a_number_is_a_32_bit_integer(value):
    """CASES 26"""
    assert query_faults(pageSize=value) == ["pageSize"]
    assert query_faults(GetTaskRequest, id="t", historyLength=value) == ["historyLength"]


@pytest.mark.parametrize("value", ["1", "10", "100"])
def test_a_number_in_a_query(value):
    """CASES 26"""
    assert query(pageSize=value).page_size == int(value)


@pytest.mark.parametrize(("parameters", "allowed"), [
    ({"pageSize": "0"}, "from 1 to 100"),
    ({"pageSize": "-1"}, "from 1 to 100"),
    ({"pageSize": "101"}, "from 1 to 100"),
    ({"historyLength": "-1"}, "from 0 to 2147483647"),
    ({"status": "TASK_STATE_RUNNING"}, "TASK_STATE_WORKING"),
    ({"includeArtifacts": "1"}, "true or false"),
])  # fmt: skip
def test_what_is_allowed_is_said(parameters, allowed):
    """CASES 26"""
    with pytest.raises(errors.InvalidParamsError) as caught:
        query(**parameters)
    (wrong,) = caught.value.data["errors"]
    assert wrong["field"] in parameters
    assert allowed in wrong["message"]


def test_all_that_is_wrong_in_a_query_is_said_at_once():
    wrong = {"pageSize": ["1", "0"], "status": "x", "includeArtifacts": "", "contextId": "a\0", "historyLength": "x"}
    assert query_faults(**wrong) == ["pageSize", *wrong]


def test_a_parameter_is_given_once():
    """CASES 26"""
    assert query_faults(status=["TASK_STATE_WORKING", "TASK_STATE_FAILED"]) == ["status"]


def test_names_in_a_query_are_camel_case_and_others_are_ignored():
    """CASES 26, 15"""
    assert not query(page_size="5", format="api").HasField("page_size")


def test_a_time_in_a_query():
    moment = query(statusTimestampAfter="2026-01-31T12:00:00.500+02:00").status_timestamp_after
    assert moment.ToJsonString() == "2026-01-31T10:00:00.500Z"
    for wrong in ("yesterday", "2026-01-31", "2026-01-31T12:00:00", "", "9999999-01-01T00:00:00Z"):
        assert query_faults(statusTimestampAfter=wrong) == ["statusTimestampAfter"]


def test_nul_in_a_query_is_refused():
    """CASES 18: PostgreSQL could not even look for it."""
    assert query_faults(contextId="a\0b") == ["contextId"]
    assert query_faults(GetTaskRequest, id="a\0b") == ["id"]


TIMES = {
    "2026-01-31T12:00:00Z": "12:00:00",
    "2026-01-31T12:00:00.123456789Z": "12:00:00.123456789",
    "2026-01-31T23:30:00.5+11:30": "12:00:00.500",
    "2026-01-30T20:01:00-15:59": "12:00:00",
}


@pytest.mark.parametrize(("text", "utc"), TIMES.items())
def test_a_time_may_have_any_offset(text, utc):
    """DESIGN: in with any offset, out in UTC."""
    assert query(statusTimestampAfter=text).status_timestamp_after.ToJsonString() == f"2026-01-31T{utc}Z"


NO_TIMES = ["2026-01-31T12:00:00+24:00", "2026-01-31T12:00:00+01:60", "2026-1-31T12:00:00Z", "٢026-01-31T12:00:00Z"]
NO_TIMES += [
    "2026-02-30T12:00:00Z",
    "2026-01-31T12:00:60Z",
    "2026-01-31T24:00:00Z",
    "0000-01-01T00:00:00Z",
    "1738324800",
]
NO_TIMES += ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2026-01-31T12:00:00.1234567890Z", " ", "Z"]


@pytest.mark.parametrize("text", NO_TIMES)
def test_what_is_no_time_is_refused(text):
    assert query_faults(statusTimestampAfter=text) == ["statusTimestampAfter"]
    assert faults({"statusTimestampAfter": text}, ListTasksRequest) == ["statusTimestampAfter"]


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"])
def test_the_first_and_the_last_time(text):
    assert query(statusTimestampAfter=text).status_timestamp_after.ToJsonString() == text


def test_a_plus_that_came_as_a_space_is_explained():
    with pytest.raises(errors.InvalidParamsError, match="%2B"):
        query(statusTimestampAfter="2026-01-31T12:00:00 02:00")


def test_the_path_goes_before_the_query():
    assert query(GetTaskRequest, path={"id": "path"}, id="query").id == "path"


@pytest.mark.parametrize("name", ["taskId", "task_id"])
def test_the_path_goes_before_the_body(name):
    """By either name of the field, and whatever the body has there."""
    for value in ("body", None, 5):
        config = codec.to_proto({name: value, "url": "https://x"}, TaskPushNotificationConfig, {"taskId": "path"})
        assert config.task_id == "path"


def test_a_config_needs_its_url():
    assert faults({"taskId": "t"}, TaskPushNotificationConfig) == ["url"]
