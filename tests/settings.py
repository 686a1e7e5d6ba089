"""The example site's settings for tests: every class in tests/executors.py may be an agent's executor."""

import ast
from pathlib import Path

from example_project.settings import *  # noqa: F403
from example_project.settings import A2A as EXAMPLE_A2A
from example_project.settings import INSTALLED_APPS as EXAMPLE_APPS

_BODY = ast.parse(Path(__file__).with_name("executors.py").read_text()).body
_CLASSES = [node.name for node in _BODY if isinstance(node, ast.ClassDef)]

A2A = {
    **EXAMPLE_A2A,
    "EXECUTORS": [f"tests.executors.{name}" for name in _CLASSES],
    "RECOVERY_SECONDS": 3600,  # tests recover themselves
}
INSTALLED_APPS = [*EXAMPLE_APPS, "rest_framework.authtoken", "oauth2_provider"]  # whose authenticators are tried
ALLOWED_HOSTS = ["*"]
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
