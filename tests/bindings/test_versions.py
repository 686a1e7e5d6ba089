"""A2A-Version over every binding (CASES 34)."""

import pytest

from a2a_django.models import Task
from tests.clients import Error, message, state
from tests.clients_grpc import over_http


@pytest.mark.parametrize("version", ["1.0", "1.0.3", " 1.0 ", "1.0.0", "1.0, 1.0"])
def test_versions_that_are_spoken(client, version):
    client = client.with_headers(A2A_Version=version)
    assert state(client.task()) == "COMPLETED"
    assert client.stream().all()


@pytest.mark.parametrize(
    "version", ["1.7", "99.0", "abc", "", None, "1", "1.0.x", "0.3", "1.0,0.3", "x" * 9999, *over_http("²")]
)
def test_versions_that_are_not(client, version):
    client = client.with_headers(A2A_Version=version)
    for call in (client.send, client.stream, client.list, lambda: client.subscribe("x")):
        with pytest.raises(Error) as error:
            call()
        assert error.value.reason == "VERSION_NOT_SUPPORTED"
        assert error.value.metadata == {"supportedVersions": "1.0, 0.3"}
        assert "1.0" in error.value.message
        assert len(error.value.message) < 300
    assert not Task.objects.exists()


@pytest.mark.http
@pytest.mark.parametrize(("query", "header", "fine"), [("1.0", None, True), ("9.9", None, False), ("9.9", "1.0", True)])
def test_the_version_in_the_query(client, query, header, fine):
    """A2A 3.6.1; the header goes before it."""
    path = client.url + ("/message:send" if client.binding == "rest" else "") + f"?A2A-Version={query}"
    headers = client.headers | {"A2A-Version": header}
    response = client.site.request("POST", path, client.send_body({"message": message()}), headers)
    if fine:
        assert state(client.result(response)["task"]) == "COMPLETED"
        return
    with pytest.raises(Error) as error:
        client.result(response)
    assert error.value.reason == "VERSION_NOT_SUPPORTED"
