// What the tests of deployed MCP servers share.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

const base = process.env.BL_API_URL;
export const key = { authorization: `Bearer ${process.env.BL_API_KEY}` };
/// `clients/mcp/reference/recipe.toml` makes it.
export const image = "holm/test-mcp";

/// Calls the management interface; the answer must have the status.
export async function api(method, path, body, status = 200) {
  const headers = { ...key, "x-blaxel-workspace": "main", "content-type": "application/json" };
  const answer = await fetch(`${base}${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.equal(answer.status, status, `${method} ${path}: ${text}`);
  return JSON.parse(text);
}

/// Calls `probe` until it returns something truthy, and returns that.
export async function until(what, probe, seconds = 120) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const found = await probe();
    if (found) return found;
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what}`);
    await sleep(50);
  }
}

/// Waits until a function has a status, and returns it.
export function settled(name, status) {
  return until(`${name} is ${status}`, async () => {
    const found = await api("GET", `/functions/${name}`);
    if (status === "DEPLOYED") assert.notEqual(found.status, "FAILED", JSON.stringify(found.events));
    return found.status === status && found;
  });
}

/// Deploys a function for a test, and returns its address.
export async function deploy(context, name, spec) {
  await api("POST", "/functions", { metadata: { name }, spec });
  context.after(() => api("DELETE", `/functions/${name}`));
  await settled(name, "DEPLOYED");
  return address(name);
}

export function address(name) {
  return `${process.env.BL_RUN_URL}/main/functions/${name}`;
}

/// Returns the spec of a function that runs the reference server.
export function reference(more = {}) {
  const { envs = [], ...runtime } = more;
  // Half of a core; with less it takes long to start.
  return { runtime: { type: "mcp", image, memory: 1024, envs, ...runtime } };
}

/// Connects a client of the published kind. Its session is in `transport.sessionId`.
export async function connect(context, url) {
  const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), { requestInit: { headers: key } });
  const client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(transport);
  context.after(() => client.close());
  return { client, transport };
}

/// Returns what a tool says.
export async function call(client, name, given = {}, options = undefined) {
  const { content } = await client.callTool({ name, arguments: given }, undefined, options);
  return content[0].text;
}

/// Sends one message by itself.
export function send(url, message, more = {}) {
  const headers = { ...key, "content-type": "application/json", accept: "application/json, text/event-stream", ...more };
  return fetch(`${url}/mcp`, { method: "POST", headers, body: JSON.stringify({ jsonrpc: "2.0", id: 1, ...message }) });
}

/// Returns the message of an answer in either format.
export async function message(answer) {
  const text = await answer.text();
  if (!answer.headers.get("content-type").startsWith("text/event-stream")) return JSON.parse(text);
  const data = text.split("\n").filter((line) => line.startsWith("data:") && line.length > 6);
  return JSON.parse(data[0].slice(5));
}
