"""The admin: staff make agents there, and see of tasks all that happened, but change none of it."""

import json
import re
import uuid

import pytest
from a2a.server.agent_execution import AgentExecutor
from django.contrib.admin import site as admin_site
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client as DjangoClient
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from a2a_django.admin import lists, task_page
from a2a_django.agents import registry
from a2a_django.models import (
    Agent,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    Artifact,
    Event,
    Message,
    PushConfig,
    Task,
    Tenant,
    TenantMembership,
    Turn,
)

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"


class Silent(AgentExecutor):
    async def execute(self, context, event_queue): ...

    async def cancel(self, context, event_queue): ...


@pytest.fixture
def client():
    """Django's own, not one of A2A."""
    return DjangoClient()


@pytest.fixture(autouse=True)
def _quick_passwords(settings):
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def _executors(monkeypatch):
    """The only executors there are."""
    monkeypatch.setattr(registry, "_registered", {"alpha": registry.Registration(Silent)})


def agent_row(**fields):
    slug = fields.pop("slug", "desk")
    return Agent.objects.create(slug=slug, name="Desk", description="Answers.", executor="alpha", **fields)


def task_row(agent, **fields):
    """A task that a client can see; ProtoJSON columns are given as data."""
    status = fields.pop("status", {"state": "TASK_STATE_COMPLETED"})
    defaults = {
        "id": str(uuid.uuid4()),
        "context_id": str(uuid.uuid4()),
        "state": status["state"],
        "status": json.dumps(status),
        "status_timestamp": timezone.now(),
        "visible": True,
    }
    return Task.objects.create(agent=agent, **defaults | fields)


def message_row(task, text, role="ROLE_USER", **fields):
    body = {"messageId": "m1", "role": role, "parts": [{"text": text}]}
    return Message.objects.create(task=task, message_id="m1", role=role, body=json.dumps(body), **fields)


def event_rows(task, *bodies):
    for sequence, body in enumerate(bodies, 1):
        kind = next(iter(body))
        Event.objects.create(task=task, sequence=sequence, kind=kind, body=json.dumps(body))
    Task.objects.filter(pk=task.pk).update(last_sequence=len(bodies))


def chunk(task, text, append):
    artifact = {"artifactId": "a1", "name": "report.md", "parts": [{"text": text}]}
    update = {"taskId": task.pk, "contextId": task.context_id, "artifact": artifact, "append": append}
    return {"artifactUpdate": update}


def page(client, task, **query):
    response = client.get(reverse("admin:a2a_django_task_change", args=[task.pk]), query)
    assert response.status_code == 200
    return response.content.decode()


def listing(client, model, **query):
    """What the list of `model` shows."""
    response = client.get(reverse(f"admin:a2a_django_{model}_changelist"), query)
    assert response.status_code == 200
    return response


def shown(response):
    return [row.pk for row in response.context["cl"].result_list]


