"""The same messageId again: a retry joins the first send, another message under its id is refused (DESIGN 6)."""

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from a2a.types import SendMessageConfiguration, SendMessageRequest
from django.db.models.functions import Now

from a2a_django.models import Caller, Turn
from a2a_django.protocol import codec, errors
from a2a_django.settings import a2a_settings


@dataclass(frozen=True)
class Stamp:
    """How a send is known again: `key` says who sent it where under which id, `digest` what was sent."""

    key: str
    digest: str


def stamp(caller: Caller, request: SendMessageRequest) -> Stamp | None:
    """The Stamp of a request as it came in; None for anonymous callers, who re-use ids, and where joining is off."""
    if not (caller.authenticated and a2a_settings.IDEMPOTENCY_SECONDS):
        return None
    message = request.message
    tenant = caller.tenant.pk if caller.tenant else None
    who = [caller.agent.pk, tenant, caller.owner, message.task_id, message.message_id]
    what = (message, request.metadata, _lasting(request.configuration))
    digests = (hashlib.sha256(part.SerializeToString(deterministic=True)).digest() for part in what)
    return Stamp(_sha256(codec.dumps(who).encode()), _sha256(b"".join(digests)))


def _lasting(configuration: SendMessageConfiguration) -> SendMessageConfiguration:
    """What a send does, without what only shapes its answer: a retry may ask for that in another way."""
    copy = SendMessageConfiguration()
    copy.CopyFrom(configuration)
    copy.ClearField("history_length")
    copy.ClearField("return_immediately")
    return copy


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def first_send(stamp: Stamp, *, ever: bool = False) -> Turn | None:
    """The turn of the same message's first send, if there is one; InvalidParamsError if that said something else.

    One that is older than IDEMPOTENCY_SECONDS gives its id free, unless `ever` asks for it whatever its age.
    """
    turn = Turn.objects.filter(idempotency_key=stamp.key).first()
    if turn is None or (not ever and _freed(turn)):
        return None
    if turn.payload_digest != stamp.digest:
        raise errors.invalid_params(
            ("message.messageId", "was sent already, with another message or configuration; give each message its own")
        )
    return turn


def _freed(turn: Turn) -> bool:
    """Whether the turn was so old that its id may be used again; by the database's clock."""
    lasting = timedelta(seconds=a2a_settings.IDEMPOTENCY_SECONDS)
    old = Turn.objects.filter(pk=turn.pk, created_at__lt=Now() - lasting)
    return bool(old.update(idempotency_key=None))
