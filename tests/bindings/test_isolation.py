"""Nobody finds anything of anybody else's: every operation, over every binding, for callers of every kind (DESIGN 7).

Whatever a caller tries with what is another's goes as with what is nobody's: the same answer but for the id that was
asked for, and as many queries, so that time doesn't tell either.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from a2a.types.a2a_pb2 import DESCRIPTOR
from django.contrib.auth.models import Group

from a2a_django import operations
from a2a_django.bindings import jsonrpc
from a2a_django.models import Agent
from a2a_django.protocol import versions
from tests.clients import Error, message

URL = "https://hooks.example.com/a2a"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
SAID = "task dump completed"
TABLE = Path(__file__).parents[2] / "docs/security.md"


@dataclass
class Things:
    """The ids of what somebody has; by default nobody's."""

    task: str = field(default_factory=lambda: str(uuid4()))
    context: str = field(default_factory=lambda: str(uuid4()))
    config: str = field(default_factory=lambda: str(uuid4()))
    message: str = field(default_factory=lambda: str(uuid4()))
    page: str = "nobody's"


@dataclass
class Place:
    """A caller within a tenant, or none; `secret` is in all that it has."""

    client: object
    secret: str
    things: Things = field(default_factory=Things)

    def settle(self):
        """Makes a task with a webhook, and another, so that there is a second page."""
        mine, client = self.things, self.client
        client.task(message(f"task artifact:a:{self.secret} completed", contextId=mine.context))
        said = message(f"task artifact:a:{self.secret} input:?", contextId=mine.context, messageId=mine.message)
        mine.task = client.task(said)["id"]
        client.create_push(mine.task, id=mine.config, url=f"{URL}/{self.secret}", token=self.secret)
        if client.headers.get("A2A-Version") != versions.LEGACY:
            mine.page = client.list(pageSize=1)["nextPageToken"]

    def has(self):
        return self.client.get(self.things.task), self.client.list_push(self.things.task)


def sends(call):
    """What may be tried by a send: by the task, its context, a reference, the message's id, and all that resumes."""
    return [
        lambda client, own, its: call(client, message("completed", taskId=its.task)),
        lambda client, own, its: call(client, message(SAID, contextId=its.context)),
        lambda client, own, its: call(client, message(SAID, taskId=its.task, contextId=its.context)),
        lambda client, own, its: call(client, message(SAID, referenceTaskIds=[its.task])),
        lambda client, own, its: call(client, message(SAID, messageId=its.message)),
    ]


def streamed(client, said, **kwargs):
    return client.stream(said, **kwargs).all()


def resumed(client, own, its):
    """Only HTTP has events with ids; over gRPC the message is another try."""
    last = {} if client.binding == "grpc" else {"last": 1}
    return streamed(client, message(SAID, messageId=its.message), **last)


def subscribed(client, own, its):
    return client.subscribe(its.task).all()


def resubscribed(client, own, its):
    return client.subscribe(its.task, **({} if client.binding == "grpc" else {"last": 1})).all()


ATTEMPTS = {
    "SendMessage": sends(lambda client, said: client.send(said)),
    "SendStreamingMessage": [resumed, *sends(streamed)],  # the first one stores nothing
    "GetTask": [lambda client, own, its: client.get(its.task)],
    "ListTasks": [
        lambda client, own, its: client.list(includeArtifacts=True),
        lambda client, own, its: client.list(contextId=its.context),
        lambda client, own, its: client.list(pageSize=1, pageToken=its.page),
    ],
    "CancelTask": [lambda client, own, its: client.cancel(its.task)],
    "SubscribeToTask": [subscribed, resubscribed],
    "CreateTaskPushNotificationConfig": [
        lambda client, own, its: client.create_push(its.task, url=URL),
        lambda client, own, its: client.create_push(its.task, id=its.config, url=URL),
    ],
    "GetTaskPushNotificationConfig": [
        lambda client, own, its: client.get_push(its.task, its.config),
        lambda client, own, its: client.get_push(own.task, its.config),
        lambda client, own, its: client.get_push(its.task, own.config),
    ],
    "ListTaskPushNotificationConfigs": [lambda client, own, its: client.list_push(its.task)],
    "DeleteTaskPushNotificationConfig": [
        lambda client, own, its: client.delete_push(its.task, its.config),
        lambda client, own, its: client.delete_push(own.task, its.config),
    ],
    "GetExtendedAgentCard": [lambda client, own, its: client.extended_card()],
}


