"""Who may call, and who may see what (DESIGN 7)."""

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore

from a2a_django.models import Task, Turn
from tests.clients import Error, message, state
from tests.clients_grpc import CLIENTS, over_http

URL = "https://hooks.example.com/a2a"

# Everything that a caller can do with a task that is known by its id.
ON_A_TASK = {
    "send": lambda client, task_id: client.send(message("completed", taskId=task_id)),
    "stream": lambda client, task_id: client.stream(message("completed", taskId=task_id)),
    "get": lambda client, task_id: client.get(task_id),
    "cancel": lambda client, task_id: client.cancel(task_id),
    "subscribe": lambda client, task_id: client.subscribe(task_id),
    "resume": lambda client, task_id: client.subscribe(task_id, last=1),
    "create_push": lambda client, task_id: client.create_push(task_id, url=URL),
    "get_push": lambda client, task_id: client.get_push(task_id, "mine"),
    "list_push": lambda client, task_id: client.list_push(task_id),
    "delete_push": lambda client, task_id: client.delete_push(task_id, "mine"),
}
OTHERS = {
    "send new": lambda client: client.send(),
    "stream new": lambda client: client.stream(),
    "list": lambda client: client.list(),
}


@pytest.fixture(params=[*sorted(ON_A_TASK.keys() - {"resume"}), *over_http("resume")])
def operate(request):
    """operate(client, task_id): one of the operations on a task."""
    return ON_A_TASK[request.param]


@pytest.fixture
def alice_and_bob(client, make_user):
    """Clients of two users."""
    make_user("alice"), make_user("bob")
    return client.as_("alice"), client.as_("bob")


