"""What must hold of every task, message and reader when all is over."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from tests.acceptance import folding
from tests.acceptance.chaos import executions
from tests.acceptance.chaos.doors import Item
from tests.acceptance.chaos.evidence import Evidence, Violation
from tests.acceptance.chaos.faults import Hit
from tests.acceptance.chaos.plan import AUTH, INPUT, STREAM_BYTES, STREAM_SECONDS
from tests.acceptance.chaos.records import Record, Turn
from tests.acceptance.chaos.talks import CANCELED, TERMINAL, Cancel, Conversation, Reading, Sending

ENDED = ("done", "failed")
STEPS = {("queued", "running"), ("running", "queued"), ("running", "done"), ("running", "failed"), ("queued", "failed")}


def check(evidence: Evidence) -> Iterator[Violation]:
    """Everything that does not hold."""
    for record in evidence.records.values():
        found = [*check_end(record), *check_log(record), *check_turns(record), *executions.check(record, evidence)]
        yield from (Violation(what, record.task) for what in found)
    turns = Counter(turn.message for record in evidence.records.values() for turn in record.turns)
    for conversation in evidence.conversations:
        for what in check_conversation(conversation, evidence.records, turns, evidence.hits):
            yield Violation(what, conversation.task, conversation)
    for cancel in (one for one in evidence.cancels if one.task in evidence.records):
        yield from (Violation(what, cancel.task) for what in check_cancel(cancel, evidence.records[cancel.task]))


# --- tasks


def check_end(record: Record) -> Iterator[str]:
    """One terminal or interrupted state, and nothing that goes on."""
    if record.lease:
        yield f"the lease {record.lease} was left behind"
    if record.state not in TERMINAL and not (record.visible and record.state == INPUT):
        yield f"the task stands at {record.state}"
    changes = [change for change in record.changes if change.what == "task state"]
    yield from (f"{change.before} became {change.after}" for change in changes if change.before in TERMINAL)


def check_log(record: Record) -> Iterator[str]:
    """1..n, nothing after a terminal state, and the row says what the log says."""
    if (sequences := [event.sequence for event in record.events]) != list(range(1, record.last_sequence + 1)):
        yield f"the log has {sequences}, the row says {record.last_sequence}"
    if any(event.state in TERMINAL for event in record.events[:-1]):
        yield f"the log goes on after a terminal state: {[event.state or event.kind for event in record.events]}"
    states = [event.state for event in record.events if event.state]
    if record.visible and states[-1:] != [record.state]:
        yield f"the row is {record.state}, the log ends with {states[-1:]}"
    if not record.visible and [event.kind for event in record.events] not in ([], ["message"]):
        yield "a hidden task has more than a Message"


def check_turns(record: Record) -> Iterator[str]:
    """Each turn has ended, once."""
    for turn in record.turns:
        if turn.state not in ENDED:
            yield f"turn {turn.id} is {turn.state}"
        if wrong := [step for step in record.states(turn) if step not in STEPS]:
            yield f"turn {turn.id} went from state to state as it must not: {wrong}"


# --- clients


def check_conversation(
    conversation: Conversation, records: dict[str, Record], turns: Counter[str], hits: Sequence[Hit]
) -> Iterator[str]:
    """Each message was accepted once or refused, and each reader has read what there was."""
    yield from conversation.wrong
    for sending in conversation.sendings:
        yield from check_sending(sending, _record_of(sending, records), turns[sending.message])
    record = records.get(conversation.task)
    if record is None and conversation.task:
        yield f"task {conversation.task} has been told of and is not there"
    for reading in conversation.readings if record else ():
        yield from check_reading(reading, record, {record.last_sequence})
    for reading in (*conversation.readings, *(sending.reading for sending in conversation.sendings)):
        yield from check_cuts(reading, hits)


def _record_of(sending: Sending, records: dict[str, Record]) -> Record | None:
    of_message = (one for one in records.values() if any(turn.message == sending.message for turn in one.turns))
    return next(of_message, None)


def check_sending(sending: Sending, record: Record | None, turns: int) -> Iterator[str]:
    """One turn for a message that was accepted, and answers that are in the log."""
    if sending.refused:
        if not sending.follow_up or sending.refused != "UNSUPPORTED_OPERATION" or turns:
            yield f"message {sending.message} was refused with {sending.refused}, and has {turns} turns"
        return
    if turns != 1 or record is None:
        yield f"message {sending.message} has {turns} turns"
        return
    turn = next(turn for turn in record.turns if turn.message == sending.message)
    if sending.failed and not (turn.answer and not record.visible):
        yield f"message {sending.message} was answered with an error"
    yield from check_answers(sending, record, turn)
    yield from check_reading(sending.reading, record, _ends_of(turn, record))


def check_answers(sending: Sending, record: Record, turn: Turn) -> Iterator[str]:
    """Each Task has a status of the log, none older than the one before; the last one is an end."""
    bodies = [_data(event.body) for event in record.events]
    if any("status" not in answer and answer not in bodies for answer in sending.answers):
        yield f"message {sending.message} was answered by a Message that is not in the log"
    statuses = [_moment(data["status"]) for data in bodies if "status" in data]
    told = [_moment(answer["status"]) for answer in sending.answers if "status" in answer]
    if unknown := [moment for moment in told if moment not in statuses]:
        yield f"message {sending.message} was answered by {unknown}, the log has {statuses}"
    elif told != sorted(told, key=statuses.index):
        yield f"message {sending.message} was answered by a Task older than the one before: {told}"
    elif told and told[-1][0] not in {*TERMINAL, INPUT, AUTH}:
        yield f"message {sending.message} was answered by {told[-1]}, turn {turn.id} had not ended"


def _data(body: str) -> dict[str, Any]:
    ((_, data),) = json.loads(body).items()
    return data


def _moment(status: dict[str, Any]) -> tuple[str, str]:
    return status["state"], status["timestamp"]


def _ends_of(turn: Turn, record: Record) -> set[int]:
    """Where a turn's stream may end: at its last event, and at a question that a run has asked that was lost then."""
    terminal = record.last_sequence if record.state in TERMINAL else 0
    end = turn.end_sequence if turn.end_sequence is not None else terminal
    asked = [event.sequence for event in record.events if event.state == INPUT and event.sequence < end]
    return {end, *(asked if record.claims(turn) > 1 else ())}