def staff(client, *permissions):
    """Logs in a staff member who may do just that."""
    user = User.objects.create_user("staff", password="x", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return client


# --- agents


def agent_form(**changes):
    """What the browser posts for a complete new agent with one skill."""
    data = {
        "name": "Desk",
        "slug": "desk",
        "description": "Answers.",
        "version": "1.0.0",
        "executor": "alpha",
        "enabled": "on",
        "anonymous_access": "denied",
        "default_input_modes": "text/plain\r\n\r\n application/json ",
        "default_output_modes": "text/plain",
        "skills-TOTAL_FORMS": "1",
        "skills-INITIAL_FORMS": "0",
        "skills-0-name": "Look up",
        "skills-0-skill_id": "look-up",
        "skills-0-description": "Finds a ticket.",
        "skills-0-tags": "tickets, support,tickets",
        "skills-0-examples": "Where is ticket 7?\r\nWho owns it?",
        "skills-0-visibility": "public",
        "skills-0-position": "0",
        "extensions-TOTAL_FORMS": "0",
        "extensions-INITIAL_FORMS": "0",
        "interfaces-TOTAL_FORMS": "0",
        "interfaces-INITIAL_FORMS": "0",
    }
    return data | changes


def add(client, **changes):
    return client.post(reverse("admin:a2a_django_agent_add"), agent_form(**changes), follow=True)


def faults(response):
    """The errors of a refused form by field, inlines too."""
    forms = [response.context["adminform"].form]
    forms += [form for inline in response.context["inline_admin_formsets"] for form in inline.formset.forms]
    return {name: " ".join(texts) for form in forms for name, texts in form.errors.items()}


def test_staff_create_an_agent(admin_client):
    response = add(
        admin_client,
        security_schemes='{"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}',
        security_requirements='[{"schemes": {"bearer": {"list": []}}}]',
        **{
            "extensions-TOTAL_FORMS": "1",
            "extensions-0-uri": "https://example.com/ext",
            "extensions-0-params": '{"a": 1}',
            "extensions-0-position": "0",
            "interfaces-TOTAL_FORMS": "1",
            "interfaces-0-protocol_binding": "JSONRPC",
            "interfaces-0-protocol_version": "1.0",
            "interfaces-0-position": "0",
        },
    )
    assert response.redirect_chain, faults(response)
    agent = Agent.objects.get()
    assert agent.default_input_modes == ["text/plain", "application/json"]
    assert agent.security_schemes["bearer"] == {"httpAuthSecurityScheme": {"scheme": "Bearer"}}
    skill = AgentSkill.objects.get()
    assert skill.tags == ["tickets", "support"]
    assert skill.examples == ["Where is ticket 7?", "Who owns it?"]
    assert (skill.input_modes, skill.security_requirements) == ([], [])
    assert AgentExtension.objects.get().params == {"a": 1}
    assert AgentInterface.objects.get().url == ""


def test_a_new_agent_starts_with_the_defaults_of_the_model(admin_client):
    form = admin_client.get(reverse("admin:a2a_django_agent_add")).context["adminform"].form
    opened = {name: form[name].value() for name in ("default_input_modes", "default_output_modes", "version")}
    assert opened == {"default_input_modes": "text/plain", "default_output_modes": "text/plain", "version": "1.0.0"}


def test_an_agent_saved_as_it_was_opened_stays_as_it_was(admin_client):
    lists_of_strings = {
        "tags": ["a,b", "c"],
        "examples": ["two\nlines", '["not", "json"]'],
        "input_modes": [],
        "output_modes": ["image/png"],
    }
    agent = agent_row(security_schemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "ü"}}})
    skill = AgentSkill.objects.create(agent=agent, skill_id="s", name="S", description="d", **lists_of_strings)
    url = reverse("admin:a2a_django_agent_change", args=[agent.pk])
    opened = admin_client.get(url).context
    data = {}
    for form in (opened["adminform"].form, opened["inline_admin_formsets"][0].formset.forms[0]):
        data |= {form.add_prefix(name): form[name].value() for name in form.fields}
    for management in (inline.formset.management_form for inline in opened["inline_admin_formsets"]):
        data |= {management.add_prefix(name): value for name, value in management.initial.items()}
    posted = {name: value for name, value in data.items() if value is not None and value is not False}
    response = admin_client.post(url, posted)
    assert response.status_code == 302, faults(response)
    skill.refresh_from_db()
    assert {name: getattr(skill, name) for name in lists_of_strings} == lists_of_strings
    assert Agent.objects.get().security_schemes == agent.security_schemes


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"executor": "omega"}, "executor", "Select a valid choice"),
        ({"default_input_modes": "text"}, "default_input_modes", "“text” is not a media type"),
        ({"default_output_modes": " \r\n "}, "default_output_modes", "required"),
        ({"slug": "jwks.json"}, "slug", "valid"),
        ({"provider_organization": "We"}, "provider_url", "both or neither"),
        ({"security_schemes": "{"}, "security_schemes", "not JSON"),
        ({"security_schemes": '{"a": 1, "a": 2}'}, "security_schemes", "twice"),
        ({"security_schemes": r'{"a": "\u0000"}'}, "security_schemes", "NUL"),
        ({"security_schemes": "[]"}, "security_schemes", "JSON object"),
        ({"security_schemes": '{"b": {}}'}, "security_schemes", "“b”: SecurityScheme needs one of"),
        ({"security_schemes": '{"b": {"httpAuthSecurityScheme": {}}}'}, "security_schemes", "scheme is required"),
        ({"security_requirements": "{}"}, "security_requirements", "JSON array"),
        ({"security_requirements": '[{"schemes": 5}]'}, "security_requirements", "[0] schemes must be an object"),
        ({"security_requirements": '[{"schemes": {"b": {"list": 5}}}]'}, "security_requirements", "[0]"),
        (
            {
                "security_schemes": '{"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}',
                "security_requirements": '[{"schemes": {"c": {}}}]',
            },
            "security_requirements",
            "No such security scheme: c",
        ),
        ({"skills-0-tags": " , "}, "tags", "required"),
        ({"skills-0-examples": "a\0b"}, "examples", "Null characters"),
        ({"skills-0-security_requirements": "[5]"}, "security_requirements", "must be an object"),
    ],
)
def test_a_wrong_agent_is_refused_by_field(admin_client, changes, field, words):
    response = add(admin_client, **changes)
    assert words in faults(response)[field]
    assert not Agent.objects.exists()


