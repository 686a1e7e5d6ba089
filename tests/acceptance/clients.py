"""Clients: the a2a-sdk's own, and one that shows the raw stream."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.interceptors import AfterArgs, BeforeArgs, ClientCallInterceptor
from a2a.types import Message, Part, Role, SendMessageRequest, StreamResponse, TaskState

from tests.acceptance.sites import HEADERS, Web

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")
TIMEOUT = 40.0

COMPLETED = TaskState.TASK_STATE_COMPLETED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
CANCELED = TaskState.TASK_STATE_CANCELED
FAILED = TaskState.TASK_STATE_FAILED


@asynccontextmanager
async def connect(
    web: Web, agent: str = "script", binding: str = "JSONRPC", *, user: str = "", version: str = "1.0", **config: Any
) -> AsyncIterator[Client]:
    """The a2a-sdk's client, made from what the card that the site serves says of A2A `version`."""
    auth = (user, "secret") if user else None
    interceptors = [Credentials(user)] if user else []  # for gRPC, which has no httpx client
    channels = Channels()
    async with httpx.AsyncClient(timeout=TIMEOUT, auth=auth, headers=HEADERS, verify=False) as http, channels:
        config |= {"supported_protocol_bindings": [binding], "grpc_channel_factory": channels.open}
        factory = ClientFactory(ClientConfig(httpx_client=http, **config))
        card = await A2ACardResolver(http, f"{web.url}/a2a/{agent}").get_agent_card()
        for interface in [one for one in card.supported_interfaces if one.protocol_version != version]:
            card.supported_interfaces.remove(interface)
        yield factory.create(card, interceptors)


class Channels(AsyncExitStack):
    """gRPC channels that are closed at the end."""

    def open(self, url: str) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(url)
        self.push_async_callback(channel.close)
        return channel


class Credentials(ClientCallInterceptor):
    """Basic credentials in each call's metadata or headers."""

    def __init__(self, user: str) -> None:
        self._header = "Basic " + b64encode(f"{user}:secret".encode()).decode()

    async def before(self, args: BeforeArgs) -> None:
        args.context = args.context or ClientCallContext()
        args.context.service_parameters = {**(args.context.service_parameters or {}), "Authorization": self._header}

    async def after(self, args: AfterArgs) -> None:
        """Nothing."""


def request(text: str, *, task: str = "", context: str = "", **configuration: Any) -> SendMessageRequest:
    """A SendMessage of one text."""
    message = Message(
        message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)], task_id=task, context_id=context
    )
    return SendMessageRequest(message=message, configuration=configuration)


async def send(client: Client, text: str, **options: Any) -> StreamResponse:
    """The last that comes in answer to `text`."""
    return (await stream(client, text, **options))[-1]


async def stream(client: Client, text: str, **options: Any) -> list[StreamResponse]:
    """All that comes in answer to `text`."""
    return [event async for event in client.send_message(request(text, **options))]


async def until_event(events: AsyncIterator[StreamResponse], kind: str, number: int = 1) -> list[StreamResponse]:
    """Reads on until so many events of `kind` have come; what came."""
    found = []
    async for event in events:
        found.append(event)
        number -= event.WhichOneof("payload") == kind
        if not number:
            return found
    raise AssertionError(f"the stream ended before its {kind}: {found}")


def text_of(events: list[StreamResponse]) -> str:
    """The chunks in `events`, one after another, what a Task has of them too."""
    parts = []
    for event in events:
        artifacts = event.task.artifacts if event.HasField("task") else [event.artifact_update.artifact]
        parts += [part.text for artifact in artifacts for part in artifact.parts]
    return "".join(parts)


def numbers(first: int, last: int) -> str:
    """What the chunks from `first` to `last` say together."""
    return "".join(f"{number} " for number in range(first, last + 1))


class Sent(NamedTuple):
    """One event of a raw stream."""

    sequence: int
    data: dict[str, Any]


class Raw:
    """The bindings without a library, to see what the SDK's client hides."""

    def __init__(self, web: Web, http: httpx.AsyncClient, binding: str) -> None:
        self.base, self.http, self._rpc = f"{web.url}/a2a/script", http, binding == "JSONRPC"

    @asynccontextmanager
    async def stream(self, text: str) -> AsyncIterator[AsyncIterator[Sent]]:
        """SendStreamingMessage; leaving it drops the connection."""
        async with self._events("message:stream", "SendStreamingMessage", body(text)) as events:
            yield events

    @asynccontextmanager
    async def subscribe(self, task: str, after: int | None = None) -> AsyncIterator[AsyncIterator[Sent]]:
        """SubscribeToTask, resumed after event `after`."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self._events(f"tasks/{task}:subscribe", "SubscribeToTask", {"id": task}, **headers) as events:
            yield events

    @asynccontextmanager
    async def _events(
        self, path: str, method: str, params: dict[str, Any], **headers: str
    ) -> AsyncIterator[AsyncIterator[Sent]]:
        url, payload = f"{self.base}/{path}", params
        if self._rpc:
            url, payload = self.base, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.stream("POST", url, json=payload, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream"
            async with aclosing(_parse(response)) as events:
                yield events

    async def post(self, path: str, payload: dict[str, Any]) -> httpx.Response:
        """Whatever is answered."""
        return await self.http.post(f"{self.base}/{path}", json=payload)

    async def send(self, text: str, *, immediately: bool = False) -> dict[str, Any]:
        """The task that a message:send answers with."""
        response = await self.http.post(f"{self.base}/message:send", json=body(text, immediately=immediately))
        assert response.status_code == 200, response.text
        return response.json()["task"]


def written(web: Web, path: str, payload: dict[str, Any], **headers: str) -> bytes:
    """A POST to the agent “script” as it goes over the wire."""
    content = json.dumps(payload).encode()
    lines = [f"POST /a2a/script/{path} HTTP/1.1", f"Host: 127.0.0.1:{web.port}"]
    headers = HEADERS | {"Content-Type": "application/a2a+json", "Content-Length": str(len(content))} | headers
    return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode() + content


@asynccontextmanager
async def raw(web: Web, binding: str = "HTTP+JSON") -> AsyncIterator[Raw]:
    """A Raw client of the agent “script”, with as many connections as it wants."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=TIMEOUT, headers=HEADERS, limits=limits, verify=False) as http:
        yield Raw(web, http, binding)


def body(text: str, *, immediately: bool = False) -> dict[str, Any]:
    """The JSON of a send."""
    message = {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": text}]}
    return {"message": message, "configuration": {"returnImmediately": immediately}}


async def _parse(response: httpx.Response) -> AsyncIterator[Sent]:
    sequence = 0
    async for line in response.aiter_lines():
        if line.startswith("id: "):
            sequence = int(line[4:])
        elif line.startswith("data: "):
            data = json.loads(line[6:])
            yield Sent(sequence, data.get("result", data))
        else:
            assert not line or line.startswith(":"), line


async def read(events: AsyncIterator[Sent], number: int | None = None) -> list[Sent]:
    """The next `number` events, or all until the stream ends."""
    found = []
    async for event in events:
        found.append(event)
        if len(found) == number:
            break
    return found
