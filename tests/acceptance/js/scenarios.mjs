// One scenario with the JavaScript SDK's client: node scenarios.mjs NAME, and what `told` reads from the environment.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

import { Role, TaskState, verifyAgentCardSignature } from "@a2a-js/sdk";
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  createAuthenticatingFetchWithRetry,
} from "@a2a-js/sdk/client";
import { GrpcTransportFactory } from "@a2a-js/sdk/client/grpc";

const told = {
  here: process.env.A2A_HERE, // two web processes of one site; they may be the same
  elsewhere: process.env.A2A_ELSEWHERE,
  binding: process.env.A2A_BINDING,
  version: process.env.A2A_VERSION,
  gates: process.env.ACCEPTANCE_GATES,
};
const scenarios = new Map();
const scenario = (name, play) => scenarios.set(name, play);

// --- clients and messages

/** A client made from the agent's card, by the binding and version that were asked for. */
async function connect(agent = "script", { at = told.here, fetchImpl } = {}) {
  const legacyCompat = { enabled: true };
  const factories = [JsonRpcTransportFactory, RestTransportFactory, GrpcTransportFactory];
  const transports = factories.map((Factory) => new Factory({ legacyCompat, fetchImpl }));
  const cardResolver = new DefaultAgentCardResolver({ legacyCompat, fetchImpl });
  const factory = new ClientFactory(ClientFactoryOptions.createFrom({ transports }, { cardResolver }));
  const card = await cardResolver.resolve(`${at}/a2a/${agent}/`);
  card.supportedInterfaces = card.supportedInterfaces.filter(
    (one) => one.protocolBinding === told.binding && one.protocolVersion === told.version,
  );
  assert.equal(card.supportedInterfaces.length, 1, "the card lists the binding once");
  return factory.createFromAgentCard(card);
}

/** The params of a send. */
function words(text, { task = "", context = "", ...configuration } = {}) {
  const parts = [{ content: { $case: "text", value: text }, filename: "", mediaType: "" }];
  const ids = { messageId: crypto.randomUUID(), taskId: task, contextId: context };
  const message = { ...ids, role: Role.ROLE_USER, parts, extensions: [], referenceTaskIds: [] };
  return { tenant: "", message, configuration: { acceptedOutputModes: [], returnImmediately: false, ...configuration } };
}

const stateOf = (task) => TaskState[task.status.state].replace("TASK_STATE_", "");
const textOf = (artifacts) => artifacts.flatMap((one) => one.parts.map((part) => part.content.value)).join("");
const open = (gate) => writeFileSync(join(told.gates, gate), "");

/** What a stream's event is: task, message, artifactUpdate or the state of a status update. */
function kind({ payload }) {
  return payload.$case === "statusUpdate" ? stateOf(payload.value) : payload.$case;
}

async function all(events) {
  const found = [];
  for await (const event of events) found.push(event);
  return found;
}

async function taken(events, number) {
  const found = [];
  while (found.length < number) {
    const { value, done } = await events.next();
    assert.ok(!done, "the stream ended early");
    found.push(value);
  }
  return found;
}

const chunksOf = (events) =>
  textOf(events.filter((one) => kind(one) === "artifactUpdate").map((one) => one.payload.value.artifact));

async function refused(call, name) {
  await assert.rejects(call, (error) => {
    assert.equal(error.name, name, `${error.name}: ${error.message}`);
    return true;
  });
}

// --- scenarios

scenario("card", async () => {
  const client = await connect("echo");
  assert.equal(client.transport.protocolName, told.binding);
  assert.ok(client.protocolVersion.startsWith(told.version));
  const site = await new DefaultAgentCardResolver().resolve(told.here);
  const own = await new DefaultAgentCardResolver().resolve(`${told.here}/a2a/echo/`);
  assert.deepEqual(site, own, "the default agent's card stands at the site's root too");
  assert.equal(site.name, "Echo");
  const http = site.supportedInterfaces.filter((one) => one.protocolBinding !== "GRPC");
  assert.deepEqual(new Set(http.map((one) => one.url)), new Set([`${told.here}/a2a/echo`]));
});

/** RFC 8785, whose numbers and strings are JSON.stringify's. */
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical)}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`)}}`;
}