@pytest.mark.parametrize(
    ("binding", "url", "words"),
    [
        ("GRPC", "", "does not serve GRPC"),
        ("JSONRPC", "example.com/a2a", "whole URL"),
        ("HTTP+JSON", "javascript:alert(1)", "whole URL"),
    ],
)
def test_an_interface_needs_a_url_that_clients_can_call(admin_client, binding, url, words):
    interface = {"protocol_binding": binding, "url": url, "protocol_version": "1.0", "position": "0"}
    changes = {f"interfaces-0-{name}": value for name, value in interface.items()}
    assert words in faults(add(admin_client, **changes, **{"interfaces-TOTAL_FORMS": "1"}))["url"]


def test_an_interface_of_this_sites_grpc_server_needs_none(admin_client, settings):
    settings.A2A = {**settings.A2A, "GRPC_URL": "agents.example.com:443"}
    interface = {"protocol_binding": "GRPC", "url": "", "protocol_version": "1.0", "position": "0"}
    changes = {f"interfaces-0-{name}": value for name, value in interface.items()}
    add(admin_client, **changes, **{"interfaces-TOTAL_FORMS": "1"})
    assert Agent.objects.get().interfaces.get().protocol_binding == "GRPC"


def test_groups_and_anonymous_callers_exclude_each_other(admin_client):
    group = Group.objects.create(name="sales")
    page = add(admin_client, allowed_groups=[group.pk], anonymous_access="by_id")
    assert page.context["adminform"].form.errors.keys() == {"anonymous_access"}
    add(admin_client, allowed_groups=[group.pk])
    assert list(Agent.objects.get().allowed_groups.all()) == [group]


@pytest.mark.parametrize("uri", ["https://a,https://b", "urn:a b", "urn:ü", "urn:a\nb"])
def test_an_extension_is_one_that_callers_can_ask_for(admin_client, uri):
    extension = {"extensions-0-uri": uri, "extensions-0-position": "0", "extensions-TOTAL_FORMS": "1"}
    assert "No caller can ask for it" in faults(add(admin_client, **extension))["uri"]
    assert not Agent.objects.exists()


def test_an_agent_without_a_skill_is_saved_with_a_warning(admin_client):
    response = add(admin_client, **{"skills-TOTAL_FORMS": "0"})
    assert Agent.objects.count() == 1
    assert "at least one skill" in response.content.decode()


def test_a_skill_that_nobody_is_shown_gives_a_warning(admin_client):
    response = add(admin_client, **{"skills-0-visibility": "authenticated"})
    assert "not shown to anyone" in response.content.decode()


def test_an_agent_whose_executor_is_gone_still_opens_and_can_be_kept(admin_client):
    agent = agent_row()
    Agent.objects.update(executor="gone")
    url = reverse("admin:a2a_django_agent_change", args=[agent.pk])
    assert '<option value="gone" selected>gone (missing)</option>' in admin_client.get(url).content.decode()
    assert "gone (missing)" in listing(admin_client, "agent").content.decode()
    response = admin_client.post(url, agent_form(executor="gone", version="2.0.0"), follow=True)
    assert "No executor is called “gone” now" in response.content.decode()
    assert Agent.objects.get().version == "2.0.0"


