"""Clients of the site in this process: a web server without sockets, and one client for each binding.

The server runs the real ASGI application in a thread with a loop of its own, as daphne does, and shows each chunk as
it comes. Tests are plain functions that wait for what they want to see.
"""

import asyncio
import json
import queue
import threading
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import urlencode
from uuid import uuid4

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from a2a_django.routing import with_streaming

PATIENCE = 20.0
TERMINAL = {"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"}


class BearerName(TokenAuthentication):
    """`Authorization: Bearer <username>`: the quickest way to be somebody."""

    keyword = "Bearer"

    def authenticate_credentials(self, key):
        from django.contrib.auth import get_user_model

        user = get_user_model().objects.filter(username=key, is_active=True).first()
        if user is None:
            raise AuthenticationFailed("Nobody is called that")
        return user, None


@dataclass
class Response:
    """What came back, whole."""

    status: int
    headers: dict
    body: bytes

    def json(self):
        return json.loads(self.body)


class Server:
    """The site, as its asgi.py makes it; one for all tests, applications are made by need."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="test-server", daemon=True).start()

    def open(self, application, scope, body):
        """An Exchange that has begun."""
        exchange = Exchange(self, body)
        exchange.finished = asyncio.run_coroutine_threadsafe(exchange.run(application, scope), self.loop)
        return exchange

    def settle(self):
        """Waits until every request has been left by the application."""
        asyncio.run_coroutine_threadsafe(_others(), self.loop).result(PATIENCE)


async def _others():
    """The gRPC server's own tasks wait for calls; those that answer one count."""
    own = ("AioServer._request_", "AioServer._server_")
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    others = {task for task in tasks if not task.get_coro().__qualname__.startswith(own)}
    if others:
        _, still = await asyncio.wait(others, timeout=PATIENCE / 2)
        for task in still:  # the next test has nothing to do with it
            task.cancel()
        assert not still, f"the application did not let go of {still}"


class Exchange:
    """One request and its response, chunk by chunk."""

    def __init__(self, server, body):
        self._server, self._body = server, list(body)
        self._out = queue.SimpleQueue()
        self._in, self._room = asyncio.Queue(), asyncio.Event()
        self._room.set()
        self._over = False
        self.finished = None

    async def run(self, application, scope):
        try:
            await application(scope, self._receive, self._send)
        finally:
            self._out.put(None)

    async def _receive(self):
        if self._body:
            part = self._body.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._body)}
        if self._over:
            return {"type": "http.disconnect"}
        return await self._in.get()

    async def _send(self, message):
        await self._room.wait()
        self._over = message["type"] == "http.response.body" and not message.get("more_body")
        self._out.put(message)

    def _soon(self, function, *args):
        self._server.loop.call_soon_threadsafe(function, *args)

    def disconnect(self):
        """The client goes away; returns when the application has noticed."""
        self._soon(self._in.put_nowait, {"type": "http.disconnect"})
        self.finished.result(PATIENCE)

    def pause(self):
        """The client reads no more: what the application sends waits."""
        asyncio.run_coroutine_threadsafe(self._set(self._room.clear), self._server.loop).result(PATIENCE)

    def resume(self):
        self._soon(self._room.set)

    async def _set(self, function):
        function()

    def message(self, timeout=PATIENCE):
        """The next ASGI message; None when the application has returned."""
        return self._out.get(timeout=timeout)

    def start(self):
        """Status and headers; fails if the application returned without."""
        message = self.message()
        assert message is not None, f"no response: {self.finished.exception()!r}"
        assert message["type"] == "http.response.start"
        headers = {}
        for name, value in message["headers"]:
            headers.setdefault(name.decode().lower(), []).append(value.decode("latin-1"))
        return message["status"], {name: ", ".join(values) for name, values in headers.items()}

    def response(self):
        """The whole of it."""
        status, headers = self.start()
        body = b""
        while (message := self.message()) is not None:
            body += message.get("body", b"")
        self.finished.result(PATIENCE)
        return Response(status, headers, body)


