"""SendMessage over every binding."""

import json
from base64 import b64decode

import pytest

from a2a_django.models import Message, Task, Turn
from tests.clients import Error, artifact, message, state, words
from tests.clients_grpc import over_http
from tests.executors import SECRET


@pytest.mark.v0_3
def test_blocking_send_answers_with_the_finished_task(client):
    task = client.task("task working artifact:a:hello completed:done")

    assert state(task) == "COMPLETED"
    assert task["artifacts"] == [{"artifactId": "a", "name": "a", "parts": [{"text": "hello"}]}]
    assert words(task) == ["task working artifact:a:hello completed:done"]
    assert task["status"]["message"]["parts"] == [{"text": "done"}]
    assert client.get(task["id"]) == task


def test_a_message_is_answered_by_a_message(client):
    answer = client.send("message:hello")["message"]

    assert answer["parts"] == [{"text": "hello"}]
    assert answer["role"] == "ROLE_AGENT"
    assert not client.list()["tasks"]


@pytest.mark.v0_3
def test_ids_are_the_servers_but_the_context_is_the_clients(client):
    task = client.task(message(contextId="my context/ü", messageId="m-1"))

    assert task["contextId"] == "my context/ü"
    (said,) = task["history"]
    assert (said["messageId"], said["contextId"], said["taskId"]) == ("m-1", "my context/ü", task["id"])
    assert client.task()["contextId"] != client.task()["contextId"]


def test_the_whole_message_reaches_the_executor_and_the_history(make_client):
    parts = [
        {"text": "ü\u2028\n", "mediaType": "text/plain", "filename": "a.txt", "metadata": {"a": None}},
        {"raw": "//4=", "mediaType": "image/png"},
        {"url": "https://example.com/x"},
        {"data": {"n": 1.5, "list": [None, True, {"deep": []}]}},
    ]
    task = make_client("Echo").task(message(parts=parts, extensions=["urn:x"], metadata={"k": {"v": 1}}))

    assert task["artifacts"][0]["parts"] == parts
    (said,) = task["history"]
    assert (said["parts"], said["extensions"], said["metadata"]) == (parts, ["urn:x"], {"k": {"v": 1}})


@pytest.mark.v0_3
def test_what_the_executor_is_told(make_client, make_user):
    """CASES 20: plain data all the way down."""
    make_user("alice")
    client = make_client("Dump").as_("alice").with_headers(A2A_Extensions="urn:a, urn:b ,urn:a")
    said = message("hi", contextId="c")
    metadata = {"a": {"b": [1, None]}}
    task = client.task(said, metadata, acceptedOutputModes=["text/plain"], historyLength=7)

    (part,) = task["artifacts"][0]["parts"]
    assert part["data"] == {
        "message": {**said, "taskId": task["id"]},
        "metadata": metadata,
        "configuration": {"acceptedOutputModes": ["text/plain"], "historyLength": 7},
        "task": None,
        "related": [],
        "user": "alice",
        "authenticated": True,
        "tenant": "",
        "extensions": ["urn:a", "urn:b"],
        "state": {},
    }


@pytest.mark.v0_3
def test_an_executor_uses_the_async_orm(make_client):
    assert artifact(make_client("UsesOrm").task("x")) == "1"


# --- when a send is answered (CASES 47)


@pytest.mark.v0_3
@pytest.mark.parametrize("word", ["input", "auth"])
def test_a_blocking_send_returns_when_the_client_has_the_word(client, word):
    task = client.task(f"task working {word}:please")

    assert state(task) == f"{word.upper()}_REQUIRED"
    assert task["status"]["message"]["parts"] == [{"text": "please"}]


@pytest.mark.v0_3
def test_auth_required_returns_while_the_executor_runs_on(client, gate, eventually):
    task = client.task("task auth:please wait:authorised completed")

    assert state(task) == "AUTH_REQUIRED"
    gate("authorised").open()
    assert eventually(lambda: state(client.get(task["id"])) == "COMPLETED")