def test_an_executor_by_its_path_can_be_chosen(admin_client, settings):
    settings.A2A = {**settings.A2A, "EXECUTORS": ["site.agents.Beta"]}
    html = admin_client.get(reverse("admin:a2a_django_agent_add")).content.decode()
    assert re.findall(r'<option value="(\w[^"]*)"', html)[:2] == ["alpha", "site.agents.Beta"]


def test_an_agent_links_to_its_card_while_it_is_served(admin_client):
    agent = agent_row()
    link = f'<a href="{reverse("a2a_django:agent-card", kwargs={"agent": "desk"})}">card</a>'
    url = reverse("admin:a2a_django_agent_change", args=[agent.pk])
    assert link in listing(admin_client, "agent").content.decode()
    assert link in admin_client.get(url).content.decode()
    Agent.objects.update(enabled=False)
    assert link not in admin_client.get(url).content.decode()


def test_staff_who_may_only_look_can_open_an_agent(client):
    agent = agent_row()
    url = reverse("admin:a2a_django_agent_change", args=[agent.pk])
    response = staff(client, "view_agent").get(url)
    assert "alpha" in response.content.decode()
    assert client.post(url, agent_form()).status_code == 403


def test_what_has_tasks_is_kept_without_loading_them(admin_client):
    agent, tenant = agent_row(), Tenant.objects.create(slug="acme", name="Acme")
    for _ in range(3):
        task_row(agent, tenant=tenant)
    for model, row in (("agent", agent), ("tenant", tenant)):
        url = reverse(f"admin:a2a_django_{model}_delete", args=[row.pk])
        with CaptureQueriesContext(connection) as queries:
            assert "has tasks and stays" in admin_client.get(url).content.decode()
        assert not [query for query in queries if "status_timestamp" in query["sql"]]
        admin_client.post(url, {"post": "yes"})
    assert (Agent.objects.count(), Tenant.objects.count()) == (1, 1)
    Task.objects.all().delete()
    admin_client.post(reverse("admin:a2a_django_agent_delete", args=[agent.pk]), {"post": "yes"})
    assert not Agent.objects.exists()


# --- tenants


def tenant_form(*members, initial=0, **changes):
    """What the browser posts for a tenant, `members` being new rows (or old ones, the first `initial`)."""
    data = {"slug": "acme", "name": "Acme", "enabled": "on"}
    data |= {"memberships-TOTAL_FORMS": str(len(members)), "memberships-INITIAL_FORMS": str(initial)}
    for number, member in enumerate(members):
        data |= {f"memberships-{number}-{name}": value for name, value in member.items()}
    return data | changes


def post_tenant(client, *members, tenant=None, **changes):
    name = "admin:a2a_django_tenant_change" if tenant else "admin:a2a_django_tenant_add"
    url = reverse(name, args=[tenant.pk] if tenant else [])
    return client.post(url, tenant_form(*members, **changes))


def in_tenant():
    return [str(member) for member in TenantMembership.objects.all()]


def test_a_tenant_is_made_and_found(admin_client):
    url = reverse("admin:a2a_django_tenant_add")
    assert "path of the protocol" in admin_client.post(url, tenant_form(slug="v1")).content.decode()
    assert post_tenant(admin_client).status_code == 302
    tenant = Tenant.objects.get()
    assert not tenant.public
    assert shown(listing(admin_client, "tenant", q="acm")) == [tenant.pk]
    assert shown(listing(admin_client, "tenant", public__exact=1)) == []


def test_a_tenant_has_members_and_agents(admin_client):
    ann, group = User.objects.create_user("ann"), Group.objects.create(name="sales")
    agent, other = agent_row(), agent_row(slug="other")
    rows = {"user": ann.pk}, {"group": group.pk}
    assert post_tenant(admin_client, *rows, agents=[agent.pk], task_retention="60").status_code == 302
    tenant = Tenant.objects.get()
    assert (in_tenant(), list(tenant.agents.all()), tenant.task_retention) == (["ann", "sales"], [agent], 60)

    page = admin_client.get(reverse("admin:a2a_django_tenant_change", args=[tenant.pk])).content.decode()
    assert "ann" in page
    assert "sales" in page
    assert shown(listing(admin_client, "tenant", agents__id__exact=agent.pk)) == [tenant.pk]
    assert shown(listing(admin_client, "tenant", agents__id__exact=other.pk)) == []
    assert listing(admin_client, "tenant").context["cl"].result_list[0].members == 2


