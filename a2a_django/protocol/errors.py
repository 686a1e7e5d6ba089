"""The A2A errors and how each binding shows them: one table, one place (A2A 3.3.2, 5.4, 9.5, 11.6)."""

import math
from typing import Any, NamedTuple

from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    ExtensionSupportRequiredError,
    InternalError,
    InvalidAgentResponseError,
    InvalidParamsError,
    InvalidRequestError,
    JSONParseError,
    MethodNotFoundError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
    VersionNotSupportedError,
)

from a2a_django import accidents

__all__ = [
    "A2AError",
    "ContentTypeNotSupportedError",
    "ExtendedAgentCardNotConfiguredError",
    "ExtensionSupportRequiredError",
    "InternalError",
    "InvalidAgentResponseError",
    "InvalidParamsError",
    "InvalidRequestError",
    "JSONParseError",
    "MethodNotAllowedError",
    "MethodNotFoundError",
    "NotFoundError",
    "PayloadTooLargeError",
    "PermissionDeniedError",
    "PushNotificationNotSupportedError",
    "Rendering",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TooManyRequestsError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedOperationError",
    "VersionNotSupportedError",
    "invalid_params",
    "jsonrpc_error",
    "of_status",
    "rendering",
    "rest_body",
    "restore",
    "retry_after",
    "store",
]

DOMAIN = "a2a-protocol.org"
MAX_VIOLATIONS = 50  # a hostile body has a hundred thousand
IN_MESSAGE = 5  # of them are in the message, too
MAX_FIELD = 200
RETRY_SECONDS = 5  # after which a client may ask a server again that could not take its call


class UnauthenticatedError(A2AError):
    """No credentials, or wrong ones."""

    message = "Authentication is required"


class PermissionDeniedError(A2AError):
    """Known, but not allowed."""

    message = "Permission denied"


class NotFoundError(A2AError):
    """No such path or agent."""

    message = "Not found"


class MethodNotAllowedError(A2AError):
    """The path exists, the HTTP method doesn't."""

    message = "Method not allowed"


class PayloadTooLargeError(A2AError):
    """The request body is over A2A["MAX_BODY_BYTES"], or over what its tenant may send."""

    message = "The request body is too large"


class TooManyRequestsError(A2AError):
    """A throttle or quota is used up; the client is told to come again after `wait` seconds, where these are known."""

    message = "Too many requests"

    def __init__(
        self, message: str | None = None, data: dict[str, Any] | None = None, wait: float | None = None
    ) -> None:
        super().__init__(message, data)
        self.wait = wait


class UnavailableError(A2AError):
    """The server can't take the call now; the client is told to come again after RETRY_SECONDS."""

    message = "The service is unavailable, try again later"


class Rendering(NamedTuple):
    """One row of the table: how the bindings show an error."""

    reason: str
    http: int
    jsonrpc: int
    grpc: str
    title: str = ""  # section 9.5's standard message, which goes before ours on JSON-RPC


TABLE: dict[type[A2AError], Rendering] = {
    TaskNotFoundError: Rendering("TASK_NOT_FOUND", 404, -32001, "NOT_FOUND"),
    TaskNotCancelableError: Rendering("TASK_NOT_CANCELABLE", 400, -32002, "FAILED_PRECONDITION"),
    PushNotificationNotSupportedError: Rendering("PUSH_NOTIFICATION_NOT_SUPPORTED", 400, -32003, "FAILED_PRECONDITION"),
    UnsupportedOperationError: Rendering("UNSUPPORTED_OPERATION", 400, -32004, "FAILED_PRECONDITION"),
    ContentTypeNotSupportedError: Rendering("CONTENT_TYPE_NOT_SUPPORTED", 400, -32005, "INVALID_ARGUMENT"),
    InvalidAgentResponseError: Rendering("INVALID_AGENT_RESPONSE", 500, -32006, "INTERNAL"),
    ExtendedAgentCardNotConfiguredError: Rendering(
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 400, -32007, "FAILED_PRECONDITION"
    ),
    ExtensionSupportRequiredError: Rendering("EXTENSION_SUPPORT_REQUIRED", 400, -32008, "FAILED_PRECONDITION"),
    VersionNotSupportedError: Rendering("VERSION_NOT_SUPPORTED", 400, -32009, "FAILED_PRECONDITION"),
    JSONParseError: Rendering("INVALID_JSON", 400, -32700, "INVALID_ARGUMENT", "Invalid JSON payload"),
    InvalidRequestError: Rendering(
        "INVALID_REQUEST", 400, -32600, "INVALID_ARGUMENT", "Request payload validation error"
    ),
    MethodNotFoundError: Rendering("METHOD_NOT_FOUND", 404, -32601, "NOT_FOUND", "Method not found"),
    InvalidParamsError: Rendering("INVALID_PARAMS", 400, -32602, "INVALID_ARGUMENT", "Invalid parameters"),
    InternalError: Rendering("INTERNAL_ERROR", 500, -32603, "INTERNAL", "Internal error"),
    UnauthenticatedError: Rendering("UNAUTHENTICATED", 401, -32000, "UNAUTHENTICATED"),
    PermissionDeniedError: Rendering("PERMISSION_DENIED", 403, -32000, "PERMISSION_DENIED"),
    NotFoundError: Rendering("NOT_FOUND", 404, -32000, "NOT_FOUND"),
    MethodNotAllowedError: Rendering("METHOD_NOT_ALLOWED", 405, -32600, "UNIMPLEMENTED"),
    PayloadTooLargeError: Rendering("PAYLOAD_TOO_LARGE", 413, -32600, "RESOURCE_EXHAUSTED"),
    TooManyRequestsError: Rendering("TOO_MANY_REQUESTS", 429, -32000, "RESOURCE_EXHAUSTED"),
    UnavailableError: Rendering("UNAVAILABLE", 503, -32603, "UNAVAILABLE"),
}
_BY_NAME = {cls.__name__: cls for cls in TABLE}
_BY_STATUS: dict[int, type[A2AError]] = {
    400: InvalidRequestError,
    401: UnauthenticatedError,
    403: PermissionDeniedError,
    404: NotFoundError,
    405: MethodNotAllowedError,
    413: PayloadTooLargeError,
    429: TooManyRequestsError,
    503: UnavailableError,
}


