"""What only gRPC has: TLS, metadata, tenants that name agents, rich errors, health, reflection, stopping (A2A 10)."""

import datetime
import logging
import os
import subprocess
import sys

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2, a2a_pb2_grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.management import CommandError, call_command
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from a2a_django import doorbell
from a2a_django.bindings import grpc as bindings_grpc
from a2a_django.bindings.grpc_server import CURRENT, LEGACY, Tls
from a2a_django.models import Agent, AgentSkill, Task
from tests.clients import PATIENCE, Error, message, state
from tests.clients_grpc import Grpc, Served
from tests.clients_v0_3 import LegacyGrpc
from tests.executors import SECRET

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def binding():
    """No other, here."""
    return "grpc"


@pytest.fixture
def serve(server):
    """serve(tls=None, channel=None): one more gRPC server, which the test may stop."""
    made = []

    def start(**options):
        made.append(Served(server, **options))
        return made[-1]

    yield start
    for one in made:
        one.stop()


def refused(call):
    with pytest.raises(Error) as error:
        call()
    return error.value


def failed(call):
    """The gRPC status of a raw call."""
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value


def at(client, served):
    """The same client, of another server."""

    class There(type(client)):
        @property
        def served(self):
            return served

    return There(client.site, client.agent)


# --- the call as a request


@pytest.fixture
def seen(client, a2a):
    """The requests that the site's CONTEXT_BUILDER is given."""
    requests = []
    a2a(CONTEXT_BUILDER=lambda request, context: requests.append(request))
    return requests


def test_the_sites_own_code_sees_an_http_request(client, seen, make_user, a2a, settings):
    make_user("alice")
    a2a(**{**settings.A2A, "BASE_URL": "https://agents.example.com"})
    client.as_("alice").with_headers(X_Plan="gold", X_Bin_bin=b"\xff").send()

    (request,) = seen
    assert (request.method, request.path) == ("POST", f"/{CURRENT}")
    assert request.user.username == "alice"
    assert request.headers["X-Plan"] == "gold"
    assert "X-Bin-Bin" not in request.headers
    assert request.META["REMOTE_ADDR"] == "127.0.0.1"
    assert request.get_host() == "agents.example.com"
    assert not request.is_secure()


def test_metadata_that_comes_twice_is_joined_as_in_http(client, seen):
    request = client.request(a2a_pb2.SendMessageRequest, {"message": message()})
    client.stub.SendMessage(request, metadata=[*client.metadata, ("x-a", "1"), ("x-a", "2"), ("x_a", "3")])
    assert seen[0].headers["X-A"] == "1,2"


@pytest.mark.parametrize(("peer", "address"), [
    ("ipv4:10.0.0.1:50", ["10.0.0.1", 50]),
    ("ipv6:[::1]:50", ["::1", 50]),
    ("ipv6:%5B::1%5D:50", ["::1", 50]),
    ("unix:/run/a2a", None),
    ("unix:", None),
])  # fmt: skip
def test_addresses_of_peers(peer, address):
    assert bindings_grpc._address(peer) == address


# --- which agent, which tenant


def test_the_default_agent_is_meant_where_none_is_named(client, make_client):
    make_client("Echo", slug="other", is_default=True)
    nameless = client.copy(agent="")

    assert nameless.task("hello")["artifacts"]
    assert Task.objects.get().agent.slug == "other"
    Agent.objects.update(is_default=False)
    assert refused(nameless.send).reason == "NOT_FOUND"


@pytest.mark.parametrize(
    "tenant", ["nobody", "test/nobody", "test/", "/test", "test/acme/x", "test\0", "te st", "a/b/c"]
)
def test_tenants_that_name_no_agent(client, make_tenant, tenant):
    make_tenant("acme")
    error = refused(client.copy(agent=tenant).send)
    assert (error.reason, error.status) == ("NOT_FOUND", 404)
    assert not Task.objects.exists()