def check_cuts(reading: Reading, hits: Sequence[Hit]) -> Iterator[str]:
    """A stream is closed before its end only by a server that stops, or when it has lasted long or sent much."""
    stops = [hit for hit in hits if hit.fault == "stop_web"]
    for cut in reading.cuts:
        stopped = any(hit.began <= cut.at <= hit.ended + 1 for hit in stops)
        # The server also counts what an event's data stands in.
        if not (stopped or cut.seconds > 0.9 * STREAM_SECONDS or cut.size > STREAM_BYTES / 2):
            yield f"{reading.who} saw the stream end early: {cut}"


def check_reading(reading: Reading, record: Record, ends: set[int]) -> Iterator[str]:
    """k+1..n in order, byte for byte, up to the end if the stream has ended; k is 0 or where it began."""
    first = reading.opening.sequence if reading.opening else 0
    sequences = [item.sequence for item in reading.items]
    if sequences != list(range(first + 1, first + 1 + len(sequences))):
        yield f"{reading.who} saw {sequences} after {first}"
        return
    bodies = [event.body for event in record.events]
    if [item.text for item in reading.items] != bodies[first : first + len(sequences)]:
        yield f"{reading.who} saw other events than the log has"
    if reading.closed and reading.last is not None and reading.last not in {max(end, first) for end in ends}:
        yield f"{reading.who} saw the stream end after {reading.last}, but {ends} is the end"
    if reading.opening and not _is_of(reading.opening, bodies[:first]):
        yield f"{reading.who} began with a Task that is not what the log says at {first}: {reading.opening.text}"


def _is_of(opening: Item, bodies: list[str]) -> bool:
    """Whether the Task that opened a stream is what the log says."""
    status, artifacts = folding.fold(bodies)
    shown = json.loads(opening.text)["task"]
    return _moment(shown["status"]) == _moment(status or {}) and shown.get("artifacts", []) == artifacts


def check_cancel(cancel: Cancel, record: Record) -> Iterator[str]:
    """The answer to a cancel agrees with the row."""
    if cancel.answer not in (CANCELED, "TASK_NOT_CANCELABLE") or (
        record.state != CANCELED if cancel.answer == CANCELED else record.state not in TERMINAL
    ):
        yield f"a cancel was answered with {cancel.answer}, the task is {record.state}"
