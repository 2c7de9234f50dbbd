// Agents and MCP servers that answer requests: deployed from an image and from sources, with
// revisions.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { test } from "node:test";
import { base, build, headers, of, packed } from "./builds.mjs";
import { fresh, ok, until } from "./support.mjs";

/// Its shell runs the command in COMMAND; `tools/task-image` makes it.
const image = "holm/test-task";

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

async function agent(context, colour) {
  const name = fresh("agent");
  await ok(bl.createAgent({ body: wish(name, colour) }));
  context.after(() => bl.deleteAgent({ path: { agentName: name } }));
  await of("agent").deployed(name);
  return name;
}

/// Does what `run` does; that one reads the answer twice and so fails.
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
  const now = await of("agent").deployed(name);
  await ok(bl.updateAgent({ path, body: { ...now, spec: { ...now.spec, revision: { active: first } } } }));
  await until("the old revision serves", async () => (await ask(name, "x")) === "red x");
});

test("a public agent answers everybody, and a disabled one nobody", async (t) => {
  const name = await agent(t, "open");
  const path = { agentName: name };
  const { metadata } = await ok(bl.updateAgent({ path, body: wish(name, "open", { public: true }) }));
  await of("agent").deployed(name);
  const anonymous = () => fetch(metadata.url, { method: "POST", body: "x" });
  await until("it is public", async () => (await anonymous()).status === 200);
  await ok(bl.updateAgent({ path, body: wish(name, "open", { public: true, enabled: false }) }));
  await until("it is off", async () => (await anonymous()).status === 404);
});

test("a folder with a Dockerfile becomes an agent, and a bad one leaves it as it was", async (t) => {
  const name = fresh("built");
  t.after(() => bl.deleteAgent({ path: { agentName: name } }));
  const labels = { "x-blaxel-auto-generated": "true" };
  const body = wish(name, "built", { labels });
  delete body.spec.runtime.image;
  const dockerfile = `FROM ${image}\nRUN echo made > /made\nCOPY note /note\nENV COLOUR=unset\n`;
  const seen = await build("agents", name, body, packed({ Dockerfile: dockerfile, note: "noted" }));
  assert.ok(seen.has("DEPLOYED"), [...seen].join());
  assert.equal(await ask(name, "x"), "built x");
  const made = await ok(bl.getAgent({ path: { agentName: name } }));
  assert.match(made.spec.runtime.image, new RegExp(`^agent/${name}:[0-9a-f]{12}$`));
  const images = await ok(bl.listImages());
  assert.ok(images.some(({ metadata }) => metadata.name === name && metadata.resourceType === "agent"));

  await build("agents", name, wish(name, "worse", { labels }), packed({ Dockerfile: `FROM ${image}\nRUN exit 3\n` }));
  assert.equal(await ask(name, "x"), "built x");
  const query = new URLSearchParams({ resourceType: "agents", workloadIds: name, limit: "1000" });
  const logs = await (await fetch(`${base}/observability/logs?${query}`, { headers })).json();
  assert.ok(logs[name].logs.some(({ message }) => message.includes("RUN exit 3")));
});