scenario("signed card", async () => {
  const { signatures, ...card } = await (await fetch(`${told.here}/a2a/echo/.well-known/agent-card.json`)).json();
  const keyOf = async (kid, jku) => (await (await fetch(jku)).json()).keys.find((key) => key.kid === kid);
  await verifyAgentCardSignature(keyOf)({ ...card, signatures });
  await assert.rejects(verifyAgentCardSignature(keyOf)({ ...card, signatures, name: "Somebody else" }));

  const holds = await Promise.all(signatures.map(async ({ protected: header, signature }) => {
    const { kid, jku } = JSON.parse(Buffer.from(header, "base64url"));
    const kind = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
    const key = await crypto.subtle.importKey("jwk", await keyOf(kid, jku), kind, false, ["verify"]);
    const signed = Buffer.from(`${header}.${Buffer.from(canonical(card)).toString("base64url")}`);
    return crypto.subtle.verify(kind, key, Buffer.from(signature, "base64url"), signed);
  }));
  assert.deepEqual(holds, [false, true], "the second signature is of the JSON as it stands");
});

scenario("blocking send, and get", async () => {
  const client = await connect("echo");
  const text = "Hello, wörld \u2028 \u{1f600}";
  const task = await client.sendMessage(words(text));
  assert.equal(stateOf(task), "COMPLETED");
  assert.equal(textOf(task.artifacts), text);
  assert.deepEqual(await client.getTask({ tenant: "", id: task.id }), task);
});

scenario("message without a task", async () => {
  const client = await connect();
  const message = await client.sendMessage(words("say Good morning"));
  assert.equal(textOf([message]), "Good morning");
  const [event, ...more] = await all(client.sendMessageStream(words("say Good morning")));
  assert.deepEqual([kind(event), more], ["message", []]);
});

scenario("stream as it happens", async () => {
  const client = await connect();
  const events = client.sendMessageStream(words("work; chunks 2; wait door; chunks 2; complete"));
  const before = await taken(events, 4);
  open("door");
  const after = await all(events);
  assert.deepEqual(before.map(kind), ["task", "WORKING", "artifactUpdate", "artifactUpdate"]);
  assert.deepEqual(after.map(kind), ["artifactUpdate", "artifactUpdate", "COMPLETED"]);
  assert.equal(chunksOf([...before, ...after]), "1 2 3 4 ");
});

scenario("many chunks", async () => {
  const client = await connect();
  const events = await all(client.sendMessageStream(words("work; chunks 500; complete")));
  assert.equal(chunksOf(events), Array.from({ length: 500 }, (_, index) => `${index + 1} `).join(""));
});

scenario("input required and follow-up", async () => {
  const client = await connect();
  const asked = await client.sendMessage(words("work; ask Which one?"));
  assert.equal(stateOf(asked), "INPUT_REQUIRED");
  assert.equal(textOf([asked.status.message]), "Which one?");
  const other = await connect("script", { at: told.elsewhere });
  const follow = words("work; chunks 1; complete", { task: asked.id, context: asked.contextId });
  const done = await other.sendMessage(follow);
  assert.equal(stateOf(done), "COMPLETED");
  assert.deepEqual(done.history.map((one) => textOf([one])), [
    "work; ask Which one?",
    "Which one?",
    "work; chunks 1; complete",
  ]);
});

scenario("streams around input required", async () => {
  const client = await connect();
  const asked = await all(client.sendMessageStream(words("work; ask Which one?")));
  assert.equal(kind(asked.at(-1)), "INPUT_REQUIRED");
  const follow = words("work; chunks 1; complete", { task: asked[0].payload.value.id });
  assert.equal(kind((await all(client.sendMessageStream(follow))).at(-1)), "COMPLETED");
});

scenario("polling and cancel", async () => {
  const client = await connect();
  const task = await client.sendMessage(words("work; wait never; complete", { returnImmediately: true }));
  const id = { tenant: "", id: task.id };
  assert.notEqual(stateOf(await client.getTask(id)), "COMPLETED");
  const other = await connect("script", { at: told.elsewhere });
  assert.equal(stateOf(await other.cancelTask(id)), "CANCELED");
  assert.equal(stateOf(await client.getTask(id)), "CANCELED");
  await refused(() => client.cancelTask(id), "TaskNotCancelableError");
});