def of_status(status: int, message: str | None = None) -> A2AError:
    """The error for an HTTP `status` that others than we have chosen."""
    fallback = InvalidRequestError if 400 <= status < 500 else InternalError
    return _BY_STATUS.get(status, fallback)(message)


def kind(error: A2AError) -> type[A2AError]:
    """The table's class for `error`; an executor's own subclass counts as what it is derived from."""
    return next((cls for cls in type(error).__mro__ if cls in TABLE), InternalError)


def rendering(error: A2AError) -> Rendering:
    """How the bindings show `error`."""
    return TABLE[kind(error)]


def invalid_params(*violations: tuple[str, str]) -> InvalidParamsError:
    """An InvalidParamsError that names each (field, what is wrong and what is right), as far as anybody would read."""
    named = [(_shown(field), accidents.clean(description)) for field, description in violations[:MAX_VIOLATIONS]]
    text = "; ".join(f"{field}: {description}" for field, description in named[:IN_MESSAGE])
    more = "; and more" if len(violations) > IN_MESSAGE else ""
    return InvalidParamsError(
        text + more, {"errors": [{"field": field, "message": description} for field, description in named]}
    )


def _shown(field: str) -> str:
    """`field`, in which a client's own words may stand."""
    return accidents.clean(field if len(field) <= MAX_FIELD else f"{field[: MAX_FIELD - 1]}…")


def retry_after(error: A2AError) -> int | None:
    """Seconds after which the client may ask again; None if that is no help, or nobody knows."""
    if isinstance(error, UnavailableError):
        return RETRY_SECONDS
    wait = error.wait if isinstance(error, TooManyRequestsError) else None
    return None if wait is None else max(math.ceil(wait), 1)


def details(error: A2AError) -> list[dict[str, Any]]:
    """The typed details of `error`: an ErrorInfo, and a BadRequest or RetryInfo that says what the client may do."""
    data = dict(error.data or {})
    violations = [
        {"field": item["field"], "description": item["message"]}
        for item in data.pop("errors", ())
        if isinstance(item, dict) and {"field", "message"} <= item.keys()
    ]
    info: dict[str, Any] = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": rendering(error).reason,
        "domain": DOMAIN,
        "metadata": {str(key): _text(value) for key, value in data.items()},
    }
    if (seconds := retry_after(error)) is not None:
        return [info, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{seconds}s"}]
    if not violations:
        return [info]
    return [info, {"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": violations}]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def rest_body(error: A2AError) -> dict[str, Any]:
    """`error` as google.rpc.Status JSON (A2A 11.6)."""
    row = rendering(error)
    return {"error": {"code": row.http, "status": row.grpc, "message": error.message, "details": details(error)}}


def jsonrpc_error(error: A2AError) -> dict[str, Any]:
    """`error` as the error object of a JSON-RPC response (A2A 9.5)."""
    row, data = rendering(error), details(error)
    if row.title and len(data) == 1 and error.message != kind(error).message:
        data[0]["metadata"]["detail"] = error.message
    return {"code": row.jsonrpc, "message": row.title or error.message, "data": data}


def store(error: A2AError) -> dict[str, Any]:
    """`error` as JSON data for a Turn, so that another process can raise it again."""
    return {"type": kind(error).__name__, "message": accidents.clean(error.message), "data": _plain(error.data)}


def _plain(data: Any) -> Any:
    """`data` as JSON that any database can hold: an executor may have put anything into its error."""
    if isinstance(data, dict):
        return {accidents.clean(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return data if data is None or isinstance(data, bool) else accidents.clean(data)


def restore(stored: dict[str, Any]) -> A2AError:
    """The error that `store` wrote."""
    return _BY_NAME.get(stored["type"], InternalError)(stored["message"], stored["data"])