@pytest.mark.v0_3
def test_a_send_of_a_turn_that_ends_working_gets_the_task_as_it_is(make_client):
    client = make_client("Unfinished")
    task = client.task("go")

    assert state(task) == "WORKING"
    assert state(client.follow(task, "again")) == "WORKING"


@pytest.mark.v0_3
def test_return_immediately_answers_with_the_first_event(client, gate, eventually):
    task = client.task("task wait:a completed", returnImmediately=True)

    assert state(task) == "SUBMITTED"
    gate("a").open()
    assert eventually(lambda: state(client.get(task["id"])) == "COMPLETED")


@pytest.mark.v0_3
def test_return_immediately_leaves_a_message_a_message(client):
    assert "message" in client.send("message:hello", returnImmediately=True)


@pytest.mark.v0_3
def test_return_immediately_makes_a_silent_task_visible(client, gate, eventually, a2a):
    a2a(IMMEDIATE_WAIT=0.01)
    task = client.task("wait:a message:hello", returnImmediately=True)

    assert (state(task), words(task)) == ("SUBMITTED", ["wait:a message:hello"])
    gate("a").open()
    done = eventually(lambda: (found := client.get(task["id"])) and state(found) == "COMPLETED" and found)
    assert done["status"]["message"]["parts"] == [{"text": "hello"}]


@pytest.mark.v0_3
@pytest.mark.parametrize("script", ["task working wait:a completed", "wait:a task completed"])
def test_blocking_timeout_answers_with_the_task_as_it_is(client, gate, eventually, a2a, script):
    a2a(BLOCKING_TIMEOUT=0.01)
    task = client.task(script)

    assert state(task) in ("SUBMITTED", "WORKING")
    gate("a").open()
    assert eventually(lambda: state(client.get(task["id"])) == "COMPLETED")


def test_a_client_that_goes_away_does_not_stop_the_task(client, gate, eventually):
    """CASES 59: a waiting send."""
    pending = client.sending("task working wait:a completed")
    gate("a").reached()
    pending.exchange.disconnect()

    gate("a").open()
    assert eventually(lambda: [state(task) for task in client.list()["tasks"]] == ["COMPLETED"])


# --- what goes wrong in an executor


@pytest.mark.v0_3
@pytest.mark.parametrize("script", ["task working raise", "working raise", "artifact:a:b raise"])
def test_an_executor_that_raises_fails_the_task_with_a_neutral_message(client, script):
    """CASES 47, 49."""
    task = client.task(script)

    assert state(task) == "FAILED"
    assert SECRET not in json.dumps(task)
    assert task["status"]["message"]["parts"] == [{"text": "The agent could not complete the task."}]
    assert SECRET in Turn.objects.get().error


@pytest.mark.v0_3
def test_an_a2a_error_after_the_first_event_is_the_message_of_the_failed_task(make_client):
    task = make_client("A2AErrorLater").task("x")

    assert state(task) == "FAILED"
    assert task["status"]["message"]["parts"] == [{"text": "The agent says no"}]


def test_an_a2a_error_before_the_first_event_is_the_answer(make_client):
    client = make_client("A2AErrorFirst")
    with pytest.raises(Error, match="The agent says no") as error:
        client.send("x")

    assert error.value.reason == "CONTENT_TYPE_NOT_SUPPORTED"
    assert client.list()["tasks"] == []


@pytest.mark.parametrize(
    ("executor", "reason"),
    [
        ("BoomFirst", "INTERNAL_ERROR"),
        ("Silent", "INVALID_AGENT_RESPONSE"),
        ("TwoMessages", "INVALID_AGENT_RESPONSE"),
    ],
)
def test_an_executor_that_fails_before_its_first_event_is_an_error(make_client, executor, reason):
    client = make_client(executor)
    with pytest.raises(Error) as error:
        client.send("x")

    assert error.value.reason == reason
    assert SECRET.encode() not in error.value.response.body
    assert client.list()["tasks"] == []