@dataclass
class ServerSentEvent:
    """One event of a stream, its data as the binding's client sees it."""

    data: dict
    id: int | None = None
    name: str = "message"


class Error(Exception):
    """An A2A error as a client sees it; `code` is the binding's own, `reason` the same in all."""

    def __init__(self, response, code, message, details):
        super().__init__(f"{code} {message} {details}")
        self.response, self.status, self.code, self.message, self.details = (
            response,
            response.status,
            code,
            message,
            details,
        )
        info = next(item for item in details if item["@type"].endswith("google.rpc.ErrorInfo"))
        assert info["domain"] == "a2a-protocol.org"
        self.reason, self.metadata = info["reason"], info.get("metadata", {})

    @property
    def fields(self):
        """The fields that were at fault."""
        violations = [
            item["fieldViolations"] for item in self.details if item["@type"].endswith("google.rpc.BadRequest")
        ]
        return [violation["field"] for found in violations for violation in found]


class Stream:
    """Events as they come; iterates until the server ends the stream."""

    def __init__(self, exchange, client):
        self.exchange, self._client = exchange, client
        self.status, self.headers = exchange.start()
        self.comments, self.raw = 0, b""
        self._buffer = b""
        if self.status != 200 or not self.headers["content-type"].startswith("text/event-stream"):
            body = b""
            while (message := exchange.message()) is not None:
                body += message["body"]
            response = Response(self.status, self.headers, body)
            assert self.headers["content-type"] == "application/json"
            client.result(response)
            raise AssertionError(f"neither a stream nor an error: {response}")

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            block = self._block()
            if block.startswith(b":"):
                self.comments += 1
            else:
                return self._event(block)

    def comment(self):
        """Waits for a heartbeat; fails if an event comes first."""
        assert self._block().startswith(b":")
        self.comments += 1

    def _block(self):
        while b"\n\n" not in self._buffer:
            message = self.exchange.message()
            if message is None or not message.get("more_body"):
                assert not self._buffer, f"the stream ended within an event: {self._buffer!r}"
                assert message is None or not message.get("body")
                self.exchange.finished.result(PATIENCE)
                raise StopIteration
            self._buffer += message["body"]
            self.raw += message["body"]
        block, _, self._buffer = self._buffer.partition(b"\n\n")
        return block

    def _event(self, block):
        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
        assert fields.keys() <= {"id", "event", "data"}
        data = json.loads(fields["data"])
        if fields.get("event") == "error":
            response = Response(200, self.headers, fields["data"].encode())
            self._client.error(response, data)
        identifier = int(fields["id"]) if "id" in fields else None
        return ServerSentEvent(self._client.event(data), identifier)

    def all(self):
        """The data of all events until the end."""
        return [event.data for event in self]

    def close(self):
        self.exchange.disconnect()


@dataclass
class Site:
    """HTTP with the site. `served` is "asgi", "asgi-bare" (without `with_streaming`) or "wsgi"."""

    server: Server
    served: str = "asgi"
    root: str = ""
    _application: object = None

    def application(self):
        """Made at the first request, so that a test can set MIDDLEWARE before."""
        if self._application is None:
            self._application = with_streaming(ASGIHandler()) if self.served == "asgi" else ASGIHandler()
        return self._application

    def open(self, method, path, body=b"", headers=None, *, parts=None):
        """An Exchange; `parts` are sent one by one without a Content-Length, a list in `headers` line by line."""
        path, _, query = path.partition("?")
        given = {"host": "testserver", **{name.lower(): value for name, value in (headers or {}).items()}}
        if parts is None:
            given.setdefault("content-length", str(len(body)))
        given = {name: value for name, value in given.items() if value is not None}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": self.root + path,
            "raw_path": (self.root + path).encode(),
            "root_path": self.root,
            "query_string": query.encode(errors="surrogateescape"),
            "headers": [
                (name.encode(), line.encode("latin-1"))
                for name, value in given.items()
                for line in (value if isinstance(value, list) else [value])
            ],
            "client": ["127.0.0.1", 12345],
            "server": ["testserver", 80],
        }
        return self.server.open(self.application(), scope, [body] if parts is None else parts)

    def request(self, method, path, body=b"", headers=None, **kwargs):
        """The whole response."""
        return self.open(method, path, body, headers, **kwargs).response()

    def get(self, path, **headers):
        return self.request("GET", path, headers=headers)


