"""Who did what that somebody may ask about later: records of the logger `a2a_django.audit`, for a file of their own."""

import json
import logging
from typing import Any

from a2a_django import accidents

log = logging.getLogger("a2a_django.audit")

LONGEST = 200  # characters of one fact


def note(event: str, *, denied: bool = False, **facts: Any) -> None:
    """One record: its text reads `event name="value" …`, its attributes `event` and `facts` are for JSON formatters.

    docs/security.md lists the events. Facts are ids, names and addresses, never secrets and never what a message says.
    """
    level = logging.WARNING if denied else logging.INFO
    if log.isEnabledFor(level):
        known = {name: accidents.clean(value)[:LONGEST] for name, value in facts.items() if value not in (None, "")}
        text = " ".join(f"{name}={json.dumps(value)}" for name, value in known.items())  # on one line, whatever it is
        log.log(level, "%s %s", event, text, extra={"event": event, "facts": known})