def test_members_are_removed(admin_client):
    tenant = Tenant.objects.create(slug="acme", name="Acme")
    members = [tenant.memberships.create(user=User.objects.create_user(name)) for name in ("ann", "bob")]
    rows = [{"id": one.pk, "tenant": tenant.pk} for one in members]
    rows[0] |= {"DELETE": "on"}
    rows[1] |= {"user": User.objects.get(username="ann").pk}  # nobody is changed into somebody else
    assert post_tenant(admin_client, *rows, tenant=tenant, initial=2).status_code == 302
    assert in_tenant() == ["bob"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"user": "1", "group": "1"}], "Choose a user or a group."),
        ([{"group": "1"}, {"group": "1"}], "Please correct the duplicate"),
        ([{"user": "99"}], "Select a valid choice"),
    ],
)
def test_wrong_members_are_refused(admin_client, admin_user, rows, words):
    keys = {"1": {"user": admin_user.pk, "group": Group.objects.create(name="sales").pk}}
    rows = [{name: keys.get(key, {}).get(name, key) for name, key in row.items()} for row in rows]
    response = post_tenant(admin_client, *rows)
    assert response.status_code == 200
    assert words in response.content.decode()
    assert not Tenant.objects.exists()


def test_who_may_change_a_tenant_lets_nobody_in(client):
    """Else they could become members themselves: that takes a permission of its own."""
    tenant, boss = Tenant.objects.create(slug="acme", name="Acme"), User.objects.create_user("boss")
    member = tenant.memberships.create(user=boss)
    staff(client, "view_tenant", "change_tenant")
    url = reverse("admin:a2a_django_tenant_change", args=[tenant.pk])
    assert "boss" not in client.get(url).content.decode()
    mine = {"user": User.objects.get(username="staff").pk}
    rows = {"id": member.pk, "tenant": tenant.pk, "DELETE": "on"}, mine
    assert post_tenant(client, *rows, tenant=tenant, initial=1, name="New").status_code == 302
    assert (Tenant.objects.get().name, in_tenant()) == ("New", ["boss"])

    User.objects.get(username="staff").user_permissions.add(Permission.objects.get(codename="view_tenantmembership"))
    assert "boss" in client.get(url).content.decode()
    post_tenant(client, *rows, tenant=tenant, initial=1)
    assert in_tenant() == ["boss"]


def test_who_may_look_at_tenants_changes_none(client):
    tenant = Tenant.objects.create(slug="acme", name="Acme")
    staff(client, "view_tenant", "add_tenantmembership", "delete_tenantmembership")
    mine = {"user": User.objects.get(username="staff").pk}
    assert post_tenant(client, mine, tenant=tenant).status_code == 403
    assert in_tenant() == []


def test_a_tenant_takes_as_many_queries_for_many_members_as_for_one(admin_client):
    tenant, counts = Tenant.objects.create(slug="acme", name="Acme"), []
    for number in range(2):
        for name in range(1 + 9 * number):
            tenant.memberships.create(user=User.objects.create_user(f"user {number} {name}"))
            tenant.memberships.create(group=Group.objects.create(name=f"group {number} {name}"))
            Tenant.objects.create(slug=f"other-{number}-{name}", name="Other")
            tenant.agents.add(agent_row(slug=f"agent-{number}-{name}"))
        for url in (reverse("admin:a2a_django_tenant_change", args=[tenant.pk]), "admin:a2a_django_tenant_changelist"):
            with CaptureQueriesContext(connection) as queries:
                assert admin_client.get(url if "/" in url else reverse(url)).status_code == 200
            counts.append(len(queries))
    assert counts[:2] == counts[2:]


