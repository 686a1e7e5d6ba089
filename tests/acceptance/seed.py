"""Run as a module: migrates the site's database and makes what the scenarios need."""

import django

django.setup()

from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402

from a2a_django.models import Agent  # noqa: E402

AGENTS = [
    {"slug": "script", "executor": "tests.acceptance.agents.Script"},
    {"slug": "sturdy", "executor": "tests.acceptance.agents.Script", "restartable": True},
    {"slug": "silent", "executor": "tests.acceptance.agents.Script", "streaming": False, "push_notifications": False},
    {"slug": "private", "executor": "tests.acceptance.agents.Script", "anonymous_access": "denied"},
]


def main() -> None:
    call_command("migrate", verbosity=0)
    call_command("demo", verbosity=0)
    for fields in AGENTS:
        defaults = {"anonymous_access": "shared", "push_notifications": True, "description": "Obeys a script."}
        Agent.objects.create(**defaults | {"name": fields["slug"].title()} | fields)
    call_command("a2a_keys", "generate", verbosity=0)
    User.objects.create_superuser("root", password="secret")
    User.objects.create_user("ann", password="secret")
    User.objects.create_user("bob", password="secret")


if __name__ == "__main__":
    main()
