"""The acceptance tests' site, with the executors of the chaos run: its `agents.py` is found as any app's."""

from tests.acceptance.settings import *  # noqa: F403
from tests.acceptance.settings import INSTALLED_APPS as THEIRS

INSTALLED_APPS = [*THEIRS, "tests.acceptance.chaos"]