def test_an_agent_may_require_a_tenant(admin_client):
    add(admin_client, requires_tenant="on")
    agent = Agent.objects.get()
    assert agent.requires_tenant
    assert shown(listing(admin_client, "agent", requires_tenant__exact=1)) == [agent.pk]
    assert shown(listing(admin_client, "agent", requires_tenant__exact=0)) == []


# --- webhooks


def test_nobody_types_in_a_webhook(admin_client):
    """CASES 68: what could be called from here comes by the protocol, which checks it; the admin only shows it."""
    task = task_row(agent_row())
    config = PushConfig.objects.create(task=task, config_id="c1", url="https://hooks.example.com/in")
    assert PushConfig not in admin_site._registry
    assert not [
        inline for model in admin_site._registry.values() for inline in model.inlines if inline.model is PushConfig
    ]
    data = {
        "url": "http://169.254.169.254/",
        "push_configs-0-url": "http://169.254.169.254/",
        "push_configs-0-id": config.pk,
    }
    url = reverse("admin:a2a_django_task_change", args=[task.pk])
    assert admin_client.post(url, data).status_code == 403
    assert PushConfig.objects.get().url == "https://hooks.example.com/in"


@pytest.mark.parametrize("name", ["requests_per_minute", "running_tasks", "open_streams", "max_body_bytes"])
def test_limits_of_a_tenant(admin_client, name):
    """None, or at least one: who may nothing at all is turned off."""
    url, tenant = reverse("admin:a2a_django_tenant_add"), {"slug": "acme", "name": "Acme"}
    memberships = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    for wrong in (0, -1, "x"):
        response = admin_client.post(url, tenant | memberships | {name: wrong})
        assert response.context["adminform"].errors.keys() == {name}
    admin_client.post(url, tenant | memberships | {name: 7})
    assert getattr(Tenant.objects.get(), name) == 7


# --- tasks


def test_a_task_page_shows_all_that_happened(admin_client, admin_user):
    agent = agent_row()
    status = {
        "state": "TASK_STATE_INPUT_REQUIRED",
        "message": {"messageId": "m2", "role": "ROLE_AGENT", "parts": [{"text": "Which ticket?"}]},
    }
    task = task_row(agent, user=admin_user, status=status, metadata='{"priority": "urgent"}')
    message = message_row(task, "Where is my ticket?")
    Artifact.objects.create(
        task=task,
        artifact_id="folded",
        through=0,
        body=json.dumps(
            {
                "artifactId": "folded",
                "parts": [
                    {"data": {"number": 7}},
                    {"raw": "AAAA", "filename": "x.png", "mediaType": "image/png"},
                    {"url": "javascript:alert(1)"},
                ],
            }
        ),
    )
    event_rows(task, chunk(task, "# Tick", False), chunk(task, "ets", True))
    Turn.objects.create(
        task=task, message=message, request="{}", state="failed", worker="web:7", error="Boom\nat line 3"
    )
    html = page(admin_client, task)
    for words in (
        "input required", "Desk", "admin", task.context_id, "Where is my ticket?", "Which ticket?", "urgent",
        "# Tickets", "2 parts", "&quot;number&quot;: 7", "x.png image/png", "3 bytes", "artifact update",
        "web:7", "Boom\nat line 3",
    ):  # fmt: skip
        assert words in html
    assert 'href="javascript' not in html


def test_what_clients_write_is_text_on_the_page(admin_client):
    agent = agent_row()
    status = {
        "state": "TASK_STATE_COMPLETED",
        "message": {"messageId": SCRIPT, "role": "ROLE_AGENT", "parts": [{"text": SCRIPT}, {"data": {SCRIPT: SCRIPT}}]},
    }
    task = task_row(agent, status=status, context_id=SCRIPT, owner=SCRIPT, metadata=json.dumps({SCRIPT: SCRIPT}))
    message = message_row(task, SCRIPT)
    body = {"artifactId": SCRIPT, "name": SCRIPT, "description": SCRIPT, "parts": [{"url": SCRIPT, "filename": SCRIPT}]}
    Artifact.objects.create(task=task, artifact_id=SCRIPT, through=0, body=json.dumps(body))
    event_rows(task, chunk(task, SCRIPT, False))
    turn = Turn.objects.create(
        task=task, message=message, request=json.dumps({"x": SCRIPT}), error=SCRIPT, worker=SCRIPT
    )
    PushConfig.objects.create(task=task, config_id=SCRIPT, url=f"https://x/{SCRIPT}", authentication_scheme=SCRIPT)
    turn_url = reverse("admin:a2a_django_turn_change", args=[turn.pk])
    for html in (
        page(admin_client, task),
        listing(admin_client, "task").content.decode(),
        admin_client.get(turn_url).content.decode(),
        listing(admin_client, "turn").content.decode(),
    ):
        assert "alert(1)" in html
        assert SCRIPT not in html


