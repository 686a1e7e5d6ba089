"""The admin publishes cards, rolls them back and shows what has changed; skills of the code are staff's to keep."""

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from a2a_django.admin import card_changes, declared_skills
from a2a_django.agents import declarations, documents, publishing, registry
from a2a_django.models import Agent, AgentCardVersion, AgentSkill

pytestmark = pytest.mark.django_db

AGENTS = "a2a_django_agent"
VERSIONS = "a2a_django_agentcardversion"
SCRIPT = "<script>alert(1)</script>"
LOOK = {"id": "look", "name": "Look", "description": "Looks.", "tags": ["t"]}


@pytest.fixture
def agent(make_agent):
    made = make_agent()
    AgentSkill.objects.create(agent=made, skill_id="talk", name="Talk", description="Talks.", tags=["t"])
    return made


@pytest.fixture
def staff(client, make_user):
    """staff(permissions): a logged-in staff member who may do just that."""

    def make(*permissions):
        user = make_user("staff", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        client.force_login(user)
        return client

    return make


@pytest.fixture
def client():
    """Django's own, not one of A2A."""
    return Client()


def act(client, model, action, *rows, **data):
    """The page after an action on these rows."""
    url = reverse(f"admin:{model}_changelist")
    selected = [row.pk for row in rows]
    response = client.post(url, {"action": action, "_selected_action": selected, **data}, follow=True)
    assert response.status_code == 200
    return response.content.decode()


def opened(client, model, row):
    response = client.get(reverse(f"admin:{model}_change", args=[row.pk]))
    assert response.status_code == 200
    return response.content.decode()


# --- publishing


def test_staff_see_what_changes_then_publish(admin_client, admin_user, agent):
    publishing.publish(agent)
    Agent.objects.update(name=SCRIPT)
    page = act(admin_client, AGENTS, "publish", agent)
    assert "-  &quot;name&quot;: &quot;Test&quot;" in page
    assert "+  &quot;name&quot;: &quot;&lt;script&gt;" in page
    assert SCRIPT not in page
    assert AgentCardVersion.objects.count() == 1  # it was only asked

    act(admin_client, AGENTS, "publish", agent, confirmed="yes", note="Renamed")
    version = AgentCardVersion.objects.get(number=2)
    assert (version.note, version.published_by) == ("Renamed", admin_user)
    assert "nothing has changed since version 2" in act(admin_client, AGENTS, "publish", agent, confirmed="yes")


def test_the_agents_page_says_what_is_served_and_leads_to_publishing(admin_client, agent):
    assert "never: the card is served as it is saved" in opened(admin_client, AGENTS, agent)
    publishing.publish(agent)
    assert "the draft is the same" in opened(admin_client, AGENTS, agent)
    Agent.objects.update(name="Other")
    link = reverse("admin:a2a_django_agent_publish", args=[agent.pk])
    page = opened(admin_client, AGENTS, agent)
    assert "the draft differs" in page
    assert link in page
    assert "Other" in admin_client.get(link).content.decode()


def test_problems_are_listed_by_field(admin_client, agent):
    AgentSkill.objects.all().delete()
    page = act(admin_client, AGENTS, "publish", agent)
    assert "<strong>skills</strong> must have at least one element" in page
    assert f'name="_selected_action" value="{agent.pk}"' not in page
    assert "is not published: skills must" in act(admin_client, AGENTS, "publish", agent, confirmed="yes")
    assert not AgentCardVersion.objects.exists()


def test_publishing_has_a_permission_of_its_own(staff, agent):
    version = publishing.publish(agent)
    Agent.objects.update(name="Other")
    client = staff("view_agent", "change_agent", "view_agentcardversion")
    act(client, AGENTS, "publish", agent, confirmed="yes")
    act(client, VERSIONS, "roll_back", version, confirmed="yes")
    assert client.get(reverse("admin:a2a_django_agent_publish", args=[agent.pk])).status_code == 403
    assert (AgentCardVersion.objects.count(), Agent.objects.get().name) == (1, "Other")

    user = User.objects.get(username="staff")
    user.user_permissions.add(Permission.objects.get(codename="publish_agentcard"))
    act(client, AGENTS, "publish", agent, confirmed="yes")
    assert AgentCardVersion.objects.count() == 2


# --- versions


def test_a_version_shows_what_it_changed(admin_client, agent):
    first = publishing.publish(agent)
    Agent.objects.update(version="1.1.0")
    second = publishing.publish(Agent.objects.get())
    assert "The first version" in opened(admin_client, VERSIONS, first)
    page = opened(admin_client, VERSIONS, second)
    assert "What has changed since version 1" in page
    assert "+  &quot;version&quot;: &quot;1.1.0&quot;" in page
    for versions in ((first,), (first, second)):
        page = act(admin_client, VERSIONS, "compare", *versions)
        assert ("Select two" in page) == (len(versions) == 1)
    assert "-  &quot;version&quot;: &quot;1.0.0&quot;" in page


def test_staff_roll_back(admin_client, admin_user, agent):
    first = publishing.publish(agent)
    Agent.objects.update(name="Other")
    publishing.publish(Agent.objects.get())
    page = act(admin_client, VERSIONS, "roll_back", first)
    assert "+  &quot;name&quot;: &quot;Test&quot;" in page
    assert "They are lost" not in page
    Agent.objects.update(name="Unpublished")
    assert "They are lost" in act(admin_client, VERSIONS, "roll_back", first)
    assert AgentCardVersion.objects.count() == 2

    act(admin_client, VERSIONS, "roll_back", first, confirmed="yes", note="Too early")
    third = AgentCardVersion.objects.get(number=3)
    assert (third.content, third.note, third.published_by) == (first.content, "Too early", admin_user)
    assert Agent.objects.get().name == "Test"
    assert "Select the one version" in act(admin_client, VERSIONS, "roll_back", first, third)


def test_a_version_is_neither_made_nor_changed_nor_deleted_by_hand(admin_client, agent):
    version = publishing.publish(agent)
    assert admin_client.get(reverse(f"admin:{VERSIONS}_add")).status_code == 403
    assert admin_client.post(reverse(f"admin:{VERSIONS}_change", args=[version.pk]), {"note": "x"}).status_code == 403
    assert admin_client.post(reverse(f"admin:{VERSIONS}_delete", args=[version.pk]), {"post": "yes"}).status_code == 403


def test_versions_go_with_their_agent(staff, agent):
    publishing.publish(agent)
    staff("delete_agent", "view_agent").post(reverse(f"admin:{AGENTS}_delete", args=[agent.pk]), {"post": "yes"})
    assert not AgentCardVersion.objects.exists()


def test_cards_that_say_the_same_differ_in_nothing():
    one, other = {"a": {"x": 1, "y": [{"p": 1, "q": 2}]}, "b": 2}, {"b": 2, "a": {"y": [{"q": 2, "p": 1}], "x": 1}}
    assert card_changes.between(one, other) == []
    assert [(line.kind, line.text) for line in card_changes.between({"a": 1}, {"a": 2})][1:] == [
        ("", " {"),
        ("removed", '-  "a": 1'),
        ("added", '+  "a": 2'),
        ("", " }"),
    ]


# --- skills of groups, and of the code


def form(client, agent):
    """What the browser would post from the agent's page."""
    context = client.get(reverse(f"admin:{AGENTS}_change", args=[agent.pk])).context
    forms = [context["adminform"].form]
    for inline in context["inline_admin_formsets"]:
        forms += [inline.formset.management_form, *inline.formset.initial_forms]
    data = {bound.add_prefix(name): bound[name].value() for bound in forms for name in bound.fields}
    return {name: value for name, value in data.items() if value is not None and value is not False}


def save(client, agent, **changes):
    response = client.post(
        reverse(f"admin:{AGENTS}_change", args=[agent.pk]), form(client, agent) | changes, follow=True
    )
    assert response.status_code == 200
    if not response.redirect_chain:
        print(
            [
                f.errors
                for f in [response.context["adminform"].form]
                + [x for i in response.context["inline_admin_formsets"] for x in i.formset.forms]
            ]
        )
    return response


def test_a_skill_for_groups_names_them(admin_client, agent):
    refused = save(admin_client, agent, **{"skills-0-visibility": "groups"})
    assert "Choose the groups" in refused.content.decode()
    partners = Group.objects.create(name="partners")
    shown = save(admin_client, agent, **{"skills-0-visibility": "groups", "skills-0-groups": [partners.pk]})
    assert "not shown to anyone" in shown.content.decode()  # the extended card is off
    assert documents.of(agent)["skills"][0]["visibleTo"] == ["partners"]


@pytest.fixture
def coder(monkeypatch, make_agent):
    """An agent whose executor declares two skills."""
    monkeypatch.setattr(declarations, "_decorated", {})
    skills = [LOOK, LOOK | {"id": "find", "name": "Find"}]
    registered = {"coder": registry.Registration(type("Coder", (), {"skills": skills}))}
    monkeypatch.setattr(registry, "_registered", registered)
    return make_agent(executor="coder")


def test_staff_hide_skills_of_the_code(admin_client, coder):
    assert "at least one skill" not in save(admin_client, coder).content.decode()
    save(admin_client, coder, hidden_skills=["find"])
    assert [skill["id"] for skill in documents.of(Agent.objects.get())["skills"]] == ["look"]
    assert "at least one skill" in save(admin_client, coder, hidden_skills=["look", "find"]).content.decode()
    page = opened(admin_client, AGENTS, coder)
    assert "<strong>Find</strong>: hidden. Looks." in page


def test_staff_take_skills_over_and_see_when_code_and_row_differ(admin_client, coder):
    save(admin_client, coder, taken_over=["find"])
    row = AgentSkill.objects.get()
    assert documents.skill(row) == LOOK | {"id": "find", "name": "Find"}
    assert "<strong>Find</strong>: taken over, unchanged." in opened(admin_client, AGENTS, coder)

    save(admin_client, coder, **{"skills-0-name": "Search", "skills-0-examples": "Find it."})
    page = opened(admin_client, AGENTS, coder)
    assert "<strong>Find</strong>: taken over; code and row differ in name, examples." in page
    assert [skill["name"] for skill in documents.of(coder)["skills"]] == ["Search", "Look"]

    save(admin_client, coder, taken_over=["find"])
    assert documents.skill(AgentSkill.objects.get()) == LOOK | {"id": "find", "name": "Find"}


def test_an_agent_whose_code_declares_nothing_is_not_asked_about_it(admin_client, agent):
    assert declared_skills.choices(agent) == []
    assert "Skills declared in code" not in opened(admin_client, AGENTS, agent)