scenario("subscribe from a second client", async () => {
  const client = await connect();
  const events = client.sendMessageStream(words("work; chunks 2; wait door; chunks 1; complete"));
  const [first] = await taken(events, 4);
  const other = await connect("script", { at: told.elsewhere });
  const subscribed = other.resubscribeTask({ tenant: "", id: first.payload.value.id });
  const [snapshot] = await taken(subscribed, 1);
  assert.equal(textOf(snapshot.payload.value.artifacts), "1 2 ");
  open("door");
  assert.deepEqual(await all(subscribed), await all(events));
});

scenario("push configs", async () => {
  const client = await connect();
  const task = await client.sendMessage(words("work; ask Which one?"));
  const config = { tenant: "", taskId: task.id, id: "mine", url: "https://example.com/hook", token: "t" };
  const made = await client.createTaskPushNotificationConfig(config);
  assert.deepEqual([made.id, made.url, made.token], ["mine", config.url, "t"]);
  const one = { tenant: "", taskId: task.id, id: "mine" };
  assert.deepEqual(await client.getTaskPushNotificationConfig(one), made);
  if (!(told.version === "0.3" && told.binding === "HTTP+JSON")) {
    const listed = await client.listTaskPushNotificationConfig({ tenant: "", taskId: task.id, pageSize: 0, pageToken: "" });
    assert.deepEqual(listed.configs, [made]);
  }
  await client.deleteTaskPushNotificationConfig(one);
  await refused(() => client.getTaskPushNotificationConfig(one), "TaskNotFoundError");
});

scenario("errors", async () => {
  const client = await connect();
  const nobodys = { tenant: "", id: "nobody's" };
  const { id } = await client.sendMessage(words("work; complete"));
  await refused(() => client.getTask(nobodys), "TaskNotFoundError");
  await refused(() => client.cancelTask(nobodys), "TaskNotFoundError");
  await refused(() => client.cancelTask({ tenant: "", id }), "TaskNotCancelableError");
  await refused(() => client.sendMessage(words("complete", { task: id })), "UnsupportedOperationError");
  await refused(() => all(client.sendMessageStream(words("complete", { task: id }))), "UnsupportedOperationError");
  await refused(() => all(client.resubscribeTask(nobodys)), "TaskNotFoundError");
  const asked = await client.sendMessage(words("work; ask What?"));
  const elsewhere = words("complete", { task: asked.id, context: "another" });
  await refused(() => client.sendMessage(elsewhere), "RequestMalformedError");
});

scenario("an executor that raises", async () => {
  const client = await connect();
  const failed = await client.sendMessage(words("work; chunks 1; raise"));
  assert.equal(stateOf(failed), "FAILED");
  const events = await all(client.sendMessageStream(words("work; raise")));
  assert.equal(kind(events.at(-1)), "FAILED");
  for (const call of [() => client.sendMessage(words("raise")), () => all(client.sendMessageStream(words("raise")))]) {
    await assert.rejects(call, (error) => !`${error.message} ${JSON.stringify(error)}`.includes("hunter2"));
  }
});

scenario("credentials", async () => {
  const anonymous = await connect("private");
  await assert.rejects(() => anonymous.sendMessage(words("work; complete")), /401|[Aa]uthentication|UNAUTHENTICATED/);
  const headers = { Authorization: `Basic ${btoa("ann:secret")}` };
  const shouldRetryWithHeaders = async (_, { status }) => (status === 401 ? headers : undefined);
  const fetchImpl = createAuthenticatingFetchWithRetry(fetch, { headers: async () => ({}), shouldRetryWithHeaders });
  const ann = await connect("private", { fetchImpl });
  const options = told.binding === "GRPC" ? { serviceParameters: headers } : undefined;
  const task = await ann.sendMessage(words("work; chunks 1; complete"), options);
  assert.equal(stateOf(task), "COMPLETED");
  if (told.version === "1.0") {
    const page = { tenant: "", contextId: task.contextId, status: 0, pageSize: 10, pageToken: "", includeArtifacts: true };
    assert.deepEqual((await ann.listTasks(page, options)).tasks.map((one) => one.id), [task.id]);
  }
});

await scenarios.get(process.argv[2])();