def test_secrets_of_push_configs_are_not_shown(admin_client):
    """CASES 69."""
    task = task_row(agent_row())
    PushConfig.objects.create(
        task=task,
        config_id="c1",
        url="https://user:secret1@hooks.example.com/in?key=secret2#secret3",
        token="secret4",
        authentication_scheme="Bearer",
        credentials="secret5",
    )
    html = page(admin_client, task)
    assert "https://hooks.example.com/in?…" in html
    assert "token, credentials" in html
    assert "secret" not in html.replace("Secrets kept", "")


def test_secrets_of_push_configs_that_nobody_can_read(admin_client, settings):
    task = task_row(agent_row())
    lost, settings.SECRET_KEY = settings.SECRET_KEY, "another"
    config = PushConfig.objects.create(task=task, config_id="c1", url="https://h.example", token="t", credentials="c")
    settings.SECRET_KEY = lost
    html = page(admin_client, task)
    assert "token (unreadable), credentials (unreadable)" in html
    assert config.token.ciphertext not in html


def test_a_long_log_is_shown_in_portions(admin_client, monkeypatch):
    monkeypatch.setattr(task_page, "EVENTS", 2)
    task = task_row(agent_row())
    event_rows(task, *[chunk(task, f"chunk{number}", number > 0) for number in range(5)])
    first = page(admin_client, task)
    assert "<b>2</b>" in first
    assert "<b>3</b>" not in first
    assert "3 more." in first
    assert 'href="?after=2#a2a-log"' in first
    last = page(admin_client, task, after="4")
    assert "<b>5</b>" in last
    assert "more." not in last
    for wrong in ("x", "-1", "9" * 30, "²"):
        page(admin_client, task, after=wrong)


def test_long_texts_are_cut_before_they_reach_the_browser(admin_client, monkeypatch):
    monkeypatch.setattr(task_page, "LONGEST", 50)
    task = task_row(agent_row())
    message_row(task, "x" * 80)
    event_rows(task, chunk(task, "y" * 1000, False))
    html = page(admin_client, task)
    assert "… 30 more characters" in html
    assert "y" * 51 not in html


def test_a_task_cannot_be_added_or_changed(admin_client):
    task = task_row(agent_row())
    url = reverse("admin:a2a_django_task_change", args=[task.pk])
    assert admin_client.get(reverse("admin:a2a_django_task_add")).status_code == 403
    assert admin_client.post(url, {"state": "TASK_STATE_FAILED"}).status_code == 403
    assert 'name="_save"' not in page(admin_client, task)


def test_a_task_is_deleted_only_with_the_permission(client, admin_client):
    task = task_row(agent_row())
    turn = Turn.objects.create(task=task, message=message_row(task, "hello"), request="{}")
    event_rows(task, chunk(task, "x", False))
    url = reverse("admin:a2a_django_task_delete", args=[task.pk])
    staff(client, "view_task")
    assert client.get(url).status_code == 403
    assert reverse("admin:a2a_django_task_delete", args=[task.pk]) not in page(client, task)
    assert admin_client.get(reverse("admin:a2a_django_turn_delete", args=[turn.pk])).status_code == 403
    assert "with its messages, events" in admin_client.get(url).content.decode()
    assert admin_client.post(url, {"post": "yes"}).status_code == 302
    assert [model.objects.count() for model in (Task, Message, Turn, Event)] == [0, 0, 0, 0]


def test_staff_without_permission_see_nothing(client):
    task = task_row(agent_row())
    staff(client, "view_tenant")
    assert client.get(reverse("admin:a2a_django_task_change", args=[task.pk])).status_code == 403
    assert client.get(reverse("admin:a2a_django_turn_changelist")).status_code == 403


