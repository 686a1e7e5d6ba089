"""A site with a user model of its own."""

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS as EXAMPLE_APPS

INSTALLED_APPS = [app for app in EXAMPLE_APPS if app != "django.contrib.admin"] + ["tests.custom_user"]
ROOT_URLCONF = "a2a_django.urls"
ALLOWED_HOSTS = ["testserver"]
AUTH_USER_MODEL = "custom_user.Person"
A2A = {"EXECUTORS": ["tests.executors.Script"]}
