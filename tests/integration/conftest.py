"""The fixtures of clients in this process."""

from tests.client_fixtures import *  # noqa: F403
