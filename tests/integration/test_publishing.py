"""Cards as versions: what is published is served, what calls are checked against acts at once (docs/cards.md)."""

import hashlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from a2a.types import AgentSkill as ProtoSkill
from django.contrib.auth.models import Group
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

import a2a_django
from a2a_django.agents import card, card_import, declarations, documents, publishing, registry
from a2a_django.agents.card_import import UnfitError
from a2a_django.models import Agent, AgentCardVersion, AgentExtension, AgentInterface, AgentSkill
from tests.executors import PATIENCE, SECRET

pytestmark = pytest.mark.django_db

URLS = card.Urls(jsonrpc="https://x.test/a2a/test", http_json="https://x.test/a2a/test")


@pytest.fixture
def agent(make_agent):
    """An agent that uses every column a card has."""
    made = make_agent(
        version="2.0.0",
        provider_organization="We",
        provider_url="https://we.test",
        documentation_url="https://we.test/doc",
        icon_url="https://we.test/icon.png",
        security_schemes={"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
        security_requirements=[{"schemes": {"bearer": {"list": []}}}],
    )
    AgentExtension.objects.create(agent=made, uri="urn:x:one", required=True, params={"a": [1, 2.5, None]})
    AgentExtension.objects.create(agent=made, uri="urn:x:two", description="Two", position=1)
    AgentInterface.objects.create(agent=made, protocol_binding="JSONRPC")
    AgentInterface.objects.create(
        agent=made, protocol_binding="GRPC", url="grpc.test:1", tenant="t", protocol_version="0.3", position=1
    )
    lists = {"tags": ["a,b", "ü"], "examples": ["two\nlines"], "input_modes": ["image/png"], "output_modes": ["a/b"]}
    skill = {"name": "Talk", "description": "Talks.", "tags": ["t"]}
    AgentSkill.objects.create(agent=made, skill_id="talk", **skill | lists)
    AgentSkill.objects.create(agent=made, skill_id="more", visibility="authenticated", **skill)
    closed = AgentSkill.objects.create(agent=made, skill_id="closed", visibility="groups", **skill)
    closed.groups.set([Group.objects.create(name="partners"), Group.objects.create(name="staff")])
    return made


def fresh():
    return Agent.objects.get()


def served():
    return card.public(fresh(), URLS)


# --- versions


def test_an_agent_that_was_never_published_is_served_as_it_is(agent):
    Agent.objects.update(name="Other")
    assert served().name == "Other"
    assert not publishing.differs(fresh())


def test_what_is_published_is_served_until_the_next_time(agent, make_user):
    ann = make_user()
    version = publishing.publish(agent, ann, "First")
    Agent.objects.update(name="Other")
    AgentSkill.objects.filter(skill_id="talk").delete()
    assert (served().name, [skill.id for skill in served().skills]) == ("Test", ["talk"])
    assert publishing.differs(fresh())
    assert [skill["id"] for skill in card.skills(fresh(), ann)] == ["talk", "more"]

    second = publishing.publish(fresh())
    assert (version.number, second.number) == (1, 2)
    assert (served().name, list(served().skills)) == ("Other", [])
    assert (version.published_by, version.note) == (ann, "First")
    assert version.digest == hashlib.sha256(version.content.encode()).hexdigest()


def test_the_same_again_is_no_new_version(agent):
    first = publishing.publish(agent)
    assert publishing.publish(fresh()).pk == first.pk


@pytest.mark.django_db(transaction=True)
def test_publishers_at_the_same_time_get_numbers_one_after_the_other(agent):
    first = publishing.publish(agent)
    Agent.objects.update(name="Other")
    barrier = threading.Barrier(4)

    def act(number):
        barrier.wait(PATIENCE)
        try:
            return (
                publishing.roll_back(AgentCardVersion.objects.get(pk=first.pk))
                if number
                else publishing.publish(fresh())
            )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as threads:
        numbers = {version.number for version in threads.map(act, range(4))}
    found = list(AgentCardVersion.objects.order_by("number").values_list("number", flat=True))
    assert found == list(range(1, len(found) + 1))
    assert numbers <= set(found)
    assert json.loads(fresh().published.content) == documents.of(fresh())


def test_what_was_published_is_not_changed(agent):
    version = publishing.publish(agent)
    version.note = "Other"
    with pytest.raises(TypeError, match="publish another"):
        version.save()


@pytest.mark.parametrize("published", [True, False])
def test_what_calls_are_checked_against_acts_at_once(agent, published):
    if published:
        publishing.publish(agent)
    Agent.objects.update(streaming=False, default_input_modes=["a/b"], security_requirements=[])
    AgentExtension.objects.filter(uri="urn:x:one").delete()
    shown = served()
    assert not shown.capabilities.streaming
    assert [extension.uri for extension in shown.capabilities.extensions] == ["urn:x:two"]
    assert list(shown.default_input_modes) == ["a/b"]


def test_an_old_version_is_published_again(agent, make_user):
    first = publishing.publish(agent)
    before = documents.of(fresh())
    Agent.objects.update(name="Other", streaming=False)
    fresh().skills.all()[0].delete()
    fresh().interfaces.all().delete()
    publishing.publish(fresh())
    Agent.objects.update(name="Never published")

    third = publishing.roll_back(first, make_user())
    assert (third.number, third.note, third.content) == (3, "Version 1 again", first.content)
    assert documents.of(fresh()) == before
    assert served().name == "Test"
    assert served().capabilities.streaming


def test_a_version_whose_group_is_gone_is_not_published_again(agent):
    first = publishing.publish(agent)
    Agent.objects.update(name="Other")
    publishing.publish(fresh())
    Group.objects.get(name="staff").delete()
    with pytest.raises(UnfitError) as refused:
        publishing.roll_back(first)
    assert refused.value.problems == [("skills[2].visibleTo", "names groups that there are not: staff")]
    assert (fresh().name, fresh().published.number) == ("Other", 2)


# --- what keeps a card from being published


@pytest.mark.parametrize(
    ("break_it", "field"),
    [
        (lambda: Agent.objects.update(name=""), "name"),
        (lambda: Agent.objects.update(version=""), "version"),
        (lambda: Agent.objects.update(default_output_modes=[]), "defaultOutputModes"),
        (lambda: Agent.objects.update(provider_url=""), "provider.url"),
        (lambda: Agent.objects.update(security_schemes={"x": {}}), "securitySchemes.x: SecurityScheme"),
        (lambda: AgentSkill.objects.all().delete(), "skills"),
        (lambda: AgentSkill.objects.filter(skill_id="more").update(tags=[]), "skills[1].tags"),
        (lambda: AgentExtension.objects.filter(uri="urn:x:two").update(uri="two"), "capabilities.extensions[1].uri"),
        (lambda: AgentInterface.objects.filter(protocol_binding="JSONRPC").delete(), "supportedInterfaces"),
        (lambda: AgentInterface.objects.update(url=""), "supportedInterfaces[1].url"),
        (
            lambda: AgentInterface.objects.filter(protocol_binding="JSONRPC").update(url="/a2a/test"),
            "supportedInterfaces",
        ),
        (
            lambda: AgentInterface.objects.filter(protocol_binding="JSONRPC").update(url="https://x.test/a2a/other"),
            "supportedInterfaces",
        ),
    ],
)
def test_a_card_that_clients_would_refuse_is_not_published(agent, break_it, field):
    break_it()
    with pytest.raises(UnfitError) as refused:
        publishing.publish(fresh())
    assert field in [field for field, _ in refused.value.problems]
    assert fresh().published is None


@pytest.mark.parametrize("url", ["https://x.test/a2a/test", "http://x.test/agents/a2a/test/"])
def test_an_interface_may_be_named_by_its_url(agent, url):
    AgentInterface.objects.filter(protocol_binding="JSONRPC").update(url=url)
    publishing.publish(fresh())


# --- documents


def test_a_document_is_stored_as_it_was(agent):
    document = documents.of(agent)
    assert document["skills"][2]["visibleTo"] == ["partners", "staff"]
    again = Agent(slug="again", executor=agent.executor)
    card_import.store(again, json.loads(json.dumps(document)))
    again = Agent.objects.get(slug="again")
    assert documents.of(again) == document
    columns = [*documents.TEXTS, *documents.PROVIDER, *documents.CHECKED, *documents.SWITCHES]
    assert [getattr(again, name) for name in columns] == [getattr(agent, name) for name in columns]
    assert list(again.skills.values(*documents.SKILL)) == list(agent.skills.values(*documents.SKILL))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"name": None}, "name"),
        ({"name": 5}, "name"),
        ({"name": "n" * 201}, "name"),
        ({"name": "\0"}, "name"),
        ({"iconUrl": "no url"}, "iconUrl"),
        ({"capabilities": {"streaming": "yes"}}, "capabilities.streaming"),
        ({"capabilities": {"extensions": [{"uri": "u" * 501}]}}, "capabilities.extensions[0].uri"),
        ({"skills": [{"id": "a", "tags": "t"}]}, "skills[0].tags"),
        ({"skills": [{"id": "a", "name": "A", "description": "", "tags": ["t"]}]}, "skills[0].description"),
        ({"skills": [{"id": "a", "name": "A", "description": "A", "tags": ["t"]}] * 2}, "skills[1].id"),
        (
            {"skills": [{"id": "a", "name": "A", "description": "A", "tags": ["t"], "visibleTo": "all"}]},
            "skills[0].visibleTo",
        ),
        ({"supportedInterfaces": [{"url": "https://x.test"}]}, "supportedInterfaces[0].protocolBinding"),
        (
            {"securitySchemes": {"x": {"httpAuthSecurityScheme": {"scheme": 5}}}},
            "securitySchemes.x: httpAuthSecurityScheme.scheme",
        ),
        ({"securityRequirements": [{"schemes": 5}]}, "securityRequirements[0].schemes"),
    ],
)
def test_what_no_row_can_hold_is_refused_by_field(agent, change, field):
    before = documents.of(fresh())
    with pytest.raises(UnfitError) as refused:
        card_import.store(agent, before | change)
    assert field in [field for field, _ in refused.value.problems]
    assert documents.of(fresh()) == before


