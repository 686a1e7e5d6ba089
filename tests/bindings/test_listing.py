"""ListTasks: filters, pages and tokens (A2A 3.1.4; CASES 77), over every binding."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from a2a_django.models import Task
from a2a_django.protocol import codec
from a2a_django.protocol.states import TaskState
from tests.clients import Error, message, words

THEN = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def put(client, make_task):
    """put(milliseconds after THEN, **fields): the id of a task with a status of that time."""

    def put(milliseconds=0, state="TASK_STATE_COMPLETED", **fields):
        task = make_task(state=state, **fields)
        move(task.pk, milliseconds)
        return task.pk

    return put


def move(task_id, milliseconds):
    """As if a new status of that time had come."""
    moment = THEN + timedelta(milliseconds=milliseconds)
    task = Task.objects.get(pk=task_id)
    status = codec.loads(task.status) | {"timestamp": codec.timestamp(moment)}
    Task.objects.filter(pk=task_id).update(status=codec.dumps(status), status_timestamp=moment)


def ids(client, **request):
    return [task["id"] for task in client.list(**request)["tasks"]]


def refused(call):
    with pytest.raises(Error) as error:
        call()
    assert error.value.reason == "INVALID_PARAMS"
    return error.value.fields


# --- filters


def test_each_state_is_a_filter(client, put):
    tasks = {state.value: put(count, state.value) for count, state in enumerate(TaskState)}

    for state, task_id in tasks.items():
        found = client.list(status=state)
        assert ([task["id"] for task in found["tasks"]], found["totalSize"]) == ([task_id], 1)
    assert ids(client) == list(reversed(tasks.values()))


@pytest.mark.http  # protobuf has no other word for "no filter"
def test_the_state_that_is_none_is_no_filter(client):
    assert refused(lambda: client.list(status="TASK_STATE_UNSPECIFIED")) == ["status"]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-01-31T12:00:00.001Z", [2, 1]),
        ("2026-01-31T14:00:00.001+02:00", [2, 1]),
        ("2026-01-31T12:00:00.000500Z", [2, 1]),
        ("2026-01-31T12:00:00.0010001Z", [2, 1]),
        ("2026-01-31T12:00:00.001001Z", [2]),
        ("2026-01-31T12:00:00Z", [2, 1, 0]),
        ("2026-01-31T12:00:00.003Z", []),
        ("0001-01-01T00:00:00Z", [2, 1, 0]),
        ("9999-12-31T23:59:59.999999999Z", []),
    ],
)
def test_status_timestamp_after_includes_its_instant(client, put, after, expected):
    tasks = [put(count) for count in range(3)]
    found = client.list(statusTimestampAfter=after)

    assert [task["id"] for task in found["tasks"]] == [tasks[number] for number in expected]
    assert found["totalSize"] == len(expected)


def test_filters_narrow_each_other(client, put):
    put(0, context_id="c")
    put(1, context_id="c", state="TASK_STATE_WORKING")
    wanted = [put(2, context_id="c"), put(3, context_id="c")]
    put(4)
    both = {"contextId": "c", "status": "TASK_STATE_COMPLETED", "statusTimestampAfter": "2026-01-31T12:00:00.001Z"}

    assert ids(client, **both) == wanted[::-1]
    first = client.list(**both, pageSize=1)
    assert (first["totalSize"], first["pageSize"]) == (2, 1)
    assert ids(client, **both, pageSize=1, pageToken=first["nextPageToken"]) == wanted[:1]


@pytest.mark.parametrize("shown", [{}, {"historyLength": 0, "includeArtifacts": True}, {"status": "TASK_STATE_FAILED"}])
def test_an_empty_page_has_all_its_fields(client, put, shown):
    """CASES 77."""
    put()
    token = {"contextId": "nobody's"}
    assert client.list(**shown, **token) == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}


def test_what_is_shown_of_a_task(client):
    """CASES 44, 77: history as long as wanted, artifacts only on request, and the rest as GetTask has it."""
    asked = client.task(message("task artifact:a:b input:what?", contextId="c"))
    client.follow(asked, "completed:done")
    whole = client.get(asked["id"])

    assert client.list(includeArtifacts=True)["tasks"] == [whole]
    (short,) = client.list(historyLength=1)["tasks"]
    assert (words(short), "artifacts" in short, short["status"]) == (["completed:done"], False, whole["status"])
    (bare,) = client.list(historyLength=0)["tasks"]
    assert bare == {"id": whole["id"], "contextId": "c", "status": whole["status"]}


# --- pages


@pytest.mark.parametrize("seed", range(4))
def test_pages_never_skip_or_repeat_a_task_that_stays_as_it_is(client, put, seed):
    """Whatever the size of a page, however many have the same time, whatever comes and changes in between."""
    dice = random.Random(seed)
    tasks = [put(dice.randrange(4)) for _ in range(24)]
    still, changed, clock = set(tasks), set(), 100
    found, token, sizes = [], "", set()
    while token or not found:
        page = client.list(pageSize=dice.randint(1, 5), pageToken=token)
        sizes.add(page["totalSize"])
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        for _ in range(dice.randrange(3)):
            clock += 1
            if dice.random() < 0.5:
                put(clock)
            else:
                changed.add(touched := dice.choice(tasks))
                move(touched, clock)
    still -= changed

    assert [task_id for task_id in found if task_id in still] == order(still)
    assert len(found) == len(set(found))
    assert min(sizes) == 24


def order(task_ids):
    """As the specification wants them: the newest status first."""
    rows = Task.objects.filter(pk__in=task_ids).values_list("status_timestamp", "pk")
    return [task_id for _, task_id in sorted(rows, reverse=True)]


def test_the_last_page_may_be_full(client, put):
    tasks = [put(0) for _ in range(4)]
    first = client.list(pageSize=2)
    second = client.list(pageSize=2, pageToken=first["nextPageToken"])

    assert (len(second["tasks"]), second["nextPageToken"]) == (2, "")
    assert sorted(task["id"] for page in (first, second) for task in page["tasks"]) == sorted(tasks)


def test_the_task_at_which_a_page_ended_may_have_gone(client, put):
    tasks = [put(count) for count in range(3)]
    token = client.list(pageSize=1)["nextPageToken"]
    Task.objects.get(pk=tasks[2]).delete()

    assert ids(client, pageToken=token) == [tasks[1], tasks[0]]


# --- tokens


@pytest.fixture
def token(client, put):
    """The token of a first page of two."""
    put(0, context_id="c"), put(1, context_id="c")
    return client.list(pageSize=1, contextId="c")["nextPageToken"]


def test_a_token_lets_size_and_what_is_shown_change(client, token):
    """They don't select; what does is sealed into the token."""
    request = {"contextId": "c", "pageToken": token, "pageSize": 7, "historyLength": 0, "includeArtifacts": True}
    assert len(ids(client, **request)) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token[:-1],
        lambda token: token[1:],
        lambda token: token.replace(":", "", 1),
        lambda token: "x" + token,
        lambda token: token + "=",
        lambda token: token.swapcase(),
        lambda token: "ü\N{GRINNING FACE}:" + token,
        lambda token: "x" * 5000,
        lambda token: ":::",
        lambda token: " ",
    ],
)
def test_a_broken_token_is_refused(client, token, spoil):
    assert refused(lambda: client.list(contextId="c", pageToken=spoil(token))) == ["pageToken"]


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"contextId": "C"},
        {"contextId": "c", "status": "TASK_STATE_COMPLETED"},
        {"contextId": "c", "statusTimestampAfter": "2026-01-31T12:00:00Z"},
    ],
)
def test_a_token_of_another_list_is_refused(client, token, filters):
    assert refused(lambda: client.list(pageToken=token, **filters)) == ["pageToken"]


def test_a_token_of_another_caller_agent_or_tenant_is_refused(client, token, make_user, make_tenant, make_agent):
    make_user("alice"), make_tenant("acme"), make_agent(slug="other")
    for other in (client.as_("alice"), client.within("acme"), client.copy(agent="other")):
        assert refused(lambda other=other: other.list(contextId="c", pageToken=token)) == ["pageToken"]
