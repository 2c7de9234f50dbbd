// MCP servers, applications and agents whose programs the test builds: tools, streams, sockets,
// canaries, triggers.
import * as bl from "@blaxel/core";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import assert from "node:assert/strict";
import { lookup } from "node:dns/promises";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { hostname } from "node:os";
import { after, before, test } from "node:test";
import WebSocket from "ws";
import { base, headers, image, of, packed, printed } from "./builds.mjs";
import { fresh, names, ok, sandbox, thrown, until } from "./support.mjs";

const programs = ["served.mjs", "served_socket.mjs", "caller.mjs"];
const dockerfile = 'FROM holm/base\nWORKDIR /srv\nCOPY . .\nENV PROGRAM=served.mjs\nCMD ["sh", "-c", "exec node /srv/$PROGRAM"]\n';
let served;
let imageName;

before(async () => {
  const files = Object.fromEntries(programs.map((name) => [name, readFileSync(new URL(name, import.meta.url), "utf8")]));
  const packages = ["@blaxel/core", "@modelcontextprotocol/sdk", "ws", "zod"];
  imageName = fresh("served");
  served = await image("function", imageName, packed({ ...files, Dockerfile: dockerfile }, "tar.gz", packages), "application/x-tar");
});

after(() => ok(bl.deleteImage({ path: { resourceType: "function", imageName } })));

function wish(kind, name, { envs = {}, ...more } = {}) {
  const program = { image: served, memory: 512, envs: Object.entries(envs).map(([name, value]) => ({ name, value })) };
  return { metadata: { name }, spec: kind === "application" ? { ...program, ...more } : { runtime: { ...program, ...more.runtime }, ...more.spec } };
}

/// Deploys the image; returns what the server says about it.
async function deploy(context, kind, more) {
  const name = fresh(kind);
  const made = await of(kind).create(wish(kind, name, more));
  context.after(() => of(kind).remove(name));
  return { made, ...(await of(kind).deployed(name)), name };
}

/// Connects an MCP client to a server's address.
async function connected(context, url, more = {}) {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers: { ...bl.settings.headers, ...more } } }));
  context.after(() => client.close());
  return client;
}

const text = (result) => result.content[0].text;

for (const answers of ["whole", "events", "sessions"]) {
  test(`tools of an MCP server that answers with ${answers} are listed and called`, async (t) => {
    const server = await deploy(t, "function", { envs: { ANSWERS: answers } });
    const tools = await bl.getTool(server.name);
    assert.deepEqual(tools.map(({ name }) => name).sort(), ["add", "count", "replica"]);
    const add = tools.find(({ name }) => name === "add");
    assert.deepEqual(add.inputSchema.parse({ a: 1, b: 2 }), { a: 1, b: 2 });
    const sums = await Promise.all([1, 2, 3].map((n) => add.call({ a: n, b: 1 })));
    assert.deepEqual(sums.map(text), ["2", "3", "4"]);

    const client = await connected(t, server.metadata.url);
    assert.equal(text(await client.callTool({ name: "add", arguments: { a: 20, b: 3 } })), "23");
    const wrong = await client.callTool({ name: "add", arguments: { a: "x" } });
    assert.equal(wrong.isError, true);
    if (answers === "whole") return;
    const seen = [];
    const onprogress = ({ progress }) => seen.push([progress, Date.now()]);
    assert.equal(text(await client.callTool({ name: "count", arguments: { steps: 4 } }, undefined, { onprogress })), "4");
    assert.deepEqual(seen.map(([progress]) => progress), [1, 2, 3, 4]);
    assert.ok(seen[3][1] - seen[0][1] > 300, "progress is told while it is made");
  });
}