# --- skills that are declared in code

LOOK = {"id": "look", "name": "Look", "description": "Looks.", "tags": ["t"]}


@pytest.fixture
def declare(monkeypatch):
    """declare(skills): an executor “coder” whose class declares them."""
    monkeypatch.setattr(declarations, "_decorated", {})
    monkeypatch.setattr(registry, "_registered", {})
    declarations._tell.cache_clear()

    def make(skills):
        registry._registered["coder"] = registry.Registration(type("Coder", (), {"skills": skills}))

    return make


def listed():
    return [skill["id"] for skill in documents.of(fresh())["skills"]]


@pytest.mark.parametrize("skills", [
    [LOOK], (ProtoSkill(id="look", name="Look", description="Looks.", tags=["t"]),), lambda: iter([LOOK]),
])  # fmt: skip
def test_an_executor_declares_its_skills(make_agent, declare, skills):
    declare(staticmethod(skills) if callable(skills) else skills)
    make_agent(executor="coder")
    assert documents.of(fresh())["skills"] == [LOOK]
    assert [skill.id for skill in served().skills] == ["look"]


def test_views_and_functions_declare_skills(make_agent, declare):
    declare([LOOK])

    @a2a_django.a2a_skill("coder", tags=["tickets"], input_modes=["text/plain"])
    def close_ticket():
        """Closes a ticket."""

    @a2a_django.a2a_skill("other", tags=["x"])
    def elsewhere():
        """Of another agent."""

    make_agent(executor="coder")
    assert documents.of(fresh())["skills"] == [
        LOOK,
        {
            "id": "close-ticket",
            "name": "Close ticket",
            "description": "Closes a ticket.",
            "tags": ["tickets"],
            "inputModes": ["text/plain"],
        },
    ]


