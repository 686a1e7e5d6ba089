"""What an executor may ask for (`Retry`)."""

import pytest

from a2a_django import Retry


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf")])
def test_after_is_a_number_of_seconds(after):
    with pytest.raises(ValueError, match="0 or more"):
        Retry(after=after)


def test_the_pause_doubles_up_to_a_day():
    assert [Retry(after=3).pause(attempt) for attempt in (1, 2, 3)] == [3, 6, 12]
    assert Retry(after=3).pause(30_000) == Retry(after=10**6).pause(1) == 24 * 60 * 60
    assert Retry(after=0).pause(9) == 0