test("a session of MCP stays with its replica, and ends when its client says so", async (t) => {
  const server = await deploy(t, "function", { envs: { ANSWERS: "sessions" }, runtime: { minScale: 2, maxScale: 2 } });
  const which = async (client) => text(await client.callTool({ name: "replica", arguments: {} }));
  const found = new Set();
  await until("both replicas have sessions", async () => {
    const client = await connected(t, server.metadata.url);
    const first = await which(client);
    for (let n = 0; n < 4; n += 1) assert.equal(await which(client), first);
    found.add(first);
    return found.size === 2;
  });
  const client = await connected(t, server.metadata.url);
  await client.transport.terminateSession();
  const refused = await fetch(`${server.metadata.url}/mcp`, { method: "POST", body: "{}" });
  assert.equal(refused.status, 401);
});

test("an MCP server over a WebSocket answers the client's own transport", async (t) => {
  const server = await deploy(t, "function", { envs: { PROGRAM: "served_socket.mjs" }, runtime: { transport: "websocket" } });
  const client = new Client({ name: "test", version: "1" });
  await client.connect(new bl.BlaxelMcpClientTransport(server.metadata.url, bl.settings.headers));
  t.after(() => client.close());
  assert.equal((await client.listTools()).tools.length, 3);
  assert.equal(text(await client.callTool({ name: "add", arguments: { a: 4, b: 4 } })), "8");
});

test("an application is made, listed, changed and deleted by the client's helper", async (t) => {
  const name = fresh("app");
  const app = await bl.ApplicationInstance.create({ name, image: served, memory: 512, port: 9000, envs: [{ name: "COLOUR", value: "blue" }] });
  t.after(() => of("application").remove(name));
  await of("application").deployed(name);
  const ask = async (path = "") => (await fetch(app.metadata.url + path)).json();
  assert.equal((await ask("/page?a=1")).path, "/page?a=1");
  assert.ok((await bl.ApplicationInstance.list()).some((each) => each.name === name));
  const read = await bl.ApplicationInstance.get(name);
  await read.update({ envs: [{ name: "COLOUR", value: "red" }] });
  await until("the change serves", async () => (await ask()).colour === "red");
  assert.equal((await read.listRevisions()).length, 2);
  await read.delete();
  await thrown(bl.ApplicationInstance.get(name), 404);
  assert.equal((await fetch(app.metadata.url)).status, 404);
});

test("a canary gets its share; a caller with the cookie or a conversation stays where it is", async (t) => {
  const { name, spec, metadata } = await deploy(t, "agent", { envs: { COLOUR: "red" } });
  const ask = async (more = {}) => {
    const answer = await fetch(metadata.url, { method: "POST", headers: { ...headers, ...more } });
    return { colour: (await answer.json()).colour, cookies: answer.headers.getSetCookie().map((cookie) => cookie.split(";")[0]) };
  };
  await of("agent").update(name, wish("agent", name, { envs: { COLOUR: "green" } }));
  await until("the new revision serves", async () => (await ask()).colour === "green");
  const now = await of("agent").deployed(name);
  const revision = { active: spec.revision.active, canary: now.spec.revision.active, canaryPercent: 25, stickySessionTtl: 60 };
  await of("agent").update(name, { ...now, spec: { ...now.spec, revision } });
  const count = async () => {
    const found = { red: 0, green: 0 };
    for (let n = 0; n < 100; n += 1) found[(await ask()).colour] += 1;
    return found;
  };
  await until("both serve", async () => Object.values(await count()).every((answers) => answers > 0));
  assert.deepEqual(await count(), { red: 75, green: 25 }, "turns split exactly");
  for (let n = 0; n < 4; n += 1) {
    const { colour, cookies } = await ask();
    for (let m = 0; m < 4; m += 1) assert.equal((await ask({ cookie: cookies.join("; ") })).colour, colour);
    const thread = { "X-Blaxel-Thread-Id": `thread-${n}` };
    const first = await ask(thread);
    assert.deepEqual(first.cookies, []);
    for (let m = 0; m < 4; m += 1) assert.equal((await ask(thread)).colour, first.colour);
  }
});