def test_a_declaration_that_is_none_is_refused_where_it_stands(declare):
    with pytest.raises(ImproperlyConfigured, match="description"):

        @a2a_django.a2a_skill("coder", tags=["t"])
        def silent(): ...

    a2a_django.a2a_skill("coder", id="one", tags=["t"])(declare_one := _described("one"))
    a2a_django.a2a_skill("coder", id="one", tags=["t"])(declare_one)  # its module was imported twice
    with pytest.raises(ImproperlyConfigured, match="“one” is taken"):
        a2a_django.a2a_skill("coder", id="one", tags=["t"])(_described("two"))


def _described(name):
    def function():
        """Does something."""

    function.__qualname__ = name
    return function


def _broken():
    raise ConnectionError(SECRET)


@pytest.mark.parametrize("skills", [[LOOK, {"id": "x"}], _broken, 5, [5]])
def test_what_code_declares_wrongly_is_left_out_and_told(make_agent, declare, caplog, skills):
    declare(staticmethod(skills) if callable(skills) else skills)
    make_agent(executor="coder")
    assert listed() == (["look"] if skills == [LOOK, {"id": "x"}] else [])
    documents.of(fresh())
    assert len(caplog.records) == 1  # told once
    assert "coder" in caplog.text
    assert SECRET not in caplog.text


def test_rows_go_before_code_and_staff_hide_skills(make_agent, declare):
    declare([LOOK, LOOK | {"id": "other"}, LOOK | {"id": "third"}])
    agent = make_agent(executor="coder", hidden_skills=["third"])
    AgentSkill.objects.create(agent=agent, skill_id="other", name="Own", description="Own.", tags=["t"])
    assert [(skill["id"], skill["name"]) for skill in documents.of(agent)["skills"]] == [
        ("other", "Own"),
        ("look", "Look"),
    ]


def test_a_rollback_leaves_in_code_what_code_still_says(make_agent, declare):
    declare([LOOK, LOOK | {"id": "other"}])
    first = publishing.publish(make_agent(executor="coder"))
    declare([LOOK | {"name": "Anew"}, LOOK | {"id": "other"}, LOOK | {"id": "third"}])
    publishing.publish(fresh())
    publishing.roll_back(first)
    assert [row.skill_id for row in fresh().skills.all()] == ["look"]
    assert fresh().hidden_skills == ["third"]
    assert documents.of(fresh())["skills"] == json.loads(first.content)["skills"]
