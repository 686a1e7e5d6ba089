"""SendMessage over every binding."""

import pytest

from a2a_django.models import Task
from tests.clients import Error, message


def state(task):
    return task["status"]["state"].removeprefix("TASK_STATE_")


def test_blocking_send_answers_with_the_finished_task(client):
    task = client.task("task working artifact:a:hello completed:done")

    assert state(task) == "COMPLETED"
    assert task["artifacts"] == [{"artifactId": "a", "name": "a", "parts": [{"text": "hello"}]}]
    assert [part["parts"][0]["text"] for part in task["history"]] == ["task working artifact:a:hello completed:done"]
    assert task["status"]["message"]["parts"] == [{"text": "done"}]
    assert client.get(task["id"]) == task


def test_message_is_answered_by_a_message(client):
    answer = client.send("message:hello")

    assert answer["message"]["parts"] == [{"text": "hello"}]
    assert not Task.objects.filter(visible=True).exists()


def test_stream(client):
    stream = client.stream("task working artifact:a:hello completed")
    events = list(stream)
    assert [list(event.data)[0] for event in events] == ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]
    assert [event.id for event in events] == [1, 2, 3, 4]