@pytest.mark.v0_3
@pytest.mark.parametrize("script", ["task message:oops", "task working stranger:task", "task stranger:context"])
def test_a_breach_of_the_contract_fails_the_task(client, script):
    task = client.task(script)

    assert state(task) == "FAILED"
    assert task["status"]["message"]["parts"] == [{"text": "The agent could not complete the task."}]


@pytest.mark.v0_3
@pytest.mark.parametrize("script", ["task swallow:stranger:task completed", "task swallow:message:x artifact:a:b"])
def test_an_executor_that_swallows_the_breach_fails_all_the_same(client, script):
    assert state(client.task(script)) == "FAILED"


@pytest.mark.v0_3
def test_a_breach_ends_a_turn_that_would_go_on(client):
    """The executor is told by an exception; one that catches it must not keep the caller waiting."""
    assert state(client.task("task swallow:stranger:task hang")) == "FAILED"


@pytest.mark.v0_3
def test_nothing_follows_a_terminal_state(make_client):
    client = make_client("AfterTerminal")
    task = client.task("x")

    assert state(task) == "COMPLETED"
    assert "artifacts" not in client.get(task["id"])


@pytest.mark.v0_3
@pytest.mark.parametrize("executor", ["StatusFirst", "ArtifactFirst", "SecondTask"])
def test_what_is_no_breach(make_client, executor):
    """DESIGN 5.5: no Task first, or one more."""
    task = make_client(executor).task("x")

    assert state(task) == "COMPLETED"
    assert words(task) == ["x"]


def test_nan_from_an_executor_fails_the_task_and_spares_the_list(make_client):
    """CASES 16."""
    client = make_client("NaNArtifact")

    assert state(client.task("x")) == "FAILED"
    assert len(client.list(includeArtifacts=True)["tasks"]) == 1


@pytest.mark.v0_3
def test_bytes_from_an_executor_are_standard_base64(make_client):
    """CASES 23."""
    (part,) = make_client("RawBytes").task("x")["artifacts"][0]["parts"]
    assert part == {"raw": "//4="}


@pytest.mark.v0_3
def test_an_unknown_executor_is_an_error_of_the_server(make_client):
    client = make_client("NoSuch")
    with pytest.raises(Error) as error:
        client.send("x")
    assert error.value.reason == "INTERNAL_ERROR"
    assert "NoSuch" not in error.value.response.body.decode()


# --- follow-ups


@pytest.mark.v0_3
def test_input_required_and_resume(client):
    """CASES 42: the history is whole and each message stands in it once."""
    asked = client.task("task working input:what?")
    done = client.follow(asked, "working artifact:a:this completed")

    assert (done["id"], done["contextId"], state(done)) == (asked["id"], asked["contextId"], "COMPLETED")
    assert words(done) == ["task working input:what?", "what?", "working artifact:a:this completed"]
    assert len({said["messageId"] for said in done["history"]}) == 3
    assert artifact(done) == "this"


@pytest.mark.v0_3
def test_a_follow_up_is_told_the_task_as_it_was(client):
    asked = client.task("task artifact:a:one input:what?")
    done = client.follow(asked, "dump completed")

    told = done["artifacts"][1]["parts"][0]["data"]["task"]
    assert told["id"] == asked["id"]
    assert told["artifacts"] == asked["artifacts"]
    assert state(told) == "INPUT_REQUIRED"
    assert words(told) == ["task artifact:a:one input:what?"]


def test_a_question_moves_to_the_history_before_its_answer(client, gate):
    """CASES 42: also while the executor hasn't said anything yet, in streams and lists, however short the history."""
    asked = client.task("task input:what?")
    stream = client.stream(message("wait:a dump completed:done", taskId=asked["id"]))
    gate("a").reached()
    seen = [next(stream).data["task"], client.get(asked["id"]), client.list()["tasks"][0]]
    short = [client.get(asked["id"], historyLength=0), client.list(historyLength=0)["tasks"][0]]
    gate("a").open()
    stream.all()

    assert [words(task) for task in seen] == [["task input:what?", "what?", "wait:a dump completed:done"]] * 3
    assert {"message" in task["status"] for task in (*seen, *short)} == {False}
    done = client.get(asked["id"])
    told = done["artifacts"][0]["parts"][0]["data"]["task"]
    assert (words(told), told["status"]) == (["task input:what?"], asked["status"])
    assert words(done) == words(seen[0])