def refusal(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


def unchanged(owner, task):
    assert owner.get(task["id"]) == task
    assert owner.get_push(task["id"], "mine")["url"] == URL


# --- users (CASES 40, 41)


def test_another_users_task_looks_like_none(alice_and_bob, operate):
    alice, bob = alice_and_bob
    task = alice.task("task input:what?")
    alice.create_push(task["id"], id="mine", url=URL)

    theirs, nobodys = [refusal(lambda one=one: operate(bob, one)) for one in (task["id"], "0" * 36)]
    assert theirs.reason == "TASK_NOT_FOUND"
    assert (theirs.status, theirs.response.headers) == (nobodys.status, nobodys.response.headers)
    assert theirs.response.body.replace(task["id"].encode(), b"0" * 36) == nobodys.response.body
    unchanged(alice, task)


def test_lists_are_each_users_own(alice_and_bob, client):
    alice, bob = alice_and_bob
    task = alice.task()

    assert [found["id"] for found in alice.list()["tasks"]] == [task["id"]]
    assert bob.list()["totalSize"] == client.list()["totalSize"] == 0


def test_anonymous_tasks_are_not_a_users(alice_and_bob, client, operate):
    task = client.task("task input:what?")
    client.create_push(task["id"], id="mine", url=URL)
    assert refusal(lambda: operate(alice_and_bob[0], task["id"])).reason == "TASK_NOT_FOUND"
    unchanged(client, task)


def test_another_agents_task_looks_like_none(client, make_client, operate):
    other = make_client(slug="other")
    task = client.task("task input:what?")
    client.create_push(task["id"], id="mine", url=URL)

    assert refusal(lambda: operate(other, task["id"])).reason == "TASK_NOT_FOUND"
    assert other.list()["totalSize"] == 0
    unchanged(client, task)


# --- tenants (CASES 40)


@pytest.fixture(params=["path", "body", "header"])
def tenant_in(request, make_tenant):
    """How the tenant is named: in the path, in the body (or query), in a header."""
    make_tenant("acme"), make_tenant("globex")

    def enter(client, slug):
        if request.param == "header":
            return client.with_headers(X_A2A_Tenant=slug)
        return client.within(slug, tenant_in=request.param)

    return enter


def test_another_tenants_task_looks_like_none(client, make_user, tenant_in, operate):
    make_user("alice")
    alice = client.as_("alice")
    acme = tenant_in(alice, "acme")
    task = acme.task("task input:what?")
    acme.create_push(task["id"], id="mine", url=URL)

    for stranger in (alice, tenant_in(alice, "globex")):
        assert refusal(lambda stranger=stranger: operate(stranger, task["id"])).reason == "TASK_NOT_FOUND"
        assert stranger.list()["totalSize"] == 0
    unchanged(acme, task)
    assert acme.list()["totalSize"] == 1
    assert Task.objects.get().tenant.slug == "acme"


def test_users_are_apart_within_a_tenant(alice_and_bob, make_tenant):
    make_tenant("acme")
    alice, bob = [one.within("acme") for one in alice_and_bob]
    assert refusal(lambda: bob.get(alice.task()["id"])).reason == "TASK_NOT_FOUND"


def test_the_executor_is_told_the_tenant(make_client, make_tenant):
    make_tenant("acme")
    task = make_client("Dump").within("acme").task("x")
    assert task["artifacts"][0]["parts"][0]["data"]["tenant"] == "acme"


@pytest.fixture
def sent_within(client, make_tenant):
    """sent_within(path=…, header=…, query=…, body=…): sends to these tenants, wherever they are named."""
    make_tenant("acme"), make_tenant("globex")

    def send(path="", header=None, query=(), body=""):
        sender = client.within(path)
        url = sender.url + ("/message:send" if client.binding == "rest" else "")
        url += "?" + "&".join(f"tenant={slug}" for slug in query)
        raw = client.send_body({"message": message(), "tenant": body})
        headers = client.headers | {"X-A2A-Tenant": header}
        return client.result(client.site.request("POST", url, raw, headers))["task"]

    return send


PLACES = [("path", "acme"), ("header", "acme"), ("query", ["acme"]), ("body", "acme")]
OTHER = [("path", "globex"), ("header", "globex"), ("header", "acme,globex"), ("query", ["globex"]), ("body", "globex")]


@pytest.mark.http
@pytest.mark.parametrize(("first", "second"), [(a, b) for a in PLACES for b in OTHER if a[0] != b[0]])
def test_two_tenants_in_one_call_are_refused(sent_within, first, second):
    """CASES 40: body, path, header and query must agree."""
    error = refusal(lambda: sent_within(**dict([first, second])))
    assert (error.reason, error.fields[0]) == ("INVALID_PARAMS", "tenant")
    assert not Task.objects.exists()


@pytest.mark.http
@pytest.mark.parametrize(
    "places", [PLACES[:1], PLACES[1:2], PLACES[2:3], PLACES[3:], PLACES, [("header", "acme, acme")]]
)
def test_a_tenant_may_be_named_anywhere_and_again(sent_within, places):
    sent_within(**dict(places))
    assert Task.objects.get().tenant.slug == "acme"


@pytest.mark.http
@pytest.mark.parametrize("slug", ["a%00b", "%ED%A0%80", "acme%00"])
@pytest.mark.parametrize("place", ["query", "header"])
def test_a_tenant_that_no_database_could_look_for(sent_within, place, slug):
    """CASES 18: the same on every database."""
    given = [slug] if place == "query" else slug.replace("%00", "\0")
    assert refusal(lambda: sent_within(**{place: given})).reason in ("NOT_FOUND", "INVALID_PARAMS")
    assert not Task.objects.exists()


@pytest.mark.parametrize("slug", ["nobody", "off"])
def test_unknown_and_disabled_tenants(client, make_tenant, tenant_in, slug):
    make_tenant("off", enabled=False)
    client = tenant_in(client, slug)
    for call in OTHERS.values():
        assert refusal(lambda call=call: call(client)).reason == "NOT_FOUND"
    assert not Task.objects.exists()


def test_the_tenant_header_can_be_turned_off(client, make_tenant, a2a):
    make_tenant("acme")
    a2a(TENANT_HEADER="")
    client.with_headers(X_A2A_Tenant="acme").task()
    assert Task.objects.get().tenant is None


# --- anonymous callers


def test_denied(make_client, operate):
    client = make_client(anonymous_access="denied")
    error = refusal(lambda: operate(client, "x"))
    assert (error.reason, error.status) == ("UNAUTHENTICATED", 401)


def test_denied_for_what_needs_no_task(make_client):
    client = make_client(anonymous_access="denied")
    for call in (*OTHERS.values(), lambda client: client.extended_card()):
        assert refusal(lambda call=call: call(client)).status == 401
    assert not Task.objects.exists()


def test_by_id_knows_the_id_and_no_list(make_client):
    client = make_client(anonymous_access="by_id")
    task = client.task("task input:what?")

    assert client.get(task["id"]) == task
    assert client.list() == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    assert state(client.follow(task, "completed")) == "COMPLETED"


def test_shared_is_one_scope(client):
    task = client.task()
    assert [found["id"] for found in client.copy().list()["tasks"]] == [task["id"]]


@pytest.mark.parametrize("access", ["denied", "by_id", "shared"])
def test_a_task_made_anonymously_is_out_of_reach_once_that_is_denied(make_client, access):
    client = make_client(anonymous_access="shared")
    task = client.task()
    Task.objects.get().agent.__class__.objects.update(anonymous_access=access)

    if access == "denied":
        assert refusal(lambda: client.get(task["id"])).status == 401
    else:
        assert client.get(task["id"]) == task


# --- credentials (CASES 7, 8)


@pytest.fixture
def closed(site, binding, make_agent, make_user):
    """A client of an agent for users only, with the site's default authenticators: access token and session."""
    make_user("alice", password="secret", is_staff=True)
    make_agent(executor="tests.executors.Script", anonymous_access="denied")
    return CLIENTS[binding](site)


def card_schemes(site):
    return site.get("/a2a/test/.well-known/agent-card.json").json()["securitySchemes"]


def test_a_token_needs_no_csrf_token(closed, make_token):
    """CASES 7."""
    client = closed.as_(make_token(User.objects.get()))
    assert state(client.with_headers(Origin="https://evil.test").task()) == "COMPLETED"
    assert Turn.objects.get().user.username == "alice"


@pytest.mark.parametrize("credentials", ["", "alice", "a2a_", f"a2a_{'x' * 8}_{'x' * 43}"])
def test_no_or_wrong_credentials(closed, credentials):
    """CASES 8: 401, with a challenge that the card declares."""
    error = refusal((closed.as_(credentials) if credentials else closed).send)

    assert (error.status, error.reason) == (401, "UNAUTHENTICATED")
    challenge = error.response.headers["www-authenticate"].split()[0]
    assert challenge in [
        one.get("httpAuthSecurityScheme", {}).get("scheme") for one in card_schemes(closed.site).values()
    ]
    assert not Task.objects.exists()


@pytest.mark.parametrize(
    "value",
    [
        *("Basic", "Basic !!!", "Basic YQ==", "Basic a b", "Bearer x", "nonsense"),
        *over_http("Basic \xff"),
    ],
)
def test_nonsense_for_credentials(closed, value):
    error = refusal(closed.with_headers(Authorization=value).send)
    assert error.status == 401


def test_a_disabled_user_is_nobody(closed, make_token):
    client = closed.as_(make_token(User.objects.get()))
    assert state(client.task()) == "COMPLETED"
    User.objects.update(is_active=False)
    assert refusal(client.send).status == 401


def session_cookie():
    session = SessionStore()
    user = User.objects.get(username="alice")
    session["_auth_user_id"] = str(user.pk)
    session["_auth_user_backend"] = "django.contrib.auth.backends.ModelBackend"
    session["_auth_user_hash"] = user.get_session_auth_hash()
    session.create()
    return session.session_key


@pytest.mark.http
def test_a_session_without_csrf_token_is_refused(closed):
    """CASES 7: else any page could use the agents in its visitors' name."""
    client = closed.with_headers(Cookie=f"sessionid={session_cookie()}", Origin="https://evil.test")
    for call in (client.send, client.stream):
        error = refusal(call)
        assert (error.status, error.reason) == (403, "PERMISSION_DENIED")
    assert not Task.objects.exists()


@pytest.mark.http
def test_a_session_with_csrf_token_is_fine(closed):
    token = "a" * 32
    client = closed.with_headers(Cookie=f"sessionid={session_cookie()}; csrftoken={token}", X_CSRFToken=token)
    assert state(client.task()) == "COMPLETED"
    assert client.stream().all()

    for wrong in (None, "b" * 32):
        assert refusal(client.with_headers(X_CSRFToken=wrong).send).status == 403


@pytest.mark.http
def test_a_form_carries_no_csrf_token_in(closed):
    """A form of another site can be sent without a preflight."""
    token = "a" * 32
    headers = {"Cookie": f"sessionid={session_cookie()}; csrftoken={token}"}
    for content_type in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"):
        response = closed.post_raw(f"csrfmiddlewaretoken={token}".encode(), headers | {"Content-Type": content_type})
        assert refusal(lambda response=response: closed.result(response)).status == 403


def test_a_user_without_permission(client, make_user, a2a):
    """CASES 8."""
    make_user("alice"), make_user("boss", is_staff=True)
    a2a(PERMISSION_CLASSES=["rest_framework.permissions.IsAdminUser"])

    assert refusal(client.as_("alice").send).status == 403
    assert refusal(client.send).status == 401
    assert state(client.as_("boss").task()) == "COMPLETED"
    assert client.site.get("/a2a/test/.well-known/agent-card.json").status == 200


def test_throttling(client, a2a):
    """CASES 6."""
    a2a(THROTTLE_CLASSES=["tests.bindings.test_access.Never"])
    error = refusal(client.send)

    assert (error.status, error.reason) == (429, "TOO_MANY_REQUESTS")
    assert error.response.headers["retry-after"] == "8"


class Never:
    def allow_request(self, request, view):
        return False

    def wait(self):
        return 7.2


def test_site_wide_rest_framework_settings_do_not_reach_us(client, settings, binding, gate):
    """DESIGN 2: neither permissions nor renderers, error handlers or the anonymous user."""
    before = client.get(client.task()["id"]), refusal(lambda: client.get("x")).response.body
    settings.REST_FRAMEWORK = {
        "DEFAULT_AUTHENTICATION_CLASSES": [],
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAdminUser"],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.BrowsableAPIRenderer"],
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.FormParser"],
        "DEFAULT_THROTTLE_CLASSES": ["tests.bindings.test_access.Never"],
        "DEFAULT_CONTENT_NEGOTIATION_CLASS": "tests.bindings.test_access.nothing",
        "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.AcceptHeaderVersioning",
        "EXCEPTION_HANDLER": "tests.bindings.test_access.nothing",
        "UNAUTHENTICATED_USER": None,
        "UNAUTHENTICATED_TOKEN": None,
        "URL_FORMAT_OVERRIDE": "format",
    }
    client = client.with_headers(Accept="text/html; version=7")

    assert client.get(before[0]["id"]) == before[0]
    assert refusal(lambda: client.get("x")).response.body == before[1]
    assert state(client.task()) == "COMPLETED"
    assert client.stream().all()


def nothing(*args):
    raise AssertionError("not asked for")


def test_a_disabled_agent_is_not_found(client, operate):
    task = client.task("task input:what?")
    Task.objects.get().agent.__class__.objects.update(enabled=False)

    for call in (lambda: operate(client, task["id"]), client.send, client.list, client.extended_card):
        assert refusal(call).reason == "NOT_FOUND"
    assert client.site.get("/a2a/test/.well-known/agent-card.json").status == 404