def test_two_tenants_in_one_call_are_refused(client, make_tenant):
    make_tenant("acme"), make_tenant("globex")
    error = refused(client.within("globex").with_headers(X_A2A_Tenant="acme").send)
    assert (error.reason, error.fields) == ("INVALID_PARAMS", ["tenant"])


# --- errors


def test_errors_are_a_rich_status(client):
    error = failed(
        lambda: client.stub.GetTask(client.request(a2a_pb2.GetTaskRequest, {"id": "x"}), metadata=client.metadata)
    )
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    info = error_details_pb2.ErrorInfo()

    assert (error.code(), status.code) == (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.NOT_FOUND.value[0])
    assert error.details() == status.message == "Task not found"
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain, dict(info.metadata)) == ("TASK_NOT_FOUND", "a2a-protocol.org", {"taskId": "x"})


def test_all_faults_are_named_at_once(client):
    """CASES 24, as in JSON."""
    said = {"message": {"parts": [{}], "contextId": "x" * 300, "role": 7}}
    error = refused(lambda: client.ask("SendMessage", a2a_pb2.SendMessageRequest, said))

    assert error.reason == "INVALID_PARAMS"
    assert set(error.fields) == {"message.parts[0]", "message.contextId", "message.messageId", "message.role"}
    assert not Task.objects.exists()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", ["data", "metadata"])
def test_numbers_that_json_has_no_word_for(client, number, place):
    """CASES 16"""
    request = client.request(a2a_pb2.SendMessageRequest, {"message": message()})
    if place == "data":
        request.message.parts.add().data.list_value.values.add().number_value = number
    else:
        request.message.metadata["n"] = number
    error = failed(lambda: client.stub.SendMessage(request, metadata=client.metadata))

    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert not Task.objects.exists()


def test_times_beyond_the_calendar(client):
    request = client.request(a2a_pb2.ListTasksRequest, {})
    request.status_timestamp_after.seconds = 2**60
    error = failed(lambda: client.stub.ListTasks(request, metadata=client.metadata))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_thousand_faults_still_make_an_error_that_clients_can_read(client):
    error = refused(lambda: client.send(message(parts=[{}] * 1000)))
    assert error.reason == "INVALID_PARAMS"
    assert error.fields[0] == "message.parts[0]"


@pytest.mark.parametrize("error", [
    bindings_grpc.errors.UnsupportedOperationError("€" * 5000, {"x" * 50: "€" * 5000}),
    bindings_grpc.errors.InvalidParamsError("x", {"errors": [{"field": "€" * 5000, "message": "y"}], "z": "€" * 5000}),
])  # fmt: skip
def test_an_error_of_any_length_fits_into_the_trailers(client, a2a, error):
    def fail(request, context):
        raise error

    a2a(CONTEXT_BUILDER=fail)
    shown = refused(client.send)
    assert shown.reason == bindings_grpc.errors.rendering(error).reason
    assert error.message.startswith(shown.message)


@pytest.mark.parametrize("raw", [b"\xff\xff\xff", b"\x0a\x02\xc3\x28", b"\x0a\xff"])
def test_bytes_that_are_no_request(client, raw):
    call = client.served.channel.unary_unary(f"/{CURRENT}/GetTask")
    error = failed(lambda: call(raw, metadata=client.metadata))
    assert (error.code(), error.details()) == (grpc.StatusCode.INVALID_ARGUMENT, "The request could not be read")


def test_a_failure_of_our_own_tells_nothing(client, a2a, caplog):
    """CASES 49"""

    def fail(request, context):
        raise RuntimeError(SECRET)

    a2a(CONTEXT_BUILDER=fail)
    with caplog.at_level(logging.ERROR):
        for call in (client.send, client.stream):
            error = refused(call)
            assert (error.reason, error.message) == ("INTERNAL_ERROR", "Internal error")
    assert "RuntimeError" in caplog.text
    assert SECRET not in caplog.text


