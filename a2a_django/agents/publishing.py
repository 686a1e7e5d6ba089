"""Publishes the draft of a card as its next version, or an old version once more."""

import hashlib
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from a2a_django import audit
from a2a_django.agents import card_checks, card_import, documents
from a2a_django.agents.documents import Document
from a2a_django.models import Agent, AgentCardVersion
from a2a_django.protocol import codec


@transaction.atomic
def publish(agent: Agent, user: Any = None, note: str = "") -> AgentCardVersion:
    """The version that is served from now on; the newest one, if the draft says the same. UnfitError."""
    _wait_for_others(agent)
    return _publish(agent, documents.of(agent), user, note, "card.published")


@transaction.atomic
def roll_back(version: AgentCardVersion, user: Any = None, note: str = "") -> AgentCardVersion:
    """Publishes an old version as a new one. The draft becomes that, too: what was unpublished in it is lost."""
    document = codec.loads(version.content)
    _wait_for_others(version.agent)
    card_import.store(version.agent, document)
    note = note or f"Version {version.number} again"
    return _publish(version.agent, document, user, note, "card.rolled_back")


def differs(agent: Agent) -> bool:
    """Whether the draft says something else than what is published."""
    return agent.published is not None and codec.loads(agent.published.content) != documents.of(agent)


def _publish(agent: Agent, document: Document, user: Any, note: str, event: str) -> AgentCardVersion:
    card_import.refuse(card_checks.problems(agent, document))
    newest = agent.card_versions.first()
    if newest is None or codec.loads(newest.content) != document:
        content = codec.dumps(document)
        newest = AgentCardVersion.objects.create(
            agent=agent,
            number=newest.number + 1 if newest else 1,
            content=content,
            digest=hashlib.sha256(content.encode()).hexdigest(),
            published_by=user,
            note=note,
        )
    agent.published = newest
    facts = {"agent": agent.slug, "version": newest.number, "user": user and user.pk}
    transaction.on_commit(partial(audit.note, event, **facts))
    return newest


def _wait_for_others(agent: Agent) -> None:
    """Lets nobody else publish its card until this transaction ends, which begins with it; `agent` is as it is then."""
    Agent.objects.filter(pk=agent.pk).update(updated_at=Now())
    agent.refresh_from_db()
