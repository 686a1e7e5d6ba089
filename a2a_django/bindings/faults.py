"""What an exception is to a client, and what the log learns of it (A2A 3.3.2)."""

import logging

from django.core.exceptions import BadRequest, PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, UnreadablePostError
from django.http.multipartparser import MultiPartParserError
from rest_framework import exceptions

from a2a_django import accidents, database
from a2a_django.models import Event, Task, Turn
from a2a_django.protocol import errors

log = logging.getLogger(__name__)

UNREADABLE = SuspiciousOperation | BadRequest | MultiPartParserError | UnreadablePostError


def as_a2a(error: Exception, what: str) -> errors.A2AError:
    """`error` as one that the client may see; of an unexpected one it sees nothing, and the log where `what` failed."""
    if isinstance(error, errors.A2AError):
        return error
    if isinstance(error, exceptions.APIException):
        return _of_drf(error)
    if isinstance(error, Task.DoesNotExist | Turn.DoesNotExist | Event.DoesNotExist):  # purged meanwhile
        return errors.TaskNotFoundError()
    if isinstance(error, Http404):
        return errors.NotFoundError()
    if isinstance(error, PermissionDenied):
        return errors.PermissionDeniedError()
    if isinstance(error, RequestDataTooBig):  # Django's own limit, where an authenticator reads the body
        return errors.PayloadTooLargeError()
    if isinstance(error, UNREADABLE):
        return errors.InvalidRequestError("The request could not be read")
    log.error("%s failed: %s", what, accidents.place(error))
    return errors.UnavailableError() if isinstance(error, database.AWAY) else errors.InternalError()


def _of_drf(error: exceptions.APIException) -> errors.A2AError:
    anonymous = isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed)
    text = str(error.detail) if isinstance(error.detail, str) else None  # else it is made for DRF's own renderers
    if isinstance(error, exceptions.Throttled):
        return errors.TooManyRequestsError(text, wait=getattr(error, "wait", None))
    return errors.of_status(401 if anonymous else error.status_code, text)