class WsgiSite(Site):
    """The same, by WSGI; each answer is whole."""

    def application(self):
        if self._application is None:
            self._application = WSGIHandler()
        return self._application

    def open(self, *args, **kwargs):
        return Whole(self.request(*args, **kwargs))

    def request(self, method, path, body=b"", headers=None, *, parts=None):
        from django.test.client import FakePayload

        path, _, query = path.partition("?")
        headers = {"host": "testserver", "content-type": None, **{k.lower(): v for k, v in (headers or {}).items()}}
        environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items() if value}
        environ |= {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "SCRIPT_NAME": self.root,
            "QUERY_STRING": query,
            "CONTENT_TYPE": headers["content-type"] or "",
            "CONTENT_LENGTH": str(len(body)),
            "SERVER_NAME": "testserver",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REMOTE_ADDR": "127.0.0.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": FakePayload(body),
            "wsgi.errors": None,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        started = {}

        def start_response(status, found, exc_info=None):
            started["status"], started["headers"] = int(status[:3]), {name.lower(): value for name, value in found}

        response = self.application()(environ, start_response)
        try:
            return Response(started["status"], started["headers"], b"".join(response))
        finally:
            response.close()


class Whole:
    """A response that came whole, to be read like an Exchange."""

    def __init__(self, response):
        self._response, self._left = response, [{"body": response.body}]

    def response(self):
        return self._response

    def start(self):
        return self._response.status, self._response.headers

    def message(self):
        return self._left.pop() if self._left else None


def message(text="task completed", **fields):
    """A client's message with one text; `parts` and all else can be given."""
    return {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]} | fields


@dataclass
class Client:
    """What both bindings' clients can do: the eleven operations, results as data, errors raised as `Error`."""

    site: Site
    agent: str = "test"
    tenant: str = ""
    headers: dict = field(default_factory=lambda: {"A2A-Version": "1.0", "Content-Type": "application/a2a+json"})
    tenant_in: str = "path"

    binding = ""

    def copy(self, **changes):
        fields = {name: getattr(self, name) for name in ("site", "agent", "tenant", "headers", "tenant_in")}
        return type(self)(**fields | changes)

    def as_(self, username):
        """The same client with that user's credentials."""
        return self.with_headers(Authorization=f"Bearer {username}")

    def basic(self, username, password):
        credentials = b64encode(f"{username}:{password}".encode()).decode()
        return self.with_headers(Authorization=f"Basic {credentials}")

    def with_headers(self, **headers):
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.copy(headers=self.headers | headers)

    def within(self, tenant, **kwargs):
        return self.copy(tenant=tenant, **kwargs)

    @property
    def url(self):
        tenant = f"/{self.tenant}" if self.tenant and self.tenant_in == "path" else ""
        return f"/a2a/{self.agent}{tenant}"

    def fields(self, request):
        """The request, with the tenant where it goes by the body."""
        return {"tenant": self.tenant, **request} if self.tenant and self.tenant_in == "body" else request

    @staticmethod
    def send_request(said, configuration, metadata=None):
        request = {"message": message(said) if isinstance(said, str) else said}
        if configuration:
            request["configuration"] = configuration
        if metadata:
            request["metadata"] = metadata
        return request

    def send(self, said="task completed", metadata=None, **configuration):
        """SendMessage: `{"task": …}` or `{"message": …}`"""
        return self.sending(said, metadata, **configuration)()

    def task(self, said="task completed", metadata=None, **configuration):
        """SendMessage that brings a task: the task."""
        return self.send(said, metadata, **configuration)["task"]

    def follow(self, task, said, **configuration):
        """SendMessage to `task`."""
        return self.task(message(said, taskId=task["id"]), **configuration)