def test_what_goes_wrong_around_the_operations_tells_nothing(client, monkeypatch, caplog):
    """The SDK's handlers show the text of whatever isn't theirs, and so does gRPC itself."""

    def fail(*args):
        raise RuntimeError(SECRET)

    monkeypatch.setattr("a2a_django.bindings.grpc.Call.__init__", fail)
    with caplog.at_level(logging.ERROR):
        for call in (client.send, client.stream):
            assert refused(call).code == "INTERNAL"
    assert SECRET not in caplog.text


def test_versions_and_credentials_are_asked_in_streams_too(client):
    request = client.request(a2a_pb2.SubscribeToTaskRequest, {"id": "x"})
    error = failed(lambda: next(client.stub.SubscribeToTask(request)))
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "A2A-Version" in error.details()


# --- clients that go away


def ears():
    """How many listen for news."""
    return sum(len(found) for key, found in doorbell._ears.items() if not key.startswith(doorbell.CANCEL))


def test_a_client_that_cancels_a_stream_is_let_go_and_the_task_goes_on(client, gate, eventually, a2a):
    a2a(HEARTBEAT_SECONDS=3600)
    stream = client.stream("task working wait:a completed")
    task = next(stream).data["task"]
    assert ears() == 1
    stream.close()

    assert eventually(lambda: ears() == 0)
    gate("a").open()
    assert eventually(lambda: state(client.get(task["id"])) == "COMPLETED")


def test_a_client_that_cancels_before_the_first_event(client, gate, eventually, a2a):
    a2a(HEARTBEAT_SECONDS=3600)
    request = client.request(a2a_pb2.SendMessageRequest, {"message": message("wait:a task completed")})
    call = client.stub.SendStreamingMessage(request, metadata=client.metadata)
    gate("a").reached()
    call.cancel()

    assert eventually(lambda: ears() == 0)
    gate("a").open()
    assert eventually(lambda: [state(task) for task in client.list()["tasks"]] == ["COMPLETED"])


def test_a_deadline_ends_the_waiting_not_the_task(client, gate, eventually):
    request = client.request(a2a_pb2.SendMessageRequest, {"message": message("task wait:a completed")})
    error = failed(lambda: client.stub.SendMessage(request, metadata=client.metadata, timeout=0.3))

    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert eventually(lambda: ears() == 0)
    gate("a").open()
    assert eventually(lambda: [state(task) for task in client.list()["tasks"]] == ["COMPLETED"])


def test_long_answers(client):
    task = client.task("task chunks:1500 completed")
    assert client.get(task["id"]) == task
    assert len(task["artifacts"][0]["parts"]) == 1500


# --- the server


def test_a_message_over_the_limit(client, serve, a2a):
    a2a(MAX_BODY_BYTES=1000)
    there = at(client, serve())
    request = there.request(a2a_pb2.SendMessageRequest, {"message": message("x" * 1000)})

    assert failed(lambda: there.stub.SendMessage(request, metadata=there.metadata)).code().name == "RESOURCE_EXHAUSTED"
    assert state(there.task()) == "COMPLETED"


def checked(served, service=""):
    stub = health_pb2_grpc.HealthStub(served.channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE).status


def test_health(serve):
    served = serve()
    assert [checked(served, name) for name in ("", CURRENT, LEGACY)] == [SERVING] * 3
    assert failed(lambda: checked(served, "nobody")).code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("legacy", [True, False])
def test_reflection_tells_the_services(client, serve, a2a, legacy):
    a2a(ENABLE_V0_3=legacy)
    served = serve()
    names = set(ProtoReflectionDescriptorDatabase(served.channel).get_services())

    assert {CURRENT, "grpc.health.v1.Health"} <= names
    assert (LEGACY in names) == legacy
    if not legacy:
        error = failed(lambda: served.channel.unary_unary(f"/{LEGACY}/GetTask")(b""))
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_stop_lets_calls_end_and_takes_no_more(client, serve, gate, eventually):
    served = serve()
    there = at(client, served)
    watching = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
    assert next(watching).status == SERVING
    pending = there.sending("task wait:a completed")
    gate("a").reached()
    stopping = served.stopping(grace=PATIENCE)

    assert next(watching).status == NOT_SERVING
    fresh = Grpc(client.site, client.agent)
    eventually(lambda: not served.reachable())
    gate("a").open()
    assert state(pending()["task"]) == "COMPLETED"
    stopping.result(PATIENCE)
    assert state(fresh.task()) == "COMPLETED"  # of the other server