def test_the_task_list_takes_as_many_queries_for_many_tasks_as_for_one(admin_client, admin_user):
    agent, tenant = agent_row(), Tenant.objects.create(slug="acme", name="Acme")
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as queries:
            listing(admin_client, "task")
        counts.append(len(queries))
        for _ in range(5):
            task_row(agent, tenant=tenant, user=admin_user)
    assert counts[0] == counts[1]


def test_a_list_counts_only_so_far(admin_client, monkeypatch):
    monkeypatch.setattr(lists, "MOST", 3)
    monkeypatch.setattr(lists.ReadOnlyAdmin, "list_per_page", 2)
    agent = agent_row()
    rows = [task_row(agent) for _ in range(5)]
    with CaptureQueriesContext(connection) as queries:
        response = listing(admin_client, "task")
    counts = [query["sql"] for query in queries if "COUNT" in query["sql"] and "a2a_django_task" in query["sql"]]
    assert all("LIMIT 3" in sql for sql in counts)
    assert "Only the newest 3 are listed" in response.content.decode()
    assert shown(response) == [rows[4].pk, rows[3].pk]


def test_tasks_are_found_by_id_user_and_context(admin_client, admin_user):
    agent = agent_row()
    one = task_row(agent, user=admin_user, context_id="admin-context")
    two = task_row(agent, context_id="café")
    assert shown(listing(admin_client, "task", q=f" {two.pk} ")) == [two.pk]
    assert shown(listing(admin_client, "task", q="admin")) == [one.pk]
    assert shown(listing(admin_client, "task", q="café")) == [two.pk]
    assert shown(listing(admin_client, "task", q="caf")) == []
    assert shown(listing(admin_client, "task", q=" ")) == [two.pk, one.pk]
    for odd in ("%", "'", "9" * 5000):
        assert shown(listing(admin_client, "task", q=odd)) == []
    assert "Null characters" in listing(admin_client, "task", q="a\0b").content.decode()


def test_tasks_are_filtered(admin_client):
    agent, other = agent_row(), agent_row(slug="other")
    tenant = Tenant.objects.create(slug="acme", name="Acme")
    failed = task_row(agent, status={"state": "TASK_STATE_FAILED"})
    theirs = task_row(other, tenant=tenant)
    assert shown(listing(admin_client, "task", state__exact="TASK_STATE_FAILED")) == [failed.pk]
    assert shown(listing(admin_client, "task", agent__id__exact=other.pk)) == [theirs.pk]
    assert shown(listing(admin_client, "task", tenant__id__exact=tenant.pk)) == [theirs.pk]


def test_a_task_that_no_client_sees_says_so(admin_client):
    agent = agent_row()
    task_row(agent, visible=False)
    assert "answered with a message" in listing(admin_client, "task").content.decode()
    task_row(agent, visible=False, status={"state": "TASK_STATE_SUBMITTED"})
    assert "not announced yet" in listing(admin_client, "task").content.decode()


# --- turns


def test_failed_turns_are_found_with_their_error(admin_client):
    task = task_row(agent_row())
    message = message_row(task, "hello")
    done = Turn.objects.create(task=task, message=message, request="{}", state="done")
    error = "Traceback (most recent call last):\n  File …\nValueError: no such ticket"
    failed = Turn.objects.create(
        task=task, message=message, request='{"metadata": {"a": 1}}', state="failed", error=error
    )
    response = listing(admin_client, "turn", state__exact="failed")
    assert shown(response) == [failed.pk]
    assert "ValueError: no such ticket" in response.content.decode()
    assert shown(listing(admin_client, "turn", q=task.pk)) == [failed.pk, done.pk]
    assert shown(listing(admin_client, "turn", q=str(done.pk))) == [done.pk]
    assert shown(listing(admin_client, "turn", q="9" * 50)) == []
    html = admin_client.get(reverse("admin:a2a_django_turn_change", args=[failed.pk])).content.decode()
    assert "most recent call last" in html
    assert "&quot;metadata&quot;" in html
    assert reverse("admin:a2a_django_task_change", args=[task.pk]) in html
