"""The acceptance tests' site, with the executors of the chaos run: its `agents.py` is found as any app's."""

from tests.acceptance.chaos.plan import REST
from tests.acceptance.settings import *  # noqa: F403
from tests.acceptance.settings import DATABASES, INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.acceptance.chaos"]
DATABASES["default"]["OPTIONS"]["options"] = f"-c idle_in_transaction_session_timeout={REST}"
