"""The table of errors, and how the bindings show them (A2A 3.3.2, 5.4, 9.5, 11.6)."""

import json

import pytest
from a2a.utils import errors as sdk

from a2a_django import accidents
from a2a_django.protocol import errors

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"
RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "5s"}
GRPC_STATUSES = {
    *("NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "INTERNAL", "UNAUTHENTICATED", "PERMISSION_DENIED"),
    *("UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "UNAVAILABLE"),
}


@pytest.mark.parametrize("kind", [kind for kind in sdk.A2AError.__subclasses__() if kind.__module__ == sdk.__name__])
def test_the_table_has_every_error_of_the_sdk(kind):
    assert kind in errors.TABLE


@pytest.mark.parametrize("kind", sdk.JSON_RPC_ERROR_CODE_MAP)
def test_codes_are_the_sdk_s(kind):
    assert errors.TABLE[kind].jsonrpc == sdk.JSON_RPC_ERROR_CODE_MAP[kind]


@pytest.mark.parametrize(("kind", "mapping"), sdk.A2A_ERROR_MAPPING.items())
def test_http_and_grpc_are_the_sdk_s(kind, mapping):
    row = errors.TABLE[kind]
    assert (row.http, row.grpc) == (mapping.http_code, mapping.grpc_status)
    if kind in sdk.A2A_ERROR_REASONS:
        assert row.reason == sdk.A2A_ERROR_REASONS[kind]


@pytest.mark.parametrize(("kind", "row"), errors.TABLE.items())
def test_each_error_has_a_shape_on_rest_and_on_json_rpc(kind, row):
    """CASES 6"""
    error = kind("What is wrong", {"taskId": "t", "n": 1})
    info = {"@type": ERROR_INFO, "reason": row.reason, "domain": "a2a-protocol.org"}
    info["metadata"] = {"taskId": "t", "n": "1"}
    details = [info, RETRY] if kind is errors.UnavailableError else [info]
    assert errors.rest_body(error) == {
        "error": {"code": row.http, "status": row.grpc, "message": "What is wrong", "details": details}
    }
    shown = errors.jsonrpc_error(error)
    if row.title:  # the standard message takes the place of ours
        info["metadata"]["detail"] = "What is wrong"
    assert (shown["code"], shown["data"]) == (row.jsonrpc, details)
    assert shown["message"] == (row.title or "What is wrong")
    assert 400 <= row.http < 600
    assert row.grpc in GRPC_STATUSES
    assert row.reason == row.reason.upper()
    assert kind().message != errors.A2AError.message


def test_reasons_tell_errors_apart():
    reasons = [row.reason for row in errors.TABLE.values()]
    assert len(set(reasons)) == len(reasons)


def test_fields_at_fault_are_a_bad_request():
    """CASES 6, 24"""
    error = errors.invalid_params(("message.role", "is wrong"), ("message.parts", "is required"))
    assert error.message == "message.role: is wrong; message.parts: is required"
    info, bad_request = errors.rest_body(error)["error"]["details"]
    assert info == {"@type": ERROR_INFO, "reason": "INVALID_PARAMS", "domain": "a2a-protocol.org", "metadata": {}}
    assert bad_request == {
        "@type": BAD_REQUEST,
        "fieldViolations": [
            {"field": "message.role", "description": "is wrong"},
            {"field": "message.parts", "description": "is required"},
        ],
    }
    assert errors.jsonrpc_error(error)["data"] == [info, bad_request]


class OwnError(errors.UnsupportedOperationError):
    """What the author of an executor may derive."""

    message = "Not on Sundays"


def test_a_derived_error_counts_as_what_it_is_derived_from():
    assert errors.rendering(OwnError()).reason == "UNSUPPORTED_OPERATION"
    assert errors.rest_body(OwnError())["error"]["message"] == "Not on Sundays"
    assert errors.rendering(errors.A2AError("?")).reason == "INTERNAL_ERROR"


@pytest.mark.parametrize("kind", errors.TABLE)
def test_an_error_is_stored_and_raised_again(kind):
    error = kind("What is wrong", {"taskId": "t", "errors": [{"field": "a", "message": "b"}]})
    restored = errors.restore(json.loads(json.dumps(errors.store(error))))
    assert type(restored) is kind
    assert errors.rest_body(restored) == errors.rest_body(error)


def test_an_error_without_data_is_stored():
    restored = errors.restore(errors.store(OwnError()))
    assert type(restored) is errors.UnsupportedOperationError
    assert (restored.message, restored.data) == ("Not on Sundays", None)


def test_an_error_of_a_later_version_is_internal():
    restored = errors.restore({"type": "NewError", "message": "x", "data": None})
    assert type(restored) is errors.InternalError


def test_whatever_an_executor_puts_into_its_error_can_be_stored():
    error = errors.InvalidParamsError("a\0b\ud800", {1: float("nan"), "x\0": [object, {"y": b"\xff"}], "z": (None, 2)})
    stored = errors.store(error)
    text = json.dumps(stored, allow_nan=False, ensure_ascii=False)
    assert text.encode()
    assert "\\u0000" not in text
    assert stored["message"] == "ab?"
    assert json.dumps(errors.rest_body(errors.restore(stored)))


# --- accidents


def accident(text="password=hunter2"):
    try:
        raise ConnectionError(text)
    except ConnectionError as error:
        return error


def test_the_log_learns_where_but_not_what():
    """CASES 49"""
    place = accidents.place(accident())
    assert "ConnectionError" in place
    assert "test_errors.py" in place
    assert "hunter2" not in place


def test_staff_learn_everything_that_a_column_can_hold():
    report = accidents.report(accident("password=hunter2 \0 \ud800"))
    assert "test_errors.py" in report
    assert "password=hunter2  ?" in report
    assert len(accidents.report(accident("x" * 100_000))) == accidents.MAX_CHARACTERS