@pytest.mark.v0_3
def test_messages_that_wait_are_in_the_history_but_not_yet_told(client, gate, said, eventually):
    """CASES 42: two follow-ups at once; each executor is told what came before its message."""
    asked = client.task("task input:what?")
    first = client.sending(message("working:busy wait:a input:more?", taskId=asked["id"]))
    gate("a").reached()
    said(asked["id"], 3)
    second = client.sending(message("dump input:again?", taskId=asked["id"]))
    eventually(lambda: Turn.objects.filter(state="queued").count() == 1)
    third = client.sending(message("completed", taskId=asked["id"]))
    eventually(lambda: Turn.objects.filter(state="queued").count() == 2)
    assert words(client.get(asked["id"]))[-3:] == ["busy", "dump input:again?", "completed"]

    gate("a").open()
    answers = [state(call()["task"]) for call in (first, second, third)]
    assert answers[-1] == "COMPLETED"  # the others are told how the task stands when they look
    done = client.get(asked["id"])
    told = done["artifacts"][0]["parts"][0]["data"]["task"]
    assert words(told) == ["task input:what?", "what?", "working:busy wait:a input:more?", "busy"]
    assert told["status"]["message"]["parts"] == [{"text": "more?"}]
    assert len({said["messageId"] for said in done["history"]}) == len(done["history"]) == 8


@pytest.mark.v0_3
def test_artifacts_grow_over_turns(client):
    asked = client.task("task artifact:a:one artifact:b:x input:what?")
    done = client.follow(asked, "append:a:+two completed")

    assert ["".join(part["text"] for part in found["parts"]) for found in done["artifacts"]] == ["one+two", "x"]


def test_referred_tasks_reach_the_executor_if_they_are_the_callers(client, make_client, make_user):
    """CASES 38: in the same context and by reference, nothing of another user's is seen."""
    make_user("alice"), make_user("bob")
    alice, bob = client.as_("alice"), client.as_("bob")
    mine = alice.task(message("task artifact:a:secret completed", contextId="c"))
    refers = message("task dump completed", contextId="c", referenceTaskIds=[mine["id"], "nobody's"])

    told = [one.task(refers)["artifacts"][0]["parts"][0]["data"] for one in (alice, bob)]
    assert [[task["id"] for task in one["related"]] for one in told] == [[mine["id"]], []]
    assert "secret" not in json.dumps(told[1])


@pytest.mark.v0_3
def test_a_message_to_an_ended_task_is_refused(client):
    """CASES 36."""
    task = client.task()
    with pytest.raises(Error) as error:
        client.follow(task, "more")

    assert error.value.reason == "UNSUPPORTED_OPERATION"
    assert Message.objects.count() == Turn.objects.count() == 1


@pytest.mark.v0_3
@pytest.mark.parametrize("task_id", ["made-up", "6a1f8d5c-9c1b-4b0e-9d63-1d1d1d1d1d1d", "x" * 300])
def test_a_message_to_an_unknown_task_is_refused(client, task_id):
    """CASES 36: a client can't make a task by naming it."""
    with pytest.raises(Error) as error:
        client.send(message(taskId=task_id))

    assert error.value.reason == "TASK_NOT_FOUND"
    assert not Task.objects.exists()


@pytest.mark.v0_3
def test_a_follow_up_in_another_context_is_refused(client):
    task = client.task("task input:what?")
    with pytest.raises(Error) as error:
        client.send(message("completed", taskId=task["id"], contextId="other"))

    assert error.value.reason == "INVALID_PARAMS"
    assert error.value.fields == ["message.contextId"]
    assert state(client.follow(task, "completed")) == "COMPLETED"


