// Deployed MCP servers: sessions on several replicas, versions of the protocol, the older
// transport, lists of sleeping servers, and servers of the hub.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { address, api, call, connect, deploy, key, message, reference, send, settled, until } from "./support.mjs";

globalThis.WebSocket ??= WebSocket;

test("sessions stay with their replicas, and are lost with them alone", async (t) => {
  const url = await deploy(t, "sessions", reference({ minScale: 3, maxScale: 3 }));
  const opened = [];
  await until("the streams of the sessions are spread over all replicas", async () => {
    const session = await connect(t, url);
    opened.push({ ...session, at: await call(session.client, "whoami") });
    return opened.length >= 9 && new Set(opened.map(({ at }) => at)).size === 3;
  });
  for (const { client, at } of [...opened, ...opened]) assert.equal(await call(client, "whoami"), at);
  // A stream that its server ends is resumed where it was.
  const resumed = await Promise.all(opened.map(({ client }) => call(client, "test_reconnection")));
  assert.deepEqual([...new Set(resumed)], ["The client came back for this."]);

  // Streams of the other replicas go on while one replica ends.
  const doomed = opened[0].at;
  const left = opened.filter(({ at }) => at !== doomed);
  const streams = left.map(async ({ client, at }) => {
    const steps = [];
    await call(client, "test_tool_with_progress", {}, { onprogress: ({ progress }) => steps.push(progress) });
    assert.deepEqual(steps, [0, 50, 100]);
    assert.equal(await call(client, "whoami"), at);
  });
  await assert.rejects(call(opened[0].client, "crash"));
  await Promise.all(streams);
  for (const { transport } of opened.filter(({ at }) => at === doomed)) {
    const session = { "mcp-session-id": transport.sessionId };
    const statuses = new Set();
    for (let times = 0; times < 20; times += 1) {
      const answer = await send(url, { method: "ping" }, session);
      statuses.add(answer.status);
      const { error, id } = await message(answer);
      assert.deepEqual([id, error?.code], [null, -32001]);
    }
    assert.deepEqual([...statuses], [404], "what the protocol says of a session that is gone");
  }
  for (const { client, at } of left) assert.equal(await call(client, "whoami"), at);
  const again = await connect(t, url);
  assert.ok(await call(again.client, "whoami"));
});

test("old and current versions of the protocol pass unchanged", async (t) => {
  const url = await deploy(t, "versions", reference());
  for (const protocolVersion of ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]) {
    const params = { protocolVersion, capabilities: {}, clientInfo: { name: "test", version: "1" } };
    const answer = await send(url, { method: "initialize", params });
    const session = answer.headers.get("mcp-session-id");
    assert.equal((await message(answer)).result.protocolVersion, protocolVersion);
    const more = { "mcp-session-id": session, "mcp-protocol-version": protocolVersion };
    assert.equal((await message(await send(url, { method: "tools/list" }, more))).result.tools[0].name, "test_simple_text");
    const ended = await fetch(`${url}/mcp`, { method: "DELETE", headers: { ...key, ...more } });
    assert.equal(ended.status, 200);
    assert.equal((await send(url, { method: "ping" }, more)).status, 404);
  }
  const wrong = await send(url, { method: "ping" }, { authorization: "Bearer wrong" });
  assert.equal(wrong.status, 401);
});

test("a server of the older transport is called over a WebSocket", async (t) => {
  const envs = [{ name: "TRANSPORT", value: "websocket" }];
  const url = await deploy(t, "older", { ...reference({ envs, transport: "websocket" }) });
  const at = `${url.replace("http", "ws")}/?token=${process.env.BL_API_KEY}`;
  const client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(new WebSocketClientTransport(new URL(at)));
  t.after(() => client.close());
  const { tools } = await client.listTools();
  assert.ok(tools.some(({ name }) => name === "whoami"));
  assert.equal(await call(client, "test_simple_text"), "This is a simple text response for testing.");
  const stranger = new WebSocket(at.replace(/token=.*/, "token=wrong"));
  const refused = await new Promise((resolve) => {
    stranger.on("unexpected-response", (_, { statusCode }) => resolve(statusCode));
    stranger.on("error", () => {});
  });
  assert.equal(refused, 401);
});

