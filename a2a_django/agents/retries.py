"""What an executor raises to be run again later: `raise Retry(after=30, reason="The model is busy.")`.

Knows no model, since the package exports it and sites import that before there are any.
"""

import math

DAY = 86_400.0  # seconds
MOST_DOUBLINGS = 100  # a float holds no thousand of them


class Retry(Exception):  # noqa: N818  it is no error, but a wish
    """Has the turn run again `after` so many seconds, for what passes by itself: a busy model, a stale session.

    The pause doubles with each attempt, up to a day; there are A2A["MAX_ATTEMPTS"], each with the agent's whole
    turn_timeout. What was said before stays said, who waits goes on waiting, and the next attempt finds the task as it
    stands in `context.current_task`. When all are spent the task fails with a status message whose metadata is
    `{"retryable": true, "reason": reason}`. So the client reads `reason`: put nothing into it that is not meant for it.
    """

    def __init__(self, after: float = 1, reason: str = "") -> None:
        if not 0 <= after < math.inf:
            raise ValueError(f"after is a number of seconds, 0 or more, not {after!r}")
        super().__init__(reason)
        self.after, self.reason = after, reason

    def pause(self, attempt: int) -> float:
        """The seconds between that attempt and the next."""
        return min(self.after * 2.0 ** min(attempt - 1, MOST_DOUBLINGS), DAY)