for (const [path, first] of [["/lines", "line 0\n"], ["/events", "data: 0\n\n"]]) {
  test(`what an agent streams at ${path} arrives while it is made`, async (t) => {
    const { metadata } = await deploy(t, "agent");
    const answer = await fetch(metadata.url + path, { method: "POST", headers });
    const arrived = [];
    for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) arrived.push([piece, Date.now()]);
    assert.equal(arrived[0][0], first);
    assert.equal(arrived.map(([piece]) => piece).join("").length, 4 * first.length);
    assert.ok(arrived.at(-1)[1] - arrived[0][1] > 500);
  });
}

test("a WebSocket leads to an agent, with the token in a header or in the query", async (t) => {
  const { metadata } = await deploy(t, "agent");
  const url = metadata.url.replace("http", "ws");
  const token = process.env.BL_API_KEY;
  for (const [query, options] of [["", { headers }], [`&token=${token}`, {}]]) {
    const socket = new WebSocket(`${url}/talk?a=1${query}`, options);
    const [greeting] = await once(socket, "message");
    const { path } = JSON.parse(greeting);
    assert.match(path, /^\/talk\?a=1/);
    assert.ok(!path.includes(token), "the token is not handed on");
    socket.send("over and over ".repeat(10_000));
    assert.equal(String((await once(socket, "message"))[0]).length, 140_000);
    socket.send(Buffer.from([0, 255]));
    const [bytes, isBinary] = await once(socket, "message");
    assert.deepEqual([[...bytes], isBinary], [[0, 255], true]);
    socket.close(1000);
    assert.equal((await once(socket, "close"))[0], 1000);
  }
  const stranger = new WebSocket(url);
  const [error] = await once(stranger, "error");
  assert.match(error.message, /401/);
});

/// Keeps the callbacks that it receives.
async function receiver(context) {
  const got = [];
  const server = createServer(async (request, response) => {
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    got.push({ headers: request.headers, body: Buffer.concat(pieces).toString() });
    response.writeHead(204).end();
  }).listen(0, (await lookup(hostname(), { family: 4 })).address);
  await once(server, "listening");
  context.after(() => server.close());
  return { got, url: `http://${hostname()}:${server.address().port}/done` };
}

test("triggers of an agent: one that waits, one that calls back, and calls that nobody waits for", async (t) => {
  const { got, url: callbackUrl } = await receiver(t);
  const word = fresh("word");
  const triggers = [
    { id: "now", type: "http", configuration: { path: `/${word}`, authenticationType: "public" } },
    { id: "later", type: "http-async", configuration: { path: `/${word}-later`, callbackUrl } },
    { id: "fails", type: "http-async", configuration: { path: `/${word}-fails`, callbackUrl, retry: 0 } },
  ];
  const { name, made, metadata } = await deploy(t, "agent", { spec: { triggers } });
  const secret = made.spec.triggers[1].configuration.callbackSecret;
  const call = async (path, body, more = headers) => (await fetch(path, { method: "POST", headers: more, body })).json();
  const root = `${process.env.BL_RUN_URL}/main/${word}`;
  assert.equal((await call(root, "now", {})).body, "now");

  assert.deepEqual(await call(`${root}-later`, '{"part":1}'), { success: true });
  const [back] = await until("it is called back", () => got.length && got);
  const request = { body: back.body, headers: back.headers };
  assert.ok(bl.verifyWebhookFromRequest(request, secret));
  assert.ok(!bl.verifyWebhookFromRequest(request, `${secret}x`));
  const told = JSON.parse(back.body);
  assert.deepEqual([told.status_code, JSON.parse(told.response_body).body], [200, '{"part":1}']);

  assert.deepEqual(await call(`${metadata.url}?async=true`, "nobody waits"), { success: true });
  await until("it was made", async () => (await printed("agents", name)).filter((line) => line.startsWith("answered POST /")).length >= 3);
  assert.equal(got.length, 1, "only triggers with an address call back");
});