# --- historyLength (CASES 44)


@pytest.fixture
def talked(client):
    """A finished task with five messages."""
    task = client.task("task input:two?")
    client.follow(task, "input:four?")
    return client.follow(task, "completed")


ALL = ["task input:two?", "two?", "input:four?", "four?", "completed"]


@pytest.mark.parametrize(("length", "expected"), [(None, ALL), (0, []), (2, ALL[-2:]), (5, ALL), (99, ALL)])
def test_history_length_of_get_and_list(client, talked, length, expected):
    asked = {} if length is None else {"historyLength": length}
    found = [client.get(talked["id"], **asked), *client.list(**asked)["tasks"]]

    assert [words(task) for task in found] == [expected, expected]
    assert all(("history" in task) == bool(expected) for task in found)


@pytest.mark.parametrize(("length", "expected"), [(0, []), (2, ["what?", "completed"]), (99, None)])
def test_history_length_of_sends(client, length, expected):
    task = client.task("task input:what?")
    done = client.follow(task, "completed", historyLength=length)

    assert words(done) == (["task input:what?", "what?", "completed"] if expected is None else expected)


def test_history_length_below_zero_is_refused(client, talked):
    calls = [
        lambda: client.get(talked["id"], historyLength=-1),
        lambda: client.list(historyLength=-1),
        lambda: client.send("task completed", historyLength=-1),
        lambda: client.stream("task completed", historyLength=-1),
    ]
    for call in calls:
        with pytest.raises(Error) as error:
            call()
        assert (error.value.reason, error.value.fields[0].endswith("historyLength")) == ("INVALID_PARAMS", True)
    assert Task.objects.count() == 1


# --- what a message may be


def refused(client, request):
    """The error for a raw SendMessageRequest; nothing is stored."""
    with pytest.raises(Error) as error:
        client.send_raw(request if isinstance(request, bytes) else json.dumps(request).encode())
    assert not Task.objects.exists()
    assert not Turn.objects.exists()
    return error.value


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"parts": []}, "message.parts"),
        ({"parts": None}, "message.parts"),
        ({"parts": [{}]}, "message.parts[0]"),
        ({"messageId": None}, "message.messageId"),
        ({"messageId": ""}, "message.messageId"),
        ({"messageId": "x" * 257}, "message.messageId"),
        ({"contextId": "x" * 257}, "message.contextId"),
        ({"role": None}, "message.role"),
        ({"role": 99}, "message.role"),
        ({"role": "ROLE_UNSPECIFIED"}, "message.role"),
        *over_http(
            ({"parts": [None]}, "message.parts[0]"),
            ({"parts": [{"text": "a", "url": "https://u"}]}, "message.parts[0]"),
            ({"parts": [{"text": "a"}, {"raw": 5}]}, "message.parts[1].raw"),
            ({"parts": [{"raw": "!!!"}]}, "message.parts[0].raw"),
            ({"parts": {"text": "a"}}, "message.parts"),
            ({"parts": [{"text": 5}]}, "message.parts[0].text"),
            ({"messageId": 5}, "message.messageId"),
            ({"role": "user"}, "message.role"),
            ({"metadata": []}, "message.metadata"),
            ({"extensions": "urn:x"}, "message.extensions"),
        ),
    ],
)
def test_a_bad_message_is_refused_naming_the_field(client, fields, at_fault):
    """CASES 21 to 24."""
    error = refused(client, {"message": message(**fields)})

    assert (error.reason, error.fields) == ("INVALID_PARAMS", [at_fault])


@pytest.mark.http
def test_all_faults_are_named_at_once(client):
    error = refused(client, {"message": {"parts": [{}], "contextId": 1}, "configuration": {"returnImmediately": "yes"}})

    assert set(error.fields) == {
        "message.parts[0]",
        "message.contextId",
        "message.messageId",
        "message.role",
        "configuration.returnImmediately",
    }