class Rest(Client):
    """HTTP+JSON"""

    binding = "rest"

    def call(self, method, path, body=None, query=None, headers=None):
        raw = b"" if body is None else json.dumps(self.fields(body)).encode()
        if body is None:
            query = self.fields(query or {})
        path += f"?{urlencode(query)}" if query else ""
        return self.site.open(method, self.url + path, raw, self.headers | (headers or {}))

    def ask(self, *args, **kwargs):
        return self.result(self.call(*args, **kwargs).response())

    def result(self, response):
        data = json.loads(response.body)
        if response.status == 200:
            assert response.headers["content-type"] == "application/a2a+json"
            return data
        return self.error(response, data)

    def error(self, response, data):
        assert response.headers["content-type"] in ("application/json", "text/event-stream")
        assert data.keys() == {"error"}
        error = data["error"]
        assert error.keys() == {"code", "status", "message", "details"}
        assert response.status in (200, error["code"])
        raise Error(response, error["status"], error["message"], error["details"])

    def event(self, data):
        return data

    # --- the operations

    def sending(self, said, metadata=None, **configuration):
        exchange = self.call("POST", "/message:send", self.send_request(said, configuration, metadata))
        return Pending(self, exchange)

    def stream(self, said="task completed", metadata=None, last=None, **configuration):
        body = self.send_request(said, configuration, metadata)
        return Stream(self.call("POST", "/message:stream", body, headers=_resumed(last)), self)

    def get(self, task_id, **query):
        return self.ask("GET", f"/tasks/{task_id}", query=query)

    def list(self, **query):
        return self.ask("GET", "/tasks", query={name: _in_query(value) for name, value in query.items()})

    def canceling(self, task_id):
        return Pending(self, self.call("POST", f"/tasks/{task_id}:cancel", {}))

    def cancel(self, task_id):
        return self.canceling(task_id)()

    def subscribe(self, task_id, last=None):
        return Stream(self.call("GET", f"/tasks/{task_id}:subscribe", headers=_resumed(last)), self)

    def create_push(self, task_id, **config):
        return self.ask("POST", f"/tasks/{task_id}/pushNotificationConfigs", config)

    def get_push(self, task_id, config_id):
        return self.ask("GET", f"/tasks/{task_id}/pushNotificationConfigs/{config_id}")

    def list_push(self, task_id):
        return self.ask("GET", f"/tasks/{task_id}/pushNotificationConfigs")

    def delete_push(self, task_id, config_id):
        return self.ask("DELETE", f"/tasks/{task_id}/pushNotificationConfigs/{config_id}")

    def extended_card(self):
        return self.ask("GET", "/extendedAgentCard")

    # --- raw

    def post_raw(self, raw, headers=None, *, parts=None, streaming=False):
        """The response to a send of these very bytes."""
        path = f"{self.url}/message:{'stream' if streaming else 'send'}"
        return self.site.request("POST", path, raw, self.headers | (headers or {}), parts=parts)

    def send_raw(self, raw):
        return self.result(self.post_raw(raw))

    @staticmethod
    def send_body(request, streaming=False):
        """The bytes of a send."""
        return json.dumps(request).encode()