def test_streams_that_outlast_the_grace_end_as_unavailable(client, serve, gate, eventually):
    served = serve()
    stream = at(client, served).stream("task working wait:a completed")
    task = next(stream).data["task"]
    next(stream)
    served.stopping(grace=0.05).result(PATIENCE)

    error = refused(lambda: next(stream))
    assert (error.reason, error.status) == ("UNAVAILABLE", 503)
    assert [detail["retryDelay"] for detail in error.details if "retryDelay" in detail] == ["5s"]
    assert eventually(lambda: ears() == 0)
    resumed = client.subscribe(task["id"])  # at another process
    gate("a").open()
    assert state(resumed.all()[-1]["statusUpdate"]) == "COMPLETED"


# --- TLS


@pytest.fixture(scope="module")
def authority():
    """issue(name): certificate and key, PEM, of an authority of our own; `None` gives that of the authority."""
    root_key = ec.generate_private_key(ec.SECP256R1())

    def issue(name):
        key = root_key if name is None else ec.generate_private_key(ec.SECP256R1())
        now, subject = datetime.datetime.now(datetime.UTC), x509.Name.from_rfc4514_string(f"CN={name or 'root'}")
        certificate = (
            x509.CertificateBuilder(x509.Name.from_rfc4514_string("CN=root"), subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name is None, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name or "root")]), critical=False)
            .sign(root_key, hashes.SHA256())
        )
        form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        pem = serialization.Encoding.PEM
        return certificate.public_bytes(pem), key.private_bytes(pem, *form)

    return issue


def secure(root, *own):
    """A channel that trusts `root`."""
    options = [("grpc.ssl_target_name_override", "localhost")]
    credentials = grpc.ssl_channel_credentials(root, *own[::-1])
    return lambda address: grpc.secure_channel(address, credentials, options)


def test_tls(client, serve, authority, seen):
    root, _ = authority(None)
    served = serve(tls=Tls(*authority("localhost")), channel=secure(root))

    assert state(at(client, served).task()) == "COMPLETED"
    assert seen[0].is_secure()
    with grpc.insecure_channel(served.address) as plain:
        assert failed(lambda: a2a_pb2_grpc.A2AServiceStub(plain).GetTask(a2a_pb2.GetTaskRequest(id="x"), timeout=5))


def test_tls_with_certificates_of_clients(client, serve, authority):
    root, _ = authority(None)
    served = serve(tls=Tls(*authority("localhost"), root), channel=secure(root, *authority("client")))

    assert state(at(client, served).task()) == "COMPLETED"
    with secure(root)(served.address) as stranger:
        error = failed(lambda: a2a_pb2_grpc.A2AServiceStub(stranger).GetTask(a2a_pb2.GetTaskRequest(id="x"), timeout=5))
    assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


# --- cards


@pytest.fixture
def card(client, make_tenant, a2a):
    """card(): the public card of a site that says where its gRPC server is."""
    a2a(GRPC_URL="agents.example.com:443")
    return lambda: client.site.get("/a2a/test/.well-known/agent-card.json").json()


