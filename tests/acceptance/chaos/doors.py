"""The bindings, for a client that has to know whether a call failed for good."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from tests.acceptance.sites import HEADERS

PATIENCE = 8.0  # seconds without a byte; streams have heartbeats


class BrokenError(Exception):
    """The call failed in a way that leaves open what became of it: it is to be made again."""


class AnsweredError(BrokenError):
    """The server itself says so."""


class RefusedError(Exception):
    """The server's definite no."""

    def __init__(self, code: int | str, text: str) -> None:
        super().__init__(f"{code} {text[:300]}")
        self.code = code


class Item(NamedTuple):
    """One event of a stream, and its data as the text that came."""

    sequence: int
    text: str


def client(user: str) -> httpx.AsyncClient:
    """What a user's calls go through."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    return httpx.AsyncClient(timeout=PATIENCE, headers=HEADERS, limits=limits, auth=(user, "secret"), verify=False)


class Door:
    """One agent through one binding; each call is made once."""

    def __init__(self, http: httpx.AsyncClient, url: str, binding: str) -> None:
        self._http, self._url, self._rpc = http, url, binding == "JSON-RPC"

    async def send(self, params: dict[str, Any]) -> dict[str, Any]:
        """SendMessageResponse data."""
        return await self._call("SendMessage", "message:send", params)

    async def get(self, task: str) -> dict[str, Any]:
        """Task data."""
        return await self._call("GetTask", f"tasks/{task}", {"id": task}, verb="GET")

    async def cancel(self, task: str) -> dict[str, Any]:
        """Task data."""
        return await self._call("CancelTask", f"tasks/{task}:cancel", {"id": task})

    def stream(self, params: dict[str, Any], after: int | None) -> Any:
        """SendStreamingMessage: within it an iterator of Items."""
        return self._events("SendStreamingMessage", "message:stream", params, after)

    def subscribe(self, task: str, after: int | None) -> Any:
        """SubscribeToTask: within it an iterator of Items."""
        return self._events("SubscribeToTask", f"tasks/{task}:subscribe", {"id": task}, after)

    def _request(self, method: str, path: str, params: dict[str, Any], verb: str = "POST") -> dict[str, Any]:
        if self._rpc:
            call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return {"method": "POST", "url": self._url, "json": call}
        body = {"json": params} if verb == "POST" else {}
        return {"method": verb, "url": f"{self._url}/{path}", **body}

    async def _call(self, method: str, path: str, params: dict[str, Any], verb: str = "POST") -> dict[str, Any]:
        try:
            response = await self._http.request(**self._request(method, path, params, verb))
        except httpx.TransportError as error:
            raise BrokenError(type(error).__name__) from error
        self._check(response.status_code, response.text)
        data = response.json()
        return data["result"] if self._rpc else data

    @asynccontextmanager
    async def _events(
        self, method: str, path: str, params: dict[str, Any], after: int | None
    ) -> AsyncIterator[AsyncIterator[Item]]:
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        try:
            async with self._http.stream(**self._request(method, path, params), headers=headers) as response:
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    self._check(response.status_code, (await response.aread()).decode())
                    raise BrokenError(f"{response.status_code} is no stream")
                yield self._items(response)
        except httpx.TransportError as error:
            raise BrokenError(type(error).__name__) from error

    async def _items(self, response: httpx.Response) -> AsyncIterator[Item]:
        sequence, kind = 0, ""
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                sequence = int(value)
            elif name == "event":
                kind = value
            elif name == "data":
                if kind:
                    raise AnsweredError(value[:300])
                yield Item(sequence, self._unwrapped(value))

    def _unwrapped(self, text: str) -> str:
        """The text of a StreamResponse, byte for byte."""
        before = '{"jsonrpc":"2.0","id":1,"result":'
        return text.removeprefix(before).removesuffix("}") if self._rpc and text.startswith(before) else text

    def _check(self, status: int, text: str) -> None:
        if status >= 500:
            raise AnsweredError(f"{status} {text[:300]}")
        error = json.loads(text).get("error")
        if error and error["code"] == -32603:
            raise AnsweredError(text[:300])
        if error or status >= 400:
            raise RefusedError(_reason(error), text)


def _reason(error: dict[str, Any]) -> str:
    """`TASK_NOT_CANCELABLE` and the like."""
    details = [*error.get("details", ()), *error.get("data", ())]
    return str(next((detail["reason"] for detail in details if "reason" in detail), error["code"]))