def test_every_operation_is_walked():
    """One that is added to the protocol, or to a binding, has to be added here."""
    protocol = {method.name for method in DESCRIPTOR.services_by_name["A2AService"].methods}
    ours = {name for name, method in jsonrpc.METHODS.items() if method.version == versions.CURRENT}
    assert ATTEMPTS.keys() == protocol == ours
    assert len(ATTEMPTS) == len(set(operations.__all__) - {"Stream"})
    assert [name for name in ATTEMPTS if name not in TABLE.read_text()] == []


CALLERS = {"alice": ["", "acme", "globex"], "bob": ["", "acme"], "anonymous": ["", "open"]}
OUTSIDERS = [("bob", "globex"), ("anonymous", "acme"), ("anonymous", "globex")]


@pytest.fixture
def places(make_client, make_user, make_tenant):
    """Two users and an anonymous caller by name and tenant, each without a tenant and within those that let them in."""
    client = make_client(extended_card=True)
    skill = {"name": "More", "description": "For some.", "visibility": "authenticated"}
    Agent.objects.get().skills.create(skill_id="more", **skill)
    alice, bob, partners = make_user("alice"), make_user("bob"), Group.objects.create(name="partners")
    bob.groups.add(partners)
    make_tenant("acme", members=[alice, partners]), make_tenant("globex", members=[alice]), make_tenant("open")
    found = {
        (who, tenant): Place(
            (client if who == "anonymous" else client.as_(who)).within(tenant), f"secret-{who}-{tenant}."
        )
        for who, tenants in CALLERS.items()
        for tenant in tenants
    }
    for place in found.values():
        place.settle()
    return found


@pytest.fixture
def outcome(statements):
    """outcome(attempt, client, own, its): what it comes to; as a whole, and as it should be for what is nobody's."""

    def of(attempt, client, own, its):
        statements.begin()
        try:
            found = json.dumps(attempt(client, own, its))
        except Error as error:
            body = error.response.body.decode("latin-1")
            return body, (error.status, error.response.headers, _plain(body, its), statements.of_requests)
        return found, _plain(found, its)

    return of


def _plain(text, its):
    return TIME.sub("<time>", UUID.sub("<id>", text.replace(its.page, "<page>")))


OPERATIONS = [pytest.param(name, marks=() if name == "ListTasks" else pytest.mark.v0_3) for name in ATTEMPTS]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_anothers_is_as_what_is_nobodys(places, outcome, operation):
    """CASES 38, 40, 41."""
    before = [place.has() for place in places.values()]
    for attempt in ATTEMPTS[operation]:
        for place in places.values():
            nobodys, others = Things(), [other for other in places.values() if other is not place]
            _, expected = outcome(attempt, place.client, place.things, nobodys)
            for other in others:
                shown, found = outcome(attempt, place.client, place.things, other.things)
                assert found == expected, f"{place.secret} with what is {other.secret}"
                assert not [one.secret for one in others if one.secret in shown]
        for who, tenant in OUTSIDERS:
            stranger, its = places[who, ""], places["alice", tenant].things
            theirs, nobodys = (
                outcome(attempt, stranger.client.within(slug), stranger.things, its) for slug in (tenant, "nobody")
            )
            assert theirs == nobodys
            assert "There is no such tenant" in theirs[0]
    assert [place.has() for place in places.values()] == before
