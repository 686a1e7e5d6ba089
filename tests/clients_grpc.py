"""The gRPC client in this process: it looks like those of HTTP, and talks to a real server in the web server's loop."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from functools import cache

import grpc
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc
from google.api.field_behavior_pb2 import FieldBehavior, field_behavior
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2  # noqa: F401  (the first for what stands in the second)

from a2a_django.bindings import grpc_server
from tests import clients
from tests.clients import PATIENCE, Client, Error, Pending, Response, ServerSentEvent

# As HTTP says it, for tests of all bindings.
HTTP = {
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 405,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}


class Served:
    """A gRPC server in the loop of the tests' web server, and a channel to it."""

    def __init__(self, server, *, tls=None, channel=None):
        self.loop = server.loop
        self.server, self.port = self.run(self._start(tls))
        self.address = f"127.0.0.1:{self.port}"
        self.channel = channel(self.address) if channel else grpc.insecure_channel(self.address)

    async def _start(self, tls):
        server = grpc_server.Server()
        port = server.listen("127.0.0.1:0", tls)
        await server.start()
        return server, port

    def run(self, work):
        """What the coroutine returns."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def stop(self):
        """Stops the server at once."""
        self.stopping(grace=0).result(PATIENCE)
        self.channel.close()

    def stopping(self, grace):
        """Stops the server, whose calls have `grace` seconds; a future."""
        return asyncio.run_coroutine_threadsafe(self.server.stop(grace), self.loop)

    def reachable(self):
        """Whether it takes calls."""
        with grpc.insecure_channel(self.address) as channel:
            try:
                channel.unary_unary("/nobody/Nothing")(b"", timeout=PATIENCE)
            except grpc.RpcError as error:
                return error.code() == grpc.StatusCode.UNIMPLEMENTED

    @property
    def running(self):
        """How many calls it is at."""
        return len(self.server._guard._running)


@cache
def served(server):
    """The one for all tests."""
    return Served(server)


@dataclass
class Answer:
    """What came back, with its initial metadata."""

    message: Message
    headers: dict


@dataclass
class Exchange:
    """A call that is under way, as `clients.Exchange` is one of HTTP."""

    client: "Grpc"
    finished: grpc.Future

    def response(self):
        """The whole answer."""
        try:
            return Answer(self.finished.result(PATIENCE), dict(self.finished.initial_metadata()))
        except grpc.RpcError as error:
            self.client.fail(error)

    def disconnect(self):
        """The client gives up; returns when the server has noticed."""
        before = self.client.served.running
        self.finished.cancel()
        deadline = time.monotonic() + PATIENCE
        while self.client.served.running >= before:
            assert time.monotonic() < deadline, "the server did not let go of a call"
            time.sleep(0.002)

    def pause(self):
        """A stream is read only as far as it is asked for."""

    def resume(self):
        """Nothing."""


class Stream:
    """Events as they come; it begins with the first of them, or with an error."""

    def __init__(self, client, call):
        self.exchange, self._client, self._call = Exchange(client, call), client, call
        self.raw = b""
        self._ahead = [self._read()]
        self.headers = dict(call.initial_metadata())

    def __iter__(self):
        return self

    def __next__(self):
        message = self._ahead.pop() if self._ahead else self._read()
        if message is None:
            raise StopIteration
        self.raw += message.SerializeToString()
        return ServerSentEvent(self._client.event(message))

    def _read(self):
        try:
            return next(self._call, None)
        except grpc.RpcError as error:
            self._client.fail(error)

    def all(self):
        """The data of all events until the end."""
        return [event.data for event in self]

    def close(self):
        self.exchange.disconnect()


@dataclass
class Grpc(Client):
    """gRPC"""

    headers: dict = field(default_factory=lambda: {"A2A-Version": "1.0"})

    binding = "grpc"

    @property
    def served(self):
        return served(self.site.server)

    @property
    def stub(self):
        return a2a_pb2_grpc.A2AServiceStub(self.served.channel)

    @property
    def metadata(self):
        given = {name.lower(): value for name, value in self.headers.items() if value is not None}
        lines = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
        return [(name, line) for name in lines for line in lines[name]]

    def request(self, kind, data):
        """A `kind` of ProtoJSON data, with the agent and the tenant."""
        request = ParseDict(data, kind())
        request.tenant = "/".join(filter(None, (self.agent, self.tenant)))
        return request

    def call(self, method, kind, data):
        request = self.request(kind, data)
        return Exchange(self, getattr(self.stub, method).future(request, metadata=self.metadata, timeout=3 * PATIENCE))

    def ask(self, method, kind, data):
        return self.result(self.call(method, kind, data).response())

    def streaming(self, method, kind, data):
        call = getattr(self.stub, method)(self.request(kind, data), metadata=self.metadata, timeout=3 * PATIENCE)
        return Stream(self, call)

    def result(self, answer):
        return self.event(answer.message)

    def event(self, message):
        return shown(message)

    def fail(self, error):
        """The Error that the status tells."""
        trailing = dict(error.trailing_metadata())
        status = status_pb2.Status.FromString(trailing.pop("grpc-status-details-bin"))
        assert (error.code().value[0], error.details()) == (status.code, status.message)
        response = Response(HTTP[error.code().name], trailing, status.SerializeToString())
        details = [MessageToDict(detail) for detail in status.details]
        raise Error(response, error.code().name, status.message, details) from None

    # --- the operations

    def sending(self, said, metadata=None, **configuration):
        data = self.send_request(said, configuration, metadata)
        return Pending(self, self.call("SendMessage", a2a_pb2.SendMessageRequest, data))

    def stream(self, said="task completed", metadata=None, **configuration):
        data = self.send_request(said, configuration, metadata)
        return self.streaming("SendStreamingMessage", a2a_pb2.SendMessageRequest, data)

    def get(self, task_id, **query):
        return self.ask("GetTask", a2a_pb2.GetTaskRequest, {"id": task_id, **query})

    def list(self, **query):
        found = self.ask("ListTasks", a2a_pb2.ListTasksRequest, query)
        if query.get("includeArtifacts"):  # protobuf doesn't tell none from not shown
            found["tasks"] = [{"artifacts": [], **task} for task in found["tasks"]]
        return found

    def canceling(self, task_id):
        return Pending(self, self.call("CancelTask", a2a_pb2.CancelTaskRequest, {"id": task_id}))

    def cancel(self, task_id):
        return self.canceling(task_id)()

    def subscribe(self, task_id):
        return self.streaming("SubscribeToTask", a2a_pb2.SubscribeToTaskRequest, {"id": task_id})

    def create_push(self, task_id, **config):
        data = {"taskId": task_id, **config}
        return self.ask("CreateTaskPushNotificationConfig", a2a_pb2.TaskPushNotificationConfig, data)

    def get_push(self, task_id, config_id):
        data = {"taskId": task_id, "id": config_id}
        return self.ask("GetTaskPushNotificationConfig", a2a_pb2.GetTaskPushNotificationConfigRequest, data)

    def list_push(self, task_id):
        kind = a2a_pb2.ListTaskPushNotificationConfigsRequest
        found = self.ask("ListTaskPushNotificationConfigs", kind, {"taskId": task_id})
        return {"configs": [], "nextPageToken": "", **found}

    def delete_push(self, task_id, config_id):
        data = {"taskId": task_id, "id": config_id}
        return self.ask("DeleteTaskPushNotificationConfig", a2a_pb2.DeleteTaskPushNotificationConfigRequest, data)

    def extended_card(self):
        return self.ask("GetExtendedAgentCard", a2a_pb2.GetExtendedAgentCardRequest, {})

    # --- raw

    def send_raw(self, raw):
        """A SendMessageRequest in JSON, as far as protobuf has words for it."""
        return self.ask("SendMessage", a2a_pb2.SendMessageRequest, json.loads(raw))


CLIENTS = {"grpc": Grpc, **clients.CLIENTS}


def over_http(*values):
    """Parameters of a test that protobuf has no words for."""
    return [pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.http) for one in values]


def shown(message):
    """`message` as JSON shows it: required fields are there even when they are empty, times have milliseconds."""
    data = MessageToDict(message)
    _complete(message.DESCRIPTOR, data)
    return data


def _complete(descriptor, data):
    for proto in descriptor.fields:
        name, required = proto.json_name, FieldBehavior.REQUIRED in proto.GetOptions().Extensions[field_behavior]
        if name not in data:
            if required:
                data[name] = [] if proto.is_repeated else proto.default_value
        elif proto.type == FieldDescriptor.TYPE_MESSAGE:
            if proto.message_type.full_name == "google.protobuf.Timestamp" and "." not in data[name]:
                data[name] = data[name].replace("Z", ".000Z")
            elif proto.message_type.file is descriptor.file and not proto.message_type.GetOptions().map_entry:
                for item in data[name] if proto.is_repeated else [data[name]]:
                    _complete(proto.message_type, item)
