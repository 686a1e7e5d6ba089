"""What is limited, over every binding: calls, wrong credentials, running tasks, open streams, sizes (A2A 13.4)."""

import pytest
from django.core.cache import caches

from a2a_django.models import Task, Turn
from a2a_django.operations import quotas
from a2a_django.throttling import FailureThrottle, Throttle
from tests.clients import Error, kinds, message, state
from tests.clients_v0_3 import LEGACY

TOKENS = ["a2a_django.authentication.AccessTokenAuthentication"]
HERE, THERE = "8.8.8.8", "9.9.9.9"


@pytest.fixture(autouse=True)
def fresh(settings):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    caches["default"].clear(), FailureThrottle.own.clear()
    yield
    FailureThrottle.own.clear()


@pytest.fixture
def clock(monkeypatch):
    """clock.now is what throttles take for the time."""

    class Clock:
        now = 6000.0

    monkeypatch.setattr(Throttle, "timer", lambda self: Clock.now)
    return Clock


def refusal(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


def told(error):
    """Seconds after which the client is told to come again, by header and by details alike."""
    assert (error.reason, error.status) == ("TOO_MANY_REQUESTS", 429)
    (retry,) = [detail for detail in error.details if detail["@type"].endswith("google.rpc.RetryInfo")]
    assert retry["retryDelay"] == f"{error.response.headers['retry-after']}s"
    return int(error.response.headers["retry-after"])


def refused(call):
    """`call` is refused by a limit."""
    return told(refusal(call))


def from_(client, address):
    """`client` at that address, behind a proxy of this machine."""
    return client.with_headers(X_Forwarded_For=address)


# --- calls


@pytest.mark.v0_3
def test_calls_of_one_credential(client, a2a, make_user, make_token, clock):
    ann = make_user()
    first, second = [client.as_(make_token(ann, name=name)) for name in ("first", "second")]
    a2a(THROTTLE_RATE="2/min", AUTHENTICATION_CLASSES=TOKENS)
    clock.now += 17.5
    for one in (first, second, client):
        assert state(one.task()) == "COMPLETED"
        assert one.stream().all()
    for one in (first, second, client):
        assert refused(one.send) == 43
        assert refused(one.stream) == 43
    assert Task.objects.count() == 6
    assert from_(client, THERE).task()

    clock.now += 43
    assert state(first.task()) == "COMPLETED"


def test_calls_that_are_wrong_count_too(client, a2a):
    """Before they are read."""
    a2a(THROTTLE_RATE="2/day")
    for _ in range(2):
        assert refusal(lambda: client.copy(agent="nobody").send()).reason == "NOT_FOUND"
    assert refused(client.copy(agent="nobody").send)


@pytest.fixture(params=["path", "body"])
def within(request, client, make_tenant):
    """within(slug, **limits): the client within a new tenant, which it names there."""

    def make(slug="acme", **limits):
        make_tenant(slug, **limits)
        return client.within(slug, tenant_in=request.param)

    return make


def test_calls_within_a_tenant(client, within, a2a, make_user, clock):
    """By all callers together; the tenant's own number goes before the site's."""
    make_user(), make_user("bob")
    acme, other = within(requests_per_minute=2), within("other")
    a2a(TENANT_THROTTLE_RATE="3/hour")
    clock.now = 7230.0
    assert acme.as_("ann").list()
    assert acme.as_("bob").list()
    for name in ("ann", "bob"):
        assert refused(acme.as_(name).list) == 30
        assert refused(acme.as_(name).send) == 30
    assert not Task.objects.exists()

    for _ in range(3):
        other.list()
    assert refused(other.list) == 3570
    assert client.list()
    clock.now += 30
    assert acme.list()


def test_calls_that_are_not_let_into_a_tenant_do_not_count(client, within, a2a, make_user, make_token, make_tenant):
    """Else others could use up what it may do."""
    acme = within(requests_per_minute=1)
    foreign = make_token(make_user(), tenant=make_tenant("other"))
    a2a(AUTHENTICATION_CLASSES=TOKENS)
    for _ in range(2):
        assert refusal(acme.as_(foreign).list).reason == "NOT_FOUND"
        assert refusal(acme.as_("a2a_wrong").list).reason == "UNAUTHENTICATED"
    assert acme.list()
    assert refused(acme.list)


# --- wrong credentials


@pytest.fixture
def guesses(client, a2a, make_user, make_token):
    """A client with a token, at a site that lets each address guess three times a minute; and one that guesses."""
    token = make_token(make_user())
    a2a(AUTHENTICATION_CLASSES=TOKENS, FAILURE_THROTTLE_RATE="3/min")
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    return client.as_(token), client.as_(wrong)


@pytest.mark.v0_3
def test_who_guesses_credentials_is_refused(guesses, clock):
    right, wrong = guesses
    clock.now += 50
    for _ in range(2):
        assert refusal(from_(wrong, HERE).send).status == 401
        assert state(from_(right, HERE).task()) == "COMPLETED"
    assert refusal(from_(wrong, HERE).send).status == 401
    assert refused(from_(wrong, HERE).send) == 10
    assert refused(from_(right, HERE).send) == 10
    assert state(from_(right, THERE).task()) == "COMPLETED"
    clock.now += 10
    assert state(from_(right, HERE).task()) == "COMPLETED"


def test_who_is_refused_is_not_looked_up(guesses, monkeypatch):
    _, wrong = guesses
    for _ in range(3):
        refusal(from_(wrong, HERE).list)
    monkeypatch.setattr("a2a_django.authentication._find", lambda text: pytest.fail("It was looked up."))
    assert refused(from_(wrong, HERE).list)


@pytest.mark.parametrize("credentials", ["Bearer of-another-kind", "Digest x", "Bearer a2a_"])
def test_credentials_that_nobody_takes_count(client, guesses, credentials):
    for _ in range(3):
        assert refusal(from_(client.with_headers(Authorization=credentials), HERE).list).status == 401
    assert refused(from_(client, HERE).list)


def test_calls_without_credentials_are_no_guesses(client, guesses, make_client):
    closed = make_client(slug="closed", anonymous_access="denied")
    for _ in range(5):
        assert refusal(from_(closed, HERE).list).status == 401
    assert from_(client, HERE).list()


def test_a_proxy_that_tells_no_addresses_locks_nobody_out(guesses):
    right, wrong = guesses
    for _ in range(5):
        assert refusal(wrong.list).status == 401
    assert right.list()


def test_guesses_may_be_left_uncounted(guesses, a2a):
    right, wrong = guesses
    a2a(AUTHENTICATION_CLASSES=TOKENS, FAILURE_THROTTLE_RATE=None)
    for _ in range(5):
        assert refusal(from_(wrong, HERE).list).status == 401
    assert from_(right, HERE).list()


@pytest.mark.http
def test_cards_are_read_from_everywhere(guesses):
    right, wrong = guesses
    for _ in range(3):
        refusal(from_(wrong, HERE).list)
    for path in ("/a2a/test/.well-known/agent-card.json", "/a2a/jwks.json"):
        assert right.site.get(path, **{"x-forwarded-for": HERE}).status == 200


# --- tasks that run


@pytest.mark.v0_3
@pytest.mark.parametrize("name", ["send", "stream"])
def test_tasks_that_run_outside_of_tenants(client, gate, a2a, make_user, eventually, name):
    """Each user has a quota; anonymous callers have one together."""
    make_user(), make_user("bob")
    a2a(RUNNING_TASKS=2)
    ann = client.as_("ann")
    for count in range(2):
        ann.task(f"task working wait:{count} completed", returnImmediately=True)
    assert refused(getattr(ann, name)) == 5
    assert Task.objects.count() == Turn.objects.count() == 2
    assert state(client.as_("bob").task()) == state(client.task()) == "COMPLETED"

    gate("0").open()
    eventually(lambda: Turn.objects.filter(state="running").count() == 1)
    assert state(ann.task()) == "COMPLETED"


def test_tasks_that_run_within_a_tenant(client, within, gate, a2a, make_user, eventually):
    """Those of all its members, and of all its agents; the tenant's own number goes before the site's."""
    make_user(), make_user("bob")
    acme, other = within(running_tasks=1), within("other")
    a2a(RUNNING_TASKS=2)
    acme.as_("ann").task("task working wait:a completed", returnImmediately=True)
    assert refused(acme.as_("bob").send)
    for _ in range(2):
        other.task("task working wait:a completed", returnImmediately=True)
    assert refused(other.send)
    assert state(client.as_("ann").task()) == "COMPLETED"
    gate("a").open()
    eventually(lambda: not Turn.objects.exclude(state="done").exists())
    assert state(acme.as_("bob").task()) == state(other.task()) == "COMPLETED"


@pytest.mark.v0_3
def test_tasks_that_wait_for_their_client_do_not_run(client, gate, a2a):
    a2a(RUNNING_TASKS=1)
    asked = [client.task("task input:what?") for _ in range(3)]
    assert state(client.follow(asked[0], "input:more?")) == "INPUT_REQUIRED"
    running = client.follow(asked[0], "working wait:a completed", returnImmediately=True)
    assert refused(lambda: client.follow(asked[1], "completed"))
    assert state(client.get(asked[1]["id"])) == "INPUT_REQUIRED"

    # What a task that runs is told besides needs no room of its own.
    client.follow(running, "completed", returnImmediately=True)
    gate("a").open()
    assert client.subscribe(asked[1]["id"]).close() is None


def test_an_ended_task_is_told_to_have_ended(client, a2a):
    """That it may be sent later would be wrong."""
    done = client.task()
    a2a(RUNNING_TASKS=1)
    client.task("task working wait:a completed", returnImmediately=True)
    assert refusal(lambda: client.follow(done, "x")).reason == "UNSUPPORTED_OPERATION"


def test_a_message_that_comes_again_joins_its_first_send(client, gate, a2a, make_user):
    """That one is what has used the quota up."""
    make_user()
    a2a(RUNNING_TASKS=1)
    said, ann = message("task working wait:a completed"), client.as_("ann")
    task = ann.task(said, returnImmediately=True)
    assert ann.task(said, returnImmediately=True)["id"] == task["id"]
    assert refused(lambda: ann.send(message("task completed")))
    waiting = ann.sending(said)
    gate("a").open()
    assert waiting()["task"]["id"] == task["id"]


# --- streams that are open


@pytest.mark.v0_3
def test_streams_that_are_open(client, gate, a2a, make_user, eventually):
    """Each user has a quota, which nothing is stored beyond; who leaves makes room."""
    make_user()
    a2a(OPEN_STREAMS=2)
    sent = client.stream("task working wait:a completed")
    task = next(sent).data["task"]
    subscribed = client.subscribe(task["id"])
    next(subscribed)
    assert refused(lambda: client.subscribe(task["id"])) == 5
    assert refused(client.stream) == 5
    assert Task.objects.count() == 1
    assert state(client.task()) == "COMPLETED"
    assert kinds(client.as_("ann").stream().all())[-1] == "COMPLETED"

    subscribed.close()
    eventually(lambda: sum(quotas._open.values()) == 1)
    again = client.subscribe(task["id"])
    next(again)
    gate("a").open()
    assert kinds(sent.all())[-1] == kinds(again.all())[-1] == "COMPLETED"
    eventually(lambda: not quotas._open)
    assert client.stream().all()


@pytest.mark.v0_3
def test_streams_that_never_begin_take_no_room(client, a2a, eventually):
    a2a(OPEN_STREAMS=1)
    for _ in range(3):
        assert refusal(lambda: client.subscribe("no-task")).reason == "TASK_NOT_FOUND"
        assert refusal(lambda: client.stream("fails-before-it-says-anything").all()).reason
    eventually(lambda: not quotas._open)


def test_streams_within_a_tenant(client, within, gate, a2a, make_user):
    make_user()
    acme, other = within(open_streams=1), within("other")
    stream = acme.as_("ann").stream("task working wait:a completed")
    next(stream)
    assert refused(acme.stream)
    for one in (other, client):
        assert one.stream().all()
    gate("a").open()
    assert stream.all()


# --- sizes (CASES 9)


def test_the_size_of_a_call_within_a_tenant(client, within, a2a):
    acme, unlimited = within(max_body_bytes=2000), within("other", max_body_bytes=10**9)
    a2a(MAX_BODY_BYTES=20_000)
    large, too_large = message("task completed " + "x" * 2000), message("x" * 20_000)
    error = refusal(lambda: acme.send(large))
    assert error.reason == "PAYLOAD_TOO_LARGE"
    assert "2000 bytes" in error.message
    assert error.status == (429 if client.binding == "grpc" else 413)
    assert not Task.objects.exists()
    assert state(acme.task()) == state(unlimited.task(large)) == state(client.task(large)) == "COMPLETED"
    if client.binding != "grpc":  # whose server was started with another setting
        assert refusal(lambda: unlimited.send(too_large)).reason == "PAYLOAD_TOO_LARGE"


def test_a_call_that_is_too_large_does_not_count(within):
    acme = within(max_body_bytes=2000, requests_per_minute=1)
    for _ in range(2):
        assert refusal(lambda: acme.send("x" * 2000)).reason == "PAYLOAD_TOO_LARGE"
    assert acme.list()


@pytest.mark.http
def test_a_body_that_is_too_large_for_its_tenant_is_not_parsed(client, make_tenant):
    """REST knows the tenant by then; JSON-RPC has to read the method first."""
    make_tenant(max_body_bytes=2000)
    response = client.within("acme").post_raw(b"[" * 3000)
    reason = refusal(lambda: client.result(response)).reason
    assert reason == ("PAYLOAD_TOO_LARGE" if client.binding == "rest" else "INVALID_JSON")


# --- gRPC of 0.3


@pytest.mark.parametrize("binding", ["grpc"], indirect=True)
def test_clients_of_0_3_over_grpc(make_client, make_tenant, gate, a2a, make_user):
    client = make_client(is_default=True)
    legacy = LEGACY["grpc"](client.site)
    make_tenant(requests_per_minute=1, max_body_bytes=1000)
    a2a(RUNNING_TASKS=1, OPEN_STREAMS=1)
    stream = legacy.stream("task working wait:a completed")
    assert refused(legacy.send) == 5
    assert refused(legacy.stream) == 5
    stream.close()
    acme = legacy.with_headers(X_A2A_Tenant="acme")
    assert refusal(lambda: acme.send("x" * 1000)).reason == "PAYLOAD_TOO_LARGE"
    assert acme.task()
    assert refused(acme.send)
