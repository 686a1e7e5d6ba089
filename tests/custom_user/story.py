"""Run as a module: what a site with another user model does; fails where anything of it does."""

import json
from io import StringIO

import django

django.setup()

from django.contrib.auth.models import Group  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.test import Client  # noqa: E402

from a2a_django.models import Agent, Task, Tenant  # noqa: E402
from tests.custom_user.models import Person  # noqa: E402


def token(person, *arguments):
    """The text of a new token, made as on the command line."""
    out = StringIO()
    call_command("a2a_token", "create", "--user", person.email, "--name", "test", *arguments, stdout=out)
    return out.getvalue().strip()


def send(text, within=""):
    """Status and task of a send with that token."""
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "task completed"}]}
    headers = {"A2A-Version": "1.0", "Authorization": f"Bearer {text}"}
    body = json.dumps({"message": message})
    response = Client(headers=headers).post(f"/a2a/desk{within}/message:send", body, content_type="application/json")
    return response.status_code, response.json().get("task")


def main():
    call_command("migrate", verbosity=0, run_syncdb=True)
    ann = Person.objects.create(email="ann@example.com")
    agent = Agent.objects.create(slug="desk", name="Desk", executor="tests.executors.Script")
    status, task = send(token(ann))
    assert (status, task["status"]["state"]) == (200, "TASK_STATE_COMPLETED")
    stored = Task.objects.get()
    assert (stored.user, stored.owner) == (ann, str(ann.pk))
    assert send(token(ann, "--scope", "read"))[0] == 403
    acme = Tenant.objects.create(slug="acme", name="Acme")
    acme.memberships.create(user=Person.objects.create(email="bob@example.com"))
    acme.memberships.create(group=Group.objects.create(name="all"))
    assert send(token(ann), "/acme")[0] == 404
    acme.memberships.create(user=ann)
    assert send(token(ann), "/acme")[0] == 200
    agent.allowed_groups.add(Group.objects.create(name="sales"))
    assert send(token(ann))[0] == 403  # there is no way to be in a group
    print("done")


if __name__ == "__main__":
    main()
