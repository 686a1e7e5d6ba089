"""GetTask and ListTasks over every binding."""

import pytest

from tests.clients import Error, artifact, message, state, words
from tests.clients_grpc import over_http


def refused(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


@pytest.mark.v0_3
def test_get_of_a_running_task_has_what_was_said_so_far(client, gate, said):
    task = client.task("task artifact:a:one append:a:two working:busy wait:here completed", returnImmediately=True)
    gate("here").reached()
    said(task["id"], 4)
    stream = client.subscribe(task["id"])
    seen = next(stream).data["task"]

    found = client.get(task["id"])
    assert (state(found), artifact(found)) == ("WORKING", "onetwo")
    assert found["status"]["message"]["parts"] == [{"text": "busy"}]
    assert seen == found


@pytest.mark.v0_3
def test_get_of_an_unknown_task(client):
    error = refused(lambda: client.get("nobody's"))
    assert error.reason == "TASK_NOT_FOUND"
    assert error.metadata == {"taskId": "nobody's"}


@pytest.mark.v0_3
def test_an_artifact_that_is_begun_again_is_replaced(client):
    assert artifact(client.task("task artifact:a:old append:a:er artifact:a:new completed")) == "new"


@pytest.mark.v0_3
def test_many_chunks_are_one_artifact(client):
    """CASES 46: the whole equals the concatenation."""
    task = client.task("task chunks:500 completed")
    assert artifact(task) == "".join(f"{count:019d} " for count in range(500))


# --- lists


def test_an_empty_list_has_all_its_fields(client):
    """CASES 77."""
    assert client.list() == {"tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0}
    assert client.list(pageSize=7)["pageSize"] == 7


def test_artifacts_are_listed_on_request_only(client):
    """CASES 77."""
    client.task("task completed")
    client.task("task artifact:a:b completed")

    assert ["artifacts" in task for task in client.list()["tasks"]] == [False, False]
    assert ["artifacts" in task for task in client.list(includeArtifacts=False)["tasks"]] == [False, False]
    shown = [task["artifacts"] for task in client.list(includeArtifacts=True)["tasks"]]
    assert [[item["artifactId"] for item in artifacts] for artifacts in shown] == [["a"], []]


def test_a_list_is_newest_first_and_comes_in_pages(client):
    made = [client.task(f"task completed:{count}")["id"] for count in range(5)]
    pages, token = [], ""
    while not pages or token:
        page = client.list(pageSize=2, pageToken=token)
        assert (page["totalSize"], page["pageSize"]) == (5, 2)
        pages.append([task["id"] for task in page["tasks"]])
        token = page["nextPageToken"]

    assert [len(page) for page in pages] == [2, 2, 1]
    found = [task_id for page in pages for task_id in page]
    assert sorted(found) == sorted(made)
    times = [client.get(task_id)["status"]["timestamp"] for task_id in found]
    assert times == sorted(times, reverse=True)


def test_pages_neither_repeat_nor_skip_when_tasks_come_in_between(client):
    made = [client.task()["id"] for _ in range(3)]
    first = client.list(pageSize=2)
    client.task()
    second = client.list(pageSize=2, pageToken=first["nextPageToken"])

    assert sorted(task["id"] for page in (first, second) for task in page["tasks"]) == sorted(made)


def test_filters(client):
    done = client.task(message("task completed", contextId="one"))
    asked = client.task(message("task input:what?", contextId="two"))

    def ids(**filters):
        return [task["id"] for task in client.list(**filters)["tasks"]]

    assert ids(contextId="one") == [done["id"]]
    assert ids(contextId="ONE") == []
    assert ids(status="TASK_STATE_INPUT_REQUIRED") == [asked["id"]]
    assert ids(status="TASK_STATE_COMPLETED", contextId="two") == []
    assert ids(statusTimestampAfter=asked["status"]["timestamp"])[0] == asked["id"]
    assert ids(statusTimestampAfter="2199-01-01T00:00:00Z") == []
    assert client.list(contextId="one")["totalSize"] == 1


@pytest.mark.parametrize("size", [0, 101, -1, *over_http(2**31, "abc", 1.5)])
def test_page_sizes_that_are_refused(client, size):
    """CASES 26."""
    error = refused(lambda: client.list(pageSize=size))
    assert (error.reason, error.fields) == ("INVALID_PARAMS", ["pageSize"])


@pytest.mark.parametrize("size", [1, 100])
def test_page_sizes_that_are_fine(client, size):
    assert client.list(pageSize=size)["pageSize"] == size


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pageToken", "made-up"),
        *over_http(
            ("status", "TASK_STATE_RUNNING"),
            ("status", "completed"),
            ("statusTimestampAfter", "yesterday"),
            ("historyLength", 2**31),
            ("includeArtifacts", "yes"),
        ),
    ],
)
def test_filters_that_are_refused(client, field, value):
    """CASES 22, 26: never "no filter"."""
    client.task()
    error = refused(lambda: client.list(**{field: value}))
    assert (error.reason, error.fields) == ("INVALID_PARAMS", [field])


def test_a_page_token_is_bound_to_caller_and_filters(client, make_user):
    make_user("alice"), make_user("bob")
    alice, bob = client.as_("alice"), client.as_("bob")
    for _ in range(2):
        alice.task(message("task completed", contextId="c"))
    token = alice.list(pageSize=1, contextId="c")["nextPageToken"]

    assert len(alice.list(pageSize=1, contextId="c", pageToken=token)["tasks"]) == 1
    for call in (
        lambda: bob.list(pageSize=1, contextId="c", pageToken=token),
        lambda: alice.list(pageSize=1, contextId="d", pageToken=token),
        lambda: alice.list(pageSize=1, pageToken=token),
    ):
        assert refused(call).fields == ["pageToken"]


def test_hidden_tasks_are_nowhere(client, gate):
    """A task is seen from its first event on."""
    pending = client.sending("wait:here message:hello")
    gate("here").reached()

    assert client.list()["totalSize"] == 0
    gate("here").open()
    task_id = pending()["message"].get("taskId", "none")
    assert refused(lambda: client.get(task_id)).reason == "TASK_NOT_FOUND"
    assert client.list()["totalSize"] == 0


@pytest.mark.v0_3
def test_words_are_kept_as_they_are(client):
    assert words(client.get(client.task("task completed:ü")["id"])) == ["task completed:ü"]
