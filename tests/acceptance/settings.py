"""The example site as the acceptance tests serve it: production-like, with scripted agents."""

import json
import os

from example_project.settings import *  # noqa: F403
from example_project.settings import A2A as SITE_A2A

A2A = {
    **SITE_A2A,
    "EXECUTORS": ["tests.acceptance.agents.Script"],
    "AUTHENTICATION_CLASSES": ["rest_framework.authentication.BasicAuthentication"],
    "LOOK_SECONDS": 60,  # longer than a test has patience: one fails where rings get lost
    **json.loads(os.environ.get("ACCEPTANCE_A2A", "{}")),
}
for name, value in json.loads(os.environ.get("ACCEPTANCE_CELERY", "{}")).items():
    globals()[f"CELERY_{name}"] = value
if layer := os.environ.get("ACCEPTANCE_LAYER"):
    CHANNEL_LAYERS = {"default": json.loads(layer)}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