/// Creates a connection for a test, and a function that runs what the hub has for it.
async function hub(context, name, spec) {
  await api("POST", "/integrations/connections", { metadata: { name }, spec });
  const wish = { metadata: { name }, spec: { type: "mcp", integrationConnections: [name], runtime: { type: "mcp" } } };
  await api("POST", "/functions", wish);
  context.after(async () => {
    await api("DELETE", `/functions/${name}`);
    await api("DELETE", `/integrations/connections/${name}`);
  });
  return address(name);
}

test("the hub offers what runs here", async (t) => {
  const offered = await api("GET", "/mcp/hub");
  assert.deepEqual(offered.map(({ integration }) => integration).sort(), ["fetch", "postgres", "sequentialthinking", "time"]);
  for (const { name, displayName, description, icon, image, form } of offered) {
    assert.ok(name && displayName && description && icon && image && form, name);
  }
  const answers = {
    fetch: ["fetch", { url: "http://127.0.0.1:8080/status" }, /./],
    time: ["convert_time", { source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" }, /21:00/],
    sequentialthinking: ["sequentialthinking", { thought: "So", nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 }, /thoughtNumber/],
  };
  await Promise.all(Object.entries(answers).map(async ([integration, [tool, given, wanted]]) => {
    const url = await hub(t, integration, { integration });
    await settled(integration, "DEPLOYED");
    const { client } = await connect(t, url);
    assert.ok((await client.listTools()).tools.some(({ name }) => name === tool), integration);
    assert.match(await call(client, tool, given), wanted);
  }));
});

test("a server of the hub has the secret of its connection, and its list while it sleeps", async (t) => {
  const name = "database", hidden = "hidden-password";
  const secret = (port) => ({ postgresConnectionString: `postgresql://reader:${hidden}@127.0.0.1:${port}/main` });
  const url = await hub(t, name, { integration: "postgres", secret: {} });
  const failed = await settled(name, "FAILED");
  assert.match(failed.events.at(-1).message, /its connection `database` lacks `spec.secret.postgresConnectionString`/);

  await api("PUT", `/integrations/connections/${name}`, { metadata: { name }, spec: { integration: "postgres", secret: secret(1) } });
  const first = await settled(name, "DEPLOYED");
  const listed = async () => {
    const answer = await send(url, { method: "tools/list", id: 7 });
    assert.equal(answer.status, 200);
    const { id, result } = await message(answer);
    assert.equal(id, 7);
    return result.tools.map(({ name }) => name).sort();
  };
  assert.deepEqual(await listed(), ["list_tables", "query"]);
  const { client } = await connect(t, url);
  const said = await call(client, "query", { sql: "SELECT 1" });
  assert.match(said, /cannot be reached/);
  assert.ok(!said.includes(hidden));
  await client.close();

  // The list is the same, asleep or awake; while it sleeps, the list comes without waking anything.
  await new Promise((resolve) => setTimeout(resolve, 4000));
  const began = performance.now();
  assert.deepEqual(await listed(), ["list_tables", "query"]);
  t.diagnostic(`a list while it sleeps took ${(performance.now() - began).toFixed(1)} ms`);

  // Another secret makes another revision, with replicas of its own.
  await api("PUT", `/integrations/connections/${name}`, { metadata: { name }, spec: { integration: "postgres", secret: secret(2) } });
  const next = await until("another revision serves", async () => {
    const now = await api("GET", `/functions/${name}`);
    return now.status === "DEPLOYED" && now.spec.revision.active !== first.spec.revision.active && now;
  });
  assert.deepEqual(await listed(), ["list_tables", "query"]);
  assert.ok(!JSON.stringify([next, await api("GET", `/functions/${name}/revisions`)]).includes(hidden));
  const query = "resourceType=functions&workloadIds=database&limit=1000";
  assert.ok(!JSON.stringify(await api("GET", `/observability/logs?${query}`)).includes(hidden));
  await api("DELETE", `/integrations/connections/${name}`, undefined, 409);
});
