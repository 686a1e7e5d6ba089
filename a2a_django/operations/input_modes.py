"""Which media types an agent takes: parts of any other kind are refused before anything is stored (A2A 3.1.1)."""

import mimetypes
import re
from collections.abc import Iterable
from itertools import chain

from a2a.types import Message, Part

from a2a_django.agents import card
from a2a_django.models import Caller
from a2a_django.protocol import errors

UNKNOWN = "application/octet-stream"
_BY_NAME = mimetypes.MimeTypes()  # the same on every machine, whatever its mime.types says
OF_KIND = {"text": "text/plain", "data": "application/json"}


def check(caller: Caller, message: Message) -> None:
    """ContentTypeNotSupportedError for a part that neither the agent nor one of its skills takes.

    A message names no skill, so what any skill takes may come in; an agent that names no types takes all.
    """
    refused = _refused(message.parts, caller.agent.default_input_modes)
    if not refused:
        return
    taken = [*caller.agent.default_input_modes, *_modes_of_skills(caller)]
    refused = _refused(message.parts, taken) if taken else []
    if refused:
        raise _error(refused, taken)


def _refused(parts: Iterable[Part], modes: Iterable[str]) -> list[tuple[int, str]]:
    """(index, media type) of the parts that no mode matches."""
    taken = {_bare(mode) for mode in modes}
    types = ((index, media_type(part)) for index, part in enumerate(parts))
    return [(index, found) for index, found in types if taken.isdisjoint({found, _any_of(found), "*/*"})]


def media_type(part: Part) -> str:
    """What `part` is: as it says, without parameters and in lower case, or else what its kind is.

    Bytes and URLs may be anything; where no type is given, the name of the file may tell, or they are unknown.
    """
    if part.media_type:
        return _bare(part.media_type)
    return OF_KIND.get(part.WhichOneof("content") or "") or _of_file(part)


def _of_file(part: Part) -> str:
    found, encoding = _BY_NAME.guess_type(part.filename or re.split("[?#]", part.url)[0])
    return found if found and not encoding else UNKNOWN


def _bare(mode: str) -> str:
    return mode.partition(";")[0].strip().lower()


def _any_of(media_type: str) -> str:
    return f"{media_type.partition('/')[0]}/*"


def _modes_of_skills(caller: Caller) -> Iterable[str]:
    """What the skills take that the caller's card lists; no refusal tells of another."""
    return chain.from_iterable(skill.get("inputModes", ()) for skill in card.skills(caller.agent, caller.user))


def _error(refused: list[tuple[int, str]], taken: Iterable[str]) -> errors.ContentTypeNotSupportedError:
    takes = ", ".join(sorted(set(taken)))
    found = ", ".join(sorted({media_type[:100] for _, media_type in refused}))
    fields = [
        {"field": f"message.parts[{index}].mediaType", "message": f"{media_type[:100]} is not one of {takes}"}
        for index, media_type in refused
    ]
    text = f"The agent does not take {found}; it takes {takes}. A part without mediaType counts as what its kind is"
    return errors.ContentTypeNotSupportedError(text, {"supportedMediaTypes": takes, "errors": fields})
