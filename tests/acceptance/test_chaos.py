"""Whatever is killed at whatever moment, nothing is lost, doubled or late: the short form of `scripts/chaos`."""

from random import SystemRandom

from tests.acceptance.chaos import plan, run
from tests.acceptance.test_failures import services

SECONDS = 24


@services
def test_nothing_is_lost_or_doubled_under_faults(tmp_path):
    """CASES 42, 51, 53, 54, 55, 59 to 64, 82; `scripts/chaos --minutes 0.4 --seed …` does the same again."""
    report = run.run(tmp_path, SystemRandom().randrange(10**6), SECONDS)
    print(report)
    assert not report.violations, "\n\n".join([*report.violations[:5], str(report)])


def test_a_seed_does_the_same_again():
    assert plan.make(7, SECONDS) == plan.make(7, SECONDS) != plan.make(8, SECONDS)
