"""The example site as it would run in production, with the agent of the benchmark.

Database, channel layer and broker come from the environment, as in example_project.settings.
"""

import os

os.environ |= {"DEBUG": "False", "SECRET_KEY": "only-for-the-benchmark", "ALLOWED_HOSTS": "*", "A2A_BASE_URL": ""}

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS, MIDDLEWARE

INSTALLED_APPS = [*INSTALLED_APPS, "benchmarks.site.apps.BenchConfig"]

# The figures are those of a site that startproject made: they must hold with all seven.
assert [name.rsplit(".", 1)[1] for name in MIDDLEWARE] == [
    "SecurityMiddleware",
    "SessionMiddleware",
    "CommonMiddleware",
    "CsrfViewMiddleware",
    "AuthenticationMiddleware",
    "MessageMiddleware",
    "XFrameOptionsMiddleware",
]
