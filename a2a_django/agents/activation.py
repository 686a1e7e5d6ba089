"""Which extensions take part in a turn: what its executor activates, and what who answers for it tells (A2A 4.6)."""

import logging
from collections.abc import Set

from a2a_django.agents.claims import Claim
from a2a_django.batches import Activated
from a2a_django.models import Caller, Turn
from a2a_django.models.turn import ENDED, TurnState
from a2a_django.protocol import versions
from a2a_django.statements import Select

log = logging.getLogger(__name__)


class Activation:
    """What the executor of a turn puts into its `call_context.state`, as it comes."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._seen = self._active = versions.activated(claim.call_context.state)

    def news(self) -> Activated | None:
        """All that take part by now, if it is more than at the last call."""
        new = versions.activated(self._claim.call_context.state) - self._seen
        if not new:
            return None
        self._seen |= new
        if not (active := allowed(new, self._claim.available, f"Executor “{self._claim.executor}”")):
            return None
        self._active |= active
        return Activated(self._claim.turn_id, sorted(self._active))


def allowed(activated: Set[str], available: frozenset[str], who: str) -> frozenset[str]:
    """Those of `activated` that may take part; the log names the others, and `who` activated them."""
    for uri in sorted(activated - available):
        log.warning(
            "%s activated extension %r, which is ignored: it must be one of the agent's, and asked for by the call "
            "(see call_context.requested_extensions).",
            who,
            uri,
        )
    return available & activated


def learn(caller: Caller, turn_id: int) -> bool:
    """Has `caller.activated` name what the turn has activated; whether the turn has said anything by now."""
    activated, state, start, last = _TURN.row(turn_id)
    caller.activated |= frozenset(activated)
    return state in ENDED or (state == TurnState.RUNNING and last > start)


_TURN = Select(
    Turn,
    lambda turn_id: (
        Turn.objects.filter(pk=turn_id)
        .order_by()
        .values_list("activated", "state", "start_sequence", "task__last_sequence")
    ),
)