test("a trigger of a job runs it", async (t) => {
  const name = fresh("job");
  const word = fresh("word");
  const envs = [{ name: "COMMAND", value: 'echo "$1 $2"' }];
  const triggers = [{ id: "now", type: "http", configuration: { path: `/${word}` } }];
  await ok(bl.createJob({ body: { metadata: { name }, spec: { triggers, runtime: { image: "holm/test-task", memory: 256, timeout: 60, envs } } } }));
  t.after(() => bl.deleteJob({ path: { jobId: name } }));
  const answer = await fetch(`${process.env.BL_RUN_URL}/main/${word}`, { method: "POST", headers, body: '{"part":"one"}' });
  assert.equal(answer.status, 200);
  assert.equal((await answer.json()).status, "succeeded");
  await until("its output is kept", async () => (await printed("jobs", name)).includes("--part one"));
});

/// Deploys an agent that runs `caller.mjs`, and returns a function that has it use the published
/// client.
async function caller(context) {
  const { name } = await deploy(context, "agent", { envs: { PROGRAM: "caller.mjs" } });
  const act = async (act, input = {}) => {
    const agent = bl.blAgent(name);
    const { value, error } = await (await agent.call(agent.url, { act, ...input })).json();
    assert.equal(error, undefined);
    return value;
  };
  return { name, act };
}

test("the published client works inside of an agent with what it finds there", async (t) => {
  const { act } = await caller(t);
  const { BL_CLIENT_CREDENTIALS: credentials, ...found } = await act("environment");
  assert.equal(found.BL_API_URL, base);
  assert.deepEqual([found.BL_TYPE, found.BL_WORKSPACE, found.BL_CLOUD], ["agent", "main", "true"]);
  assert.equal(found.BL_API_KEY, undefined);
  assert.ok(credentials);

  const server = await deploy(t, "function");
  assert.deepEqual((await act("tools", { name: server.name })).sort(), ["add", "count", "replica"]);
  assert.equal(await act("tool", { name: server.name, tool: "add", input: { a: 5, b: 6 } }), "11");
  const other = await deploy(t, "agent", { envs: { COLOUR: "blue" } });
  assert.equal((await act("agent", { name: other.name, input: "hi" })).colour, "blue");
  const box = await sandbox(t);
  assert.equal((await act("command", { name: box.metadata.name, command: "echo inside" })).trim(), "inside");
  assert.ok((await act("tools", { name: `sandboxes/${box.metadata.name}` })).includes("processExecute"));

  const mine = fresh("box");
  t.after(() => bl.SandboxInstance.delete(mine).catch(() => {}));
  assert.equal(await act("sandbox", { name: mine }), "from an agent");
  assert.ok(names(await (await bl.SandboxInstance.list()).autoPagingToArray({ limit: 1000 })).includes(mine));
});

test("an agent may do what a member of its workspace may, and nothing else", async (t) => {
  const { name: agent, act } = await caller(t);
  const name = fresh("denied");
  const policy = { metadata: { name }, spec: { type: "location", locations: [] } };
  assert.equal(await act("status", { operation: "listAgents" }), 200);
  assert.equal(await act("status", { operation: "createPolicy", options: { body: policy } }), 403);
  assert.equal(await act("status", { operation: "updateWorkspace", options: { path: { workspaceName: "main" }, body: { displayName: "x" } } }), 403);
  assert.equal(await act("status", { operation: "inviteWorkspaceUser", options: { body: { email: "a@example.org" } } }), 403);
  const elsewhere = [
    await act("status", { operation: "getWorkspace", options: { path: { workspaceName: "elsewhere" } } }),
    await act("fetch", { url: `${process.env.BL_RUN_URL}/elsewhere/agents/any`, method: "POST" }),
  ];
  assert.ok(elsewhere.every((status) => [403, 404].includes(status)), elsewhere.join());

  // The credentials end with their agent.
  const { BL_CLIENT_CREDENTIALS: credentials } = await act("environment");
  const token = () => fetch(`${base}/oauth/token`, {
    method: "POST", headers: { authorization: `Basic ${credentials}`, "content-type": "application/json" }, body: '{"grant_type":"client_credentials"}',
  });
  assert.equal((await token()).status, 200);
  await of("agent").remove(agent);
  assert.notEqual((await token()).status, 200);
});
