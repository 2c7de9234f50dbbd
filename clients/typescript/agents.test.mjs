// Agents and MCP servers that answer requests: deployed from an image and from sources, with revisions.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fresh, ok, until } from "./support.mjs";

/// Its shell runs what COMMAND says; `tools/task-image` makes it.
const image = "holm/test-task";
const base = process.env.BL_API_URL;
const headers = { authorization: `Bearer ${process.env.BL_API_KEY}`, "x-blaxel-workspace": "main" };

/// Answers each request with $COLOUR and the body.
const serve = String.raw`
mkdir -p /srv/cgi-bin
cat >/srv/cgi-bin/index.cgi <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\r\n\r\n%s %s' "$COLOUR" "$(head -c "${"$"}{CONTENT_LENGTH:-0}")"
END
chmod 755 /srv/cgi-bin/index.cgi
echo "listening on $PORT"
exec busybox httpd -f -p "$PORT" -h /srv
`;

function wish(name, colour, more = {}) {
  const envs = [{ name: "COMMAND", value: serve }, { name: "COLOUR", value: colour }];
  const { labels, ...spec } = more;
  return { metadata: { name, ...(labels && { labels }) }, spec: { runtime: { memory: 256, generation: "mk3", image, envs }, ...spec } };
}

async function deployed(name) {
  return until(`${name} is deployed`, async () => {
    const agent = await ok(bl.getAgent({ path: { agentName: name } }));
    assert.notEqual(agent.status, "FAILED", JSON.stringify(agent.events));
    return agent.status === "DEPLOYED" && agent;
  });
}

async function agent(context, colour) {
  const name = fresh("agent");
  await ok(bl.createAgent({ body: wish(name, colour) }));
  context.after(() => bl.deleteAgent({ path: { agentName: name } }));
  await deployed(name);
  return name;
}

/// As `run` does, which reads the answer twice and so fails.
async function ask(name, input = { inputs: "hi" }) {
  const agent = bl.blAgent(name);
  return (await agent.call(agent.url, input)).text();
}

test("an agent answers what it is asked, and its output is kept", async (t) => {
  const name = await agent(t, "blue");
  assert.equal(await ask(name), 'blue {"inputs":"hi"}');
  const { metadata } = await ok(bl.getAgent({ path: { agentName: name } }));
  const answer = await fetch(metadata.url, { method: "POST", headers, body: "by its url" });
  assert.equal(await answer.text(), "blue by its url");
  assert.equal((await fetch(metadata.url, { method: "POST", body: "x" })).status, 401);
  const query = new URLSearchParams({ resourceType: "agents", workloadIds: name, limit: "10" });
  await until("its output is kept", async () => {
    const logs = await (await fetch(`${base}/observability/logs?${query}`, { headers })).json();
    return logs[name].logs.some(({ message }) => message.startsWith("listening on "));
  });
});

test("a change is a new revision, and a revision before it serves again", async (t) => {
  const name = await agent(t, "red");
  const path = { agentName: name };
  const first = (await ok(bl.getAgent({ path }))).spec.revision.active;
  await ok(bl.updateAgent({ path, body: wish(name, "green") }));
  await until("the new revision serves", async () => (await ask(name, "x")) === "green x");
  const revisions = await ok(bl.listAgentRevisions({ path }));
  assert.deepEqual(revisions.map(({ active }) => active), [true, false]);
  const now = await deployed(name);
  await ok(bl.updateAgent({ path, body: { ...now, spec: { ...now.spec, revision: { active: first } } } }));
  await until("the old revision serves", async () => (await ask(name, "x")) === "red x");
});

test("a public agent answers everybody, and a disabled one nobody", async (t) => {
  const name = await agent(t, "open");
  const path = { agentName: name };
  const { metadata } = await ok(bl.updateAgent({ path, body: wish(name, "open", { public: true }) }));
  await deployed(name);
  const anonymous = () => fetch(metadata.url, { method: "POST", body: "x" });
  await until("it is public", async () => (await anonymous()).status === 200);
  await ok(bl.updateAgent({ path, body: wish(name, "open", { public: true, enabled: false }) }));
  await until("it is off", async () => (await anonymous()).status === 404);
});

/// A zip of a folder with these files.
function packed(context, files) {
  const folder = mkdtempSync(join(tmpdir(), "holm-sources-"));
  context.after(() => rmSync(folder, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  const zip = join(folder, "sources.zip");
  execFileSync("python3", ["-m", "zipfile", "-c", zip, ...Object.keys(files)], { cwd: folder });
  return readFileSync(zip);
}

/// Applies an agent whose image is made of sources; answers the statuses that a poller sees.
async function build(name, body, sources) {
  const applied = await fetch(`${base}/agents/${name}?upload=true`, {
    method: "PUT", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body),
  }).then(async (answer) => (answer.status !== 404 ? answer : fetch(`${base}/agents?upload=true`, {
    method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body),
  })));
  assert.equal(applied.status, 200, await applied.clone().text());
  const url = applied.headers.get("x-blaxel-upload-url");
  const put = () => fetch(url, { method: "PUT", headers: { "content-type": "application/zip" }, body: sources });
  assert.equal((await put()).status, 200);
  assert.notEqual((await put()).status, 200, "an address takes one upload");
  const seen = new Set();
  await until(`${name} is built`, async () => {
    const { status } = await ok(bl.getAgent({ path: { agentName: name } }));
    seen.add(status);
    return ["DEPLOYED", "FAILED"].includes(status) && seen.has("BUILDING");
  }, 120);
  return seen;
}

test("a folder with a Dockerfile becomes an agent, and a bad one leaves it as it was", async (t) => {
  const name = fresh("built");
  t.after(() => bl.deleteAgent({ path: { agentName: name } }));
  const labels = { "x-blaxel-auto-generated": "true" };
  const body = wish(name, "built", { labels });
  delete body.spec.runtime.image;
  const dockerfile = `FROM ${image}\nRUN echo made > /made\nCOPY note /note\nENV COLOUR=unset\n`;
  const seen = await build(name, body, packed(t, { Dockerfile: dockerfile, note: "noted" }));
  assert.ok(seen.has("DEPLOYED"), [...seen].join());
  assert.equal(await ask(name, "x"), "built x");
  const made = await ok(bl.getAgent({ path: { agentName: name } }));
  assert.match(made.spec.runtime.image, new RegExp(`^agent/${name}:[0-9a-f]{12}$`));
  const images = await ok(bl.listImages());
  assert.ok(images.some(({ metadata }) => metadata.name === name && metadata.resourceType === "agent"));

  await build(name, wish(name, "worse", { labels }), packed(t, { Dockerfile: `FROM ${image}\nRUN exit 3\n` }));
  assert.equal(await ask(name, "x"), "built x");
  const query = new URLSearchParams({ resourceType: "agents", workloadIds: name, limit: "1000" });
  const logs = await (await fetch(`${base}/observability/logs?${query}`, { headers })).json();
  assert.ok(logs[name].logs.some(({ message }) => message.includes("RUN exit 3")));
});
