"""The audit: who did what, over every binding, and never a secret or what a message says."""

import io
import logging
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.urls import reverse
from django.utils import timezone

from a2a_django import audit
from a2a_django.agents import publishing
from a2a_django.models import AccessToken, AgentCardVersion
from tests.clients import Error
from tests.clients_grpc import CLIENTS

CANARY = "canary-7f3a"


@pytest.fixture
def records(caplog):
    """records(): (event, facts) of what was noted since the last call."""
    caplog.set_level(logging.INFO, "a2a_django.audit")

    def found():
        noted = [(record.event, record.facts) for record in caplog.records if record.name == "a2a_django.audit"]
        assert CANARY not in caplog.text
        assert CANARY not in str(noted)
        caplog.clear()
        return noted

    return found


@pytest.fixture
def agent(make_agent):
    return make_agent(executor="tests.executors.Script", anonymous_access="denied")


@pytest.fixture
def anonymous(site, binding, agent):
    return CLIENTS[binding](site)


def refused(call):
    with pytest.raises(Error):
        call()


def test_what_a_caller_does(anonymous, agent, make_user, make_token, make_tenant, records, eventually):
    ann = make_user("ann")
    make_tenant("acme", members=[ann])
    text = make_token(ann, scopes=["read", "send", "cancel", "push"])
    prefix, who = AccessToken.objects.get().prefix, {"agent": agent.slug, "tenant": "acme", "user": str(ann.pk)}
    assert records() == [
        ("token.made", {"token": prefix, "user": str(ann.pk), "scopes": "read send cancel push"}),
    ]
    client, noted = anonymous.as_(text).within("acme"), []
    task = client.task(f"task input:{CANARY}")["id"]
    eventually(lambda: AccessToken.objects.get().last_used_at is not None)
    client.create_push(
        task, id="hook", url=f"https://example.com/{CANARY}?key={CANARY}", token=CANARY,
        authentication={"scheme": "Bearer", "credentials": CANARY},
    )  # fmt: skip
    client.get(task), client.list(), client.list_push(task)
    client.delete_push(task, "hook"), client.delete_push(task, "hook")
    client.cancel(task)
    refused(lambda: client.cancel(task))
    noted = records()
    assert ("token.used", {"token": prefix, "user": str(ann.pk)}) in noted
    assert [record for record in noted if record[0] != "token.used"] == [
        ("task.created", who | {"task": task}),
        ("push_config.stored", who | {"task": task, "config": "hook", "host": "example.com"}),
        ("push_config.deleted", who | {"task": task, "config": "hook"}),
        ("task.cancel_requested", who | {"task": task}),
    ]


def test_who_is_refused(anonymous, agent, make_user, make_token, records):
    ann = make_user("ann")
    text = make_token(ann, scopes=["read"])
    token = AccessToken.objects.get()
    records()
    refused(anonymous.list)
    assert records() == []  # who brings nothing is asked to
    refused(anonymous.as_(f"a2a_aaaaaaaa_{'x' * 43}").list)
    [(event, facts)] = records()
    assert (event, facts["agent"], facts["token"]) == ("authentication.failed", agent.slug, "a2a_aaaaaaaa")
    assert facts["address"]
    refused(lambda: anonymous.as_(text).task("task completed"))
    denied = next(facts for event, facts in records() if event == "access.denied")
    assert denied["reason"] == "The credentials lack the scope send"
    assert (denied["user"], denied["token"]) == (str(ann.pk), token.prefix)
    assert text not in str(denied)
    token.expires_at = timezone.now() - timedelta(days=1)
    token.save()
    refused(anonymous.as_(text).list)
    assert [event for event, _ in records() if event != "token.used"] == ["authentication.failed"]


@pytest.mark.django_db(transaction=True)
def test_what_staff_do(agent, make_user, records, make_token):
    user = make_user("publisher")
    agent.skills.create(skill_id="echo", name="Echo", description="Says it again.", tags=["echo"])
    publishing.publish(agent, user)
    agent.description = "Another."
    agent.save()
    publishing.publish(agent)
    publishing.roll_back(AgentCardVersion.objects.get(number=1), user)
    who = {"agent": agent.slug, "user": str(user.pk)}
    assert records() == [
        ("card.published", who | {"version": "1"}),
        ("card.published", {"agent": agent.slug, "version": "2"}),
        ("card.rolled_back", who | {"version": "3"}),
    ]
    make_token(user)
    AccessToken.objects.revoke()
    assert AccessToken.objects.revoke() == 0
    call_command("a2a_keys", "generate", stdout=(kid := io.StringIO()))
    call_command("a2a_keys", "retire", kid.getvalue().strip(), stdout=io.StringIO())
    assert [event for event, _ in records()] == ["token.made", "token.revoked", "key.made", "key.retired"]


@pytest.mark.django_db(transaction=True)
def test_staff_who_read_what_was_said(agent, make_task, admin_client, admin_user, records):
    task = make_task(agent, visible=True)
    assert admin_client.get(reverse("admin:a2a_django_task_change", args=[task.pk])).status_code == 200
    assert records() == [("task.read_in_admin", {"task": task.pk, "user": str(admin_user.pk)})]


def test_what_a_name_may_do_to_the_log(caplog):
    """One record is one line, and no longer than it may be."""
    caplog.set_level(logging.INFO, "a2a_django.audit")
    audit.note("test", name="x\n2026-01-01 INFO forged\x1b[31m" + "y" * 1000, nothing=None)
    [record] = caplog.records
    assert "\n" not in record.getMessage()
    assert "\x1b" not in record.getMessage()
    assert list(record.facts) == ["name"]
    assert len(record.facts["name"]) == audit.LONGEST
