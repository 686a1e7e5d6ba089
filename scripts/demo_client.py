"""An A2A client that knows nothing of Django: shows a card, a stream as it arrives, and the task that came of it."""

import asyncio
import os
import sys
import time

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.helpers import display_agent_card, get_message_text, new_text_message
from a2a.types import GetTaskRequest, Role, SendMessageRequest, StreamResponse, Task, TaskState
from google.protobuf.json_format import MessageToJson

AGENT = "report"
QUESTION = "Write the report on open tickets."
START_TIMEOUT = 30.0  # seconds


async def wait_for_site(http: httpx.AsyncClient, url: str, server: int) -> None:
    """Return when the site answers; exit when its process (a pid) is gone or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        try:
            os.kill(server, 0)
            await http.get(url)
        except ProcessLookupError:
            sys.exit("The server stopped while it started.")
        except httpx.TransportError:
            await asyncio.sleep(0.1)
        else:
            return
    sys.exit(f"The server did not answer within {START_TIMEOUT:.0f} seconds.")


async def converse(client: Client) -> Task:
    """Send the question and print every event as it comes; the task as the server then has it."""
    message = new_text_message(QUESTION, role=Role.ROLE_USER)
    print(f"\n--> {QUESTION}\n")
    task_id = ""
    started = time.monotonic()
    async for event in client.send_message(SendMessageRequest(message=message)):
        task_id = task_id or event.task.id
        print(f"{time.monotonic() - started:6.2f} s  {describe(event)}")
    return await client.get_task(GetTaskRequest(id=task_id))


def describe(event: StreamResponse) -> str:
    """One event of a stream in one line."""
    match event.WhichOneof("payload"):
        case "task":
            return f"task {event.task.id} is {TaskState.Name(event.task.status.state)}"
        case "status_update":
            return f"status   {TaskState.Name(event.status_update.status.state)}"
        case "artifact_update":
            return f"artifact {''.join(part.text for part in event.artifact_update.artifact.parts)!r}"
        case _:
            return f"message  {get_message_text(event.message)!r}"


async def main(site: str, server: int) -> None:
    """Wait for the site, then hold one conversation with the agent over HTTP."""
    async with httpx.AsyncClient(timeout=START_TIMEOUT) as http:
        await wait_for_site(http, site, server)
        card = await A2ACardResolver(http, f"{site}/a2a/{AGENT}").get_agent_card()
        display_agent_card(card)
        client = await create_client(card, ClientConfig(httpx_client=http, supported_protocol_bindings=["HTTP+JSON"]))
        task = await converse(client)
    print(f"\nThe task as stored: {MessageToJson(task)}")
    if task.status.state != TaskState.TASK_STATE_COMPLETED:
        sys.exit("The task was not completed.")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