class JsonRpc(Client):
    """JSON-RPC 2.0"""

    binding = "jsonrpc"

    def call(self, method, params, headers=None):
        envelope = {"jsonrpc": "2.0", "id": "the-id", "method": method, "params": self.fields(params)}
        return self.site.open("POST", self.url, json.dumps(envelope).encode(), self.headers | (headers or {}))

    def ask(self, *args, **kwargs):
        return self.result(self.call(*args, **kwargs).response())

    def result(self, response):
        data = json.loads(response.body)
        assert response.headers["content-type"] == "application/json"
        if "error" in data:
            return self.error(response, data)
        assert response.status == 200
        return self.event(data)

    def error(self, response, data):
        assert data.keys() == {"jsonrpc", "id", "error"}
        assert data["jsonrpc"] == "2.0"
        assert data["id"] in ("the-id", None)
        error = data["error"]
        assert error.keys() == {"code", "message", "data"}
        raise Error(response, error["code"], error["message"], error["data"])

    def event(self, data):
        assert data.keys() == {"jsonrpc", "id", "result"}
        assert (data["jsonrpc"], data["id"]) == ("2.0", "the-id")
        return data["result"]

    # --- the operations

    def sending(self, said, metadata=None, **configuration):
        exchange = self.call("SendMessage", self.send_request(said, configuration, metadata))
        return Pending(self, exchange)

    def stream(self, said="task completed", metadata=None, last=None, **configuration):
        params = self.send_request(said, configuration, metadata)
        return Stream(self.call("SendStreamingMessage", params, headers=_resumed(last)), self)

    def get(self, task_id, **params):
        return self.ask("GetTask", {"id": task_id, **params})

    def list(self, **params):
        return self.ask("ListTasks", params)

    def canceling(self, task_id):
        return Pending(self, self.call("CancelTask", {"id": task_id}))

    def cancel(self, task_id):
        return self.canceling(task_id)()

    def subscribe(self, task_id, last=None):
        return Stream(self.call("SubscribeToTask", {"id": task_id}, headers=_resumed(last)), self)

    def create_push(self, task_id, **config):
        return self.ask("CreateTaskPushNotificationConfig", {"taskId": task_id, **config})

    def get_push(self, task_id, config_id):
        return self.ask("GetTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})

    def list_push(self, task_id):
        return self.ask("ListTaskPushNotificationConfigs", {"taskId": task_id})

    def delete_push(self, task_id, config_id):
        return self.ask("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})

    def extended_card(self):
        return self.ask("GetExtendedAgentCard", {})

    # --- raw

    def post_raw(self, raw, headers=None, *, parts=None, streaming=False):
        return self.site.request("POST", self.url, raw, self.headers | (headers or {}), parts=parts)

    def send_raw(self, raw):
        envelope = b'{"jsonrpc":"2.0","id":"the-id","method":"SendMessage","params":' + raw + b"}"
        return self.result(self.post_raw(envelope))

    @staticmethod
    def send_body(request, streaming=False):
        method = "SendStreamingMessage" if streaming else "SendMessage"
        return json.dumps({"jsonrpc": "2.0", "id": "the-id", "method": method, "params": request}).encode()


@dataclass
class Pending:
    """A call that is under way; calling it waits for the result."""

    client: Client
    exchange: Exchange

    def __call__(self):
        return self.client.result(self.exchange.response())

    @property
    def done(self):
        return self.exchange.finished.done()


def _resumed(last):
    return {} if last is None else {"Last-Event-ID": str(last)}


def _in_query(value):
    return str(value).lower() if isinstance(value, bool) else value


CLIENTS = {"rest": Rest, "jsonrpc": JsonRpc}


def state(task):
    """`COMPLETED` and so on."""
    return task["status"]["state"].removeprefix("TASK_STATE_")


def words(task):
    """The texts of a task's history, in order."""
    return [part["text"] for said in task.get("history", ()) for part in said["parts"]]


def artifact(task):
    """The text of the one artifact of a task."""
    (found,) = task["artifacts"]
    return "".join(part["text"] for part in found["parts"])


def kinds(events):
    """What a stream's events are: `task`, the state of a status update, `artifactUpdate`, `message`."""
    return [state(data["statusUpdate"]) if kind == "statusUpdate" else kind for data in events for kind in data]


def folded(events):
    """The Task that a stream's reader has in the end: the first event with all later ones worked in (A2A 4.2.2)."""
    task = json.loads(json.dumps(events[0]["task"]))
    artifacts = {item["artifactId"]: item for item in task.get("artifacts", ())}
    for data in events[1:]:
        if "statusUpdate" in data:
            task["status"] = data["statusUpdate"]["status"]
            continue
        update = data["artifactUpdate"]
        chunk = update["artifact"]
        if update.get("append"):
            artifacts[chunk["artifactId"]]["parts"] += chunk["parts"]
        else:
            artifacts[chunk["artifactId"]] = json.loads(json.dumps(chunk))
    return task | ({"artifacts": list(artifacts.values())} if artifacts else {})
