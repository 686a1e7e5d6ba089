"""Letters: a ring may bring the events that it rings for, which then needn't be looked for (DESIGN 4)."""

from uuid import uuid4

import pytest

from a2a_django import doorbell
from a2a_django.doorbell import LETTER, LETTERS, Ear, Letter
from a2a_django.operations import Stream

TURN, OTHER = 7, 8


@pytest.fixture
def stream():
    """A stream of a turn that has read three events."""
    key, ear = str(uuid4()), Ear()
    ear.listen(key)
    return Stream(key, ear, after=3, turn_id=TURN)


def letter(*sequences, turn=TURN):
    return Letter(turn, [(sequence, f"event {sequence}") for sequence in sequences])


def bring(stream, *letters):
    for one in letters:
        doorbell.bring({stream.task_id: one})


def heard(stream):
    """The numbers of the events that the stream takes from letters; None: it looks."""
    found = stream._heard()
    return None if found is None else [sequence for sequence, _ in found]


def test_what_follows_is_taken(stream):
    bring(stream, letter(4), letter(5, 6))
    assert stream._heard() == [(4, "event 4"), (5, "event 5"), (6, "event 6")]
    bring(stream, letter(7))
    assert heard(stream) == [7]
    assert heard(stream) == []


@pytest.mark.parametrize("brought", [[letter(2, 3)], [letter(3)], []])
def test_what_it_has_is_skipped(stream, brought):
    bring(stream, *brought)
    assert heard(stream) == []
    bring(stream, letter(3, 4))
    assert heard(stream) == [4]


@pytest.mark.parametrize(
    "brought",
    [
        [None],
        [None, letter(4)],
        [letter(4), None],
        [letter(5)],
        [letter(4), letter(6)],
        [letter(4, turn=OTHER)],
        [letter(4), letter(5, turn=OTHER)],
        [letter(number) for number in range(4, 4 + LETTERS + 1)],
    ],
)
def test_everything_else_is_looked_for(stream, brought):
    """A ring that brings nothing, one that was lost, another turn, a reader that is too slow."""
    bring(stream, *brought)
    assert heard(stream) is None
    assert stream.after == 3
    bring(stream, letter(4))
    assert heard(stream) == [4]


def test_a_subscriber_takes_every_turn_s(stream):
    stream.turn_id = None
    bring(stream, letter(4), letter(5, turn=OTHER))
    assert heard(stream) == [4, 5]


def test_a_stream_that_is_behind_looks(stream):
    stream.full = True
    bring(stream, letter(4))
    assert heard(stream) is None


def test_letters_on_their_way_become_one():
    assert letter(4).then(letter(5, 6)) == letter(4, 5, 6)
    assert letter(4).then(letter(5, turn=OTHER)) is None
    assert letter(4).then(None) is None
    half = Letter(TURN, [(4, "x" * (LETTER // 2 + 1))])
    assert half.fits
    assert half.then(half) is None
