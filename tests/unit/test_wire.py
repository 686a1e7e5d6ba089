"""Protobuf of clients as the data that the checks of JSON look at."""

import pytest
from a2a.types import ListTasksRequest, SendMessageRequest
from google.protobuf.json_format import MessageToDict, ParseDict

from a2a_django.protocol import errors, wire

WHOLE = {
    "tenant": "acme",
    "message": {
        "messageId": "m",
        "contextId": "c",
        "role": "ROLE_USER",
        "parts": [
            {"text": ""},
            {"raw": "//4=", "mediaType": "image/png", "filename": "a.png"},
            {"url": "https://example.com/x", "metadata": {"a": None, "b": [1.5, {"c": False}]}},
            *({"data": value} for value in (None, 5, "x", True, [], {}, [[{"deep": [None]}]])),
        ],
        "extensions": ["urn:x", "urn:y"],
        "metadata": {"k": {"v": "ü"}},
    },
    "configuration": {
        "acceptedOutputModes": ["text/plain"],
        "historyLength": 0,
        "returnImmediately": True,
        "taskPushNotificationConfig": {"url": "https://example.com/hook", "authentication": {"scheme": "Bearer"}},
    },
}


def test_everything_is_seen_as_protojson_shows_it():
    request = ParseDict(WHOLE, SendMessageRequest())
    assert wire._data(request) == WHOLE == MessageToDict(request)
    assert wire.checked(request) == request


def test_times_and_states():
    data = {"status": "TASK_STATE_WORKING", "pageSize": 7, "statusTimestampAfter": "2026-01-31T12:00:00.120Z"}
    request = ParseDict(data, ListTasksRequest())
    assert wire._data(request) == data
    assert wire.checked(request) == request


def test_an_unknown_number_of_a_state_is_refused():
    with pytest.raises(errors.InvalidParamsError, match="status: is not one of TASK_STATE_SUBMITTED"):
        wire.checked(ListTasksRequest(status=99))


def test_what_a_newer_client_sends_besides_is_ignored():
    raw = ParseDict(WHOLE, SendMessageRequest()).SerializeToString() + b"\x9a\x06\x01x"
    assert wire.checked(SendMessageRequest.FromString(raw)) == ParseDict(WHOLE, SendMessageRequest())