def test_the_card_lists_grpc(card):
    url = {"url": "agents.example.com:443", "protocolBinding": "GRPC"}
    shown = [one for one in card()["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
    assert shown == [{**url, "protocolVersion": "1.0", "tenant": "test"}]

    Agent.objects.update(is_default=True)
    shown = [one for one in card()["supportedInterfaces"] if one["protocolBinding"] == "GRPC"]
    assert shown == [{**url, "protocolVersion": "1.0", "tenant": "test"}, {**url, "protocolVersion": "0.3"}]


def test_an_interface_that_staff_chose(card):
    Agent.objects.get().interfaces.create(protocol_binding="GRPC", position=0)
    expected = {"url": "agents.example.com:443", "protocolBinding": "GRPC", "protocolVersion": "1.0", "tenant": "test"}
    assert card()["supportedInterfaces"] == [expected]


@pytest.mark.parametrize("base", ["", "https://agents.example.com"])
def test_the_extended_card(client, make_user, make_tenant, a2a, settings, base):
    """Which HTTP addresses there are a gRPC call can't tell, only the settings."""
    make_user("alice"), make_tenant("acme")
    a2a(**{**settings.A2A, "GRPC_URL": "agents.example.com:443", "BASE_URL": base})
    Agent.objects.update(extended_card=True)
    fields = {"skill_id": "more", "name": "More", "description": "M.", "visibility": "authenticated"}
    AgentSkill.objects.create(agent=Agent.objects.get(), **fields)

    found = client.as_("alice").within("acme").extended_card()
    assert [skill["id"] for skill in found["skills"]] == ["more"]
    interfaces = {(one["protocolBinding"], one["url"], one["tenant"]) for one in found["supportedInterfaces"]}
    assert ("GRPC", "agents.example.com:443", "test/acme") in interfaces
    assert {binding for binding, *_ in interfaces} == {"GRPC", *(("JSONRPC", "HTTP+JSON") if base else ())}


# --- A2A 0.3


@pytest.fixture
def legacy(client):
    Agent.objects.update(is_default=True)
    return LegacyGrpc(client.site)


def test_bad_input_of_0_3_is_the_clients_fault(legacy):
    for request in (said_in_0_3(messageId=""), said_in_0_3(content=[{}])):
        error = refused(lambda request=request: legacy.ask("SendMessage", None, request))
        assert error.reason == "INVALID_PARAMS"
        assert error.message.startswith("InvalidParamsError: ")
    assert not Task.objects.exists()


def said_in_0_3(**fields):
    data = {"request": {"messageId": "m", "role": "ROLE_USER", **fields}}
    return ParseDict(data, a2a_v0_3_pb2.SendMessageRequest())


def test_the_card_of_0_3(legacy, make_user, a2a, settings):
    make_user("alice")
    a2a(**{**settings.A2A, "GRPC_URL": "agents.example.com:443"})
    Agent.objects.update(extended_card=True)
    fields = {"skill_id": "more", "name": "More", "description": "M.", "visibility": "authenticated"}
    AgentSkill.objects.create(agent=Agent.objects.get(), **fields)

    assert refused(legacy.extended_card).status == 401
    found = legacy.as_("alice").extended_card()
    assert [skill["id"] for skill in found["skills"]] == ["more"]
    assert [one["url"] for one in found["supportedInterfaces"]] == ["agents.example.com:443"]


# --- the command


@pytest.mark.parametrize(("options", "says"), [
    (["--tls-cert", "/no/such"], "needs both"),
    (["--tls-client-ca", "/no/such"], "needs both"),
    (["--tls-cert", "/no/such", "--tls-key", "/no/such"], "Can't read /no/such: No such file"),
    (["--bind", "256.0.0.1:1"], "Can't listen on 256.0.0.1:1"),
])  # fmt: skip
def test_options_that_are_wrong(options, says):
    with pytest.raises(CommandError, match=says):
        call_command("a2a_grpc", *options)


def test_without_the_extra_the_command_says_what_to_install():
    code = """
import sys
sys.modules["grpc"] = None
import django
from django.core.management import call_command
django.setup()
call_command("a2a_grpc")
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": ":".join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert "CommandError" in done.stderr
    assert "pip install 'a2a-django[grpc]'" in done.stderr