@pytest.mark.parametrize("request_", [{}, {"message": None}, *over_http({"message": []}, {"message": "hi"})])
def test_a_request_without_a_message_is_refused(client, request_):
    error = refused(client, request_)
    assert (error.reason, error.fields) == ("INVALID_PARAMS", ["message"])


@pytest.mark.http
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_numbers_that_are_none_are_refused(client, number):
    """CASES 16."""
    raw = json.dumps({"message": message(parts=[{"data": {"n": "?"}}])}).replace('"?"', number)
    error = refused(client, raw.encode())
    assert error.reason == "INVALID_PARAMS"


@pytest.mark.http
@pytest.mark.parametrize("text", ["a\\u0000b", "\\ud800", "\\udc00\\ud800"])
def test_text_that_no_database_holds_is_refused(client, text):
    """CASES 18."""
    raw = json.dumps({"message": message("?")}).replace("?", text)
    error = refused(client, raw.encode())
    assert (error.reason, error.fields) == ("INVALID_PARAMS", ["message.parts[0].text"])


def test_surrogate_pairs_and_escaped_backslashes_are_text(make_client):
    part = b'{"text":"\\ud83d\\ude00 \\\\u0000"}'
    raw = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[' + part + b"]}}"
    task = make_client("Echo").send_raw(raw)["task"]
    assert artifact(task) == "\N{GRINNING FACE} \\u0000"


@pytest.mark.v0_3
@pytest.mark.http
def test_too_deep_json_is_refused(client):
    deep = b"[" * 100_000 + b"]" * 100_000
    error = refused(client, b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":' + deep + b"}]}}")
    assert error.reason == "INVALID_JSON"


@pytest.mark.v0_3
@pytest.mark.parametrize(
    "part", [{"data": None}, {"data": 5}, {"data": "x"}, {"data": False}, {"data": []}, {"text": ""}]
)
def test_values_that_look_empty_survive(make_client, part):
    """CASES 21, 24."""
    task = make_client("Echo").task(message(parts=[part], metadata={"a": None}))

    assert task["artifacts"][0]["parts"] == [part]
    assert task["history"][0]["parts"] == [part]
    assert task["history"][0]["metadata"] == {"a": None}


@pytest.mark.v0_3
@pytest.mark.parametrize("raw", ["aGk=", "aGk", "-_8", "+/8=", "-_8=", ""])
def test_base64_of_either_alphabet_comes_out_standard_and_padded(make_client, raw):
    """CASES 23."""
    task = make_client("Echo").task(message(parts=[{"raw": raw}]))

    standard = raw.replace("-", "+").replace("_", "/").rstrip("=")
    standard += "=" * (-len(standard) % 4)
    assert task["artifacts"][0]["parts"] == [{"raw": standard}]
    b64decode(standard, validate=True)


@pytest.mark.v0_3
def test_null_is_unset(client):
    """CASES 21."""
    task = client.task(message(contextId=None, taskId=None, metadata=None, extensions=None, referenceTaskIds=None))
    assert task["contextId"]


@pytest.mark.http
def test_unknown_fields_are_ignored_and_enums_may_be_numbers(client):
    """CASES 22."""
    said = message("task completed", foo=1, role=1) | {"parts": [{"text": "task completed", "foo": {"bar": 1}}]}
    task = client.send_raw(json.dumps({"message": said, "foo": 1, "configuration": {"foo": []}}).encode())["task"]

    assert task["history"][0]["role"] == "ROLE_USER"
    assert "foo" not in json.dumps(task)


def test_snake_case_names_are_taken_too(client):
    """ProtoJSON parsers accept both (A2A 5.5)."""
    said = {"message_id": "m", "role": "ROLE_USER", "parts": [{"text": "task completed"}], "context_id": "c"}
    task = client.send_raw(json.dumps({"message": said}).encode())["task"]

    assert task["contextId"] == "c"
