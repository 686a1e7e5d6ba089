"""The four push notification config operations over every binding; delivery is not here."""

import pytest

from a2a_django.models import PushConfig, Task, Turn
from tests.clients import Error
from tests.clients_grpc import over_http

URL = "https://hooks.example.com/a2a"


@pytest.fixture
def task_id(client):
    return client.task("task input:what?")["id"]


def refused(call, reason):
    with pytest.raises(Error) as error:
        call()
    assert error.value.reason == reason
    return error.value


def test_a_config_is_made_read_listed_and_deleted(client, task_id):
    made = client.create_push(task_id, url=URL, token="t")

    assert made == {"id": made["id"], "taskId": task_id, "url": URL, "token": "t"}
    assert made["id"]
    assert client.get_push(task_id, made["id"]) == made
    assert client.list_push(task_id) == {"configs": [made], "nextPageToken": ""}
    assert client.delete_push(task_id, made["id"]) == {}
    assert client.list_push(task_id)["configs"] == []
    assert client.delete_push(task_id, made["id"]) == {}


@pytest.mark.v0_3
def test_credentials_are_kept_but_never_shown(client, task_id):
    """CASES 69, what the client sees of it."""
    secret = {"scheme": "Bearer", "credentials": "hunter2"}
    made = client.create_push(task_id, url=URL, authentication=secret)

    assert made["authentication"] == {"scheme": "Bearer"}
    shown = [made, client.get_push(task_id, made["id"]), client.list_push(task_id)]
    assert "hunter2" not in str(shown)
    assert PushConfig.objects.get().credentials.reveal() == "hunter2"


@pytest.mark.v0_3
def test_secrets_whose_key_is_lost(client, task_id, settings, caplog):
    """CASES 69: neither the ciphertext nor a reason goes to the client, and a new config takes the old one's place."""
    settings.SECRET_KEY = "lost"
    client.create_push(task_id, id="mine", url=URL, token="hunter1")
    settings.SECRET_KEY = "here"
    error = refused(lambda: client.get_push(task_id, "mine"), "INTERNAL_ERROR")

    secret = PushConfig.objects.get().token
    for shown in (str(error), caplog.text):
        assert secret.ciphertext not in shown
        assert "hunter1" not in shown
    assert "DecryptionError" in caplog.text
    client.create_push(task_id, id="mine", url=URL, token="hunter3")
    assert PushConfig.objects.get().token.reveal() == "hunter3"
    client.delete_push(task_id, "mine")
    assert not PushConfig.objects.exists()


@pytest.mark.v0_3
def test_an_id_given_again_replaces(client, task_id):
    client.create_push(task_id, id="mine", url=URL)
    client.create_push(task_id, id="mine", url=URL + "/2")
    client.create_push(task_id, id="Mine", url=URL + "/3")

    assert {one["id"]: one["url"] for one in client.list_push(task_id)["configs"]} == {
        "mine": URL + "/2",
        "Mine": URL + "/3",
    }


@pytest.mark.v0_3
def test_ids_belong_to_their_task(client, task_id):
    other = client.task("task input:what?")["id"]
    client.create_push(task_id, id="mine", url=URL)

    refused(lambda: client.get_push(other, "mine"), "TASK_NOT_FOUND")
    client.delete_push(other, "mine")
    assert client.get_push(task_id, "mine")["url"] == URL


@pytest.mark.v0_3
@pytest.mark.parametrize("config_id", ["no-such", "x" * 300])
def test_an_unknown_config(client, task_id, config_id):
    refused(lambda: client.get_push(task_id, config_id), "TASK_NOT_FOUND")


@pytest.mark.v0_3
def test_an_unknown_task(client):
    calls = [
        lambda: client.create_push("nobody's", url=URL),
        lambda: client.get_push("nobody's", "x"),
        lambda: client.list_push("nobody's"),
        lambda: client.delete_push("nobody's", "x"),
    ]
    for call in calls:
        refused(call, "TASK_NOT_FOUND")


@pytest.mark.parametrize("config", [{}, {"url": ""}, *over_http({"url": 5}, {"url": URL, "authentication": "Bearer"})])
def test_a_bad_config_is_refused(client, task_id, config):
    error = refused(lambda: client.create_push(task_id, **config), "INVALID_PARAMS")
    assert error.fields
    assert not PushConfig.objects.exists()


@pytest.mark.v0_3
@pytest.mark.parametrize("url", ["ftp://h.test/", "file:///etc/passwd", "//h.test", "/x", "http://", "http://[", "x"])
def test_what_is_no_web_address_is_refused(client, task_id, url):
    """CASES 68, as far as an address tells by itself: in a request of its own, and within both sends."""
    inline = {"taskPushNotificationConfig": {"url": url}}
    for call in (
        lambda: client.create_push(task_id, url=url),
        lambda: client.send("task completed", **inline),
        lambda: client.stream("task completed", **inline),
    ):
        assert [field.rpartition(".")[2] for field in refused(call, "INVALID_PARAMS").fields] == ["url"]
    assert not PushConfig.objects.exists()
    assert Task.objects.count() == 1


@pytest.mark.v0_3
@pytest.mark.parametrize("field", ["id", "url"])
def test_a_config_that_no_column_holds_is_refused(client, task_id, field):
    config = {"url": URL} | {field: "https://example.com/" + "x" * 3000}
    refused(lambda: client.create_push(task_id, **config), "INVALID_PARAMS")
    assert not PushConfig.objects.exists()


@pytest.mark.v0_3
def test_the_inline_config_of_both_sends_is_kept(client):
    inline = {"url": URL, "id": "mine"}
    sent = client.task("task completed", taskPushNotificationConfig=inline)["id"]
    (first, *_) = client.stream("task completed", taskPushNotificationConfig=inline).all()

    for task_id in (sent, first["task"]["id"]):
        assert client.list_push(task_id)["configs"] == [{"id": "mine", "taskId": task_id, "url": URL}]


@pytest.mark.v0_3
def test_a_bad_inline_config_is_refused_and_nothing_stored(client):
    refused(lambda: client.send("task completed", taskPushNotificationConfig={"token": "t"}), "INVALID_PARAMS")
    assert not Task.objects.exists()


@pytest.mark.v0_3
def test_secrets_of_an_inline_config_stand_nowhere_else(client):
    inline = {"url": URL, "token": "hunter1", "authentication": {"scheme": "Bearer", "credentials": "hunter2"}}
    client.send("task dump completed", taskPushNotificationConfig=inline)

    assert "hunter" not in Turn.objects.get().request


@pytest.mark.v0_3
def test_without_the_capability_all_is_refused(make_client):
    """CASES 75."""
    client = make_client(push_notifications=False)
    task_id = client.task("task input:what?")["id"]
    calls = [
        lambda: client.create_push(task_id, url=URL),
        lambda: client.get_push(task_id, "x"),
        lambda: client.list_push(task_id),
        lambda: client.delete_push(task_id, "x"),
        lambda: client.send("task completed", taskPushNotificationConfig={"url": URL}),
        lambda: client.stream("task completed", taskPushNotificationConfig={"url": URL}),
    ]
    for call in calls:
        refused(call, "PUSH_NOTIFICATION_NOT_SUPPORTED")
    assert Task.objects.count() == 1
    assert not PushConfig.objects.exists()
