// The life of sandboxes: how they are created, sleep, wake, change and end.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { test } from "node:test";
import { fresh, names, ok, run, sandbox, sandboxRefused, startEcho, thrown, until } from "./support.mjs";

const { SandboxInstance } = bl;
const base = { region: "local", memory: 1024 };

/// Returns what the server says about a sandbox. Reading it does not wake the sandbox.
async function read({ metadata: { name } }, query = {}) {
  return ok(bl.getSandbox({ path: { sandboxName: name }, query }));
}

async function asleep(box) {
  await until("it sleeps", async () => (await read(box)).state === "STANDBY", 60);
}

test("a sandbox that was created runs, and what is in it is gone with it", async (t) => {
  const box = await sandbox(t);
  assert.equal(box.status, "DEPLOYED");
  const seen = await read(box);
  assert.deepEqual([seen.status, seen.state], ["DEPLOYED", "RUNNING"]);
  assert.ok(seen.events.some(({ status }) => status === "DEPLOYED"));
  assert.match(await run(box, "git --version; curl --version; node --version; python3 --version"), /git version[\s\S]*curl [\s\S]*v\d+[\s\S]*Python 3/);

  await box.fs.write("/tmp/mine", "x");
  await box.delete();
  await sandboxRefused(box.process.list(), 404);
  const again = await SandboxInstance.create({ ...base, name: box.metadata.name });
  await sandboxRefused(again.fs.read("/tmp/mine"), 404);
});

test("sandboxes have names, environment and files of their own", async (t) => {
  const [one, two] = await Promise.all([sandbox(t, { envs: [{ name: "WHO", value: "one" }] }), sandbox(t)]);
  assert.equal(await run(one, "hostname; echo $WHO"), `${one.metadata.name}\none\n`);
  assert.equal(await run(two, "hostname; echo $WHO"), `${two.metadata.name}\n\n`);
  await one.fs.write("/tmp/secret", "of one");
  await sandboxRefused(two.fs.read("/tmp/secret"), 404);
  await sandboxRefused(one.process.exec({ command: "true", workingDir: "/nowhere" }), 422);
});

test("many are made at once, and each answers", async (t) => {
  const made = await Promise.all(Array.from({ length: 20 }, () => sandbox(t)));
  const said = await Promise.all(made.map((box) => run(box, "echo $BL_NAME")));
  assert.deepEqual(said, made.map(({ metadata }) => `${metadata.name}\n`));
});

test("what is created twice at once is created once", async (t) => {
  const name = fresh("box");
  const made = await Promise.all(Array.from({ length: 4 }, () => SandboxInstance.createIfNotExists({ ...base, name })));
  t.after(() => SandboxInstance.delete(name));
  assert.equal(new Set(made.map(({ metadata }) => metadata.createdAt)).size, 1);
  await made[0].fs.write("/tmp/shared", "x");
  assert.equal(await made[3].fs.read("/tmp/shared"), "x");
});

test("a sandbox is found by the name that its user has for it", async (t) => {
  const externalId = fresh("ticket");
  const box = await sandbox(t, { externalId });
  const found = await SandboxInstance.getByExternalId(externalId);
  assert.equal(found.metadata.name, box.metadata.name);
  assert.equal(await run(found, "echo here"), "here\n");
});

test("an image that is not there is refused with those that are", async () => {
  const error = await thrown(SandboxInstance.create({ ...base, image: "blaxel/no-such-image:latest" }), 400);
  assert.match(JSON.stringify(error), /INVALID_IMAGE/);
  assert.match(JSON.stringify(error), /blaxel\/base-image/);
});

test("a sandbox that is left alone sleeps, and is as it was when it is asked again", async (t) => {
  const box = await sandbox(t);
  await startEcho(box);
  await box.fs.write("/tmp/kept", "kept");
  const { pid } = await box.process.exec({ name: "counter", command: "n=0; while true; do n=$((n + 1)); echo $n > /tmp/count; sleep 0.05; done" });
  await until("it counts", () => box.fs.read("/tmp/count").catch(() => ""));
  await asleep(box);
  const used = (await read(box)).lastUsedAt;
  assert.equal((await read(box)).state, "STANDBY");
  assert.equal((await read(box)).lastUsedAt, used);

  assert.equal(await box.fs.read("/tmp/kept"), "kept");
  // The answer to the request does not wait until this has been recorded.
  await until("it is said to run", async () => (await read(box)).state === "RUNNING");
  const counter = await box.process.get("counter");
  assert.deepEqual([counter.pid, counter.status], [pid, "running"]);
  const before = Number(await box.fs.read("/tmp/count"));
  await until("it counts on", async () => Number(await box.fs.read("/tmp/count")) > before);

  await asleep(box);
  const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => box.fetch(3000, `/${index}`)));
  assert.deepEqual(answers.map(({ status }) => status), answers.map(() => 200));
});

test("a preview wakes its sandbox", async (t) => {
  const box = await sandbox(t);
  await startEcho(box);
  const { spec } = await box.previews.create({ metadata: { name: "web" }, spec: { port: 3000, public: true } });
  await asleep(box);
  assert.equal((await fetch(`${spec.url}/wake`)).status, 200);
});

test("what must stay awake holds its sandbox awake", async (t) => {
  const [held, other] = [await sandbox(t), await sandbox(t)];
  await held.process.exec({ name: "holder", command: "sleep 600", keepAlive: true, timeout: 0 });
  // One that was left alone for just as long is asleep by then.
  await asleep(other);
  assert.equal((await read(held)).state, "RUNNING");
  await asleep(await sandbox(t));
  assert.equal((await read(held)).state, "RUNNING");
  await held.process.kill("holder");
  await asleep(held);
});

test("labels, time to live and display name change while everything goes on", async (t) => {
  const box = await sandbox(t, { labels: { team: "a" } });
  const { metadata: { name } } = box;
  const { pid } = await box.process.exec({ name: "goes-on", command: "sleep 600" });
  await SandboxInstance.updateMetadata(name, { labels: { team: "b" }, displayName: "Other" });
  await SandboxInstance.updateTtl(name, "1h");
  await SandboxInstance.updateLifecycle(name, { expirationPolicies: [{ type: "ttl-idle", value: "30m", action: "delete" }] });
  const seen = await read(box);
  assert.deepEqual([seen.metadata.labels, seen.spec.runtime.ttl, seen.status], [{ team: "b" }, "1h", "DEPLOYED"]);
  assert.ok(seen.expiresIn > 0 && seen.expiresIn <= 3600);
  const process = await box.process.get("goes-on");
  assert.deepEqual([process.pid, process.status], [pid, "running"]);
});

test("a sandbox whose time is over is terminated, and its record goes later", async (t) => {
  const policy = { type: "ttl-max-age", value: "2s", action: "delete" };
  const box = await sandbox(t, { lifecycle: { expirationPolicies: [policy], terminatedRetention: "2s" } });
  assert.equal(await run(box, "echo alive"), "alive\n");
  await until("it is terminated", async () => {
    const { data, response } = await bl.getSandbox({ path: { sandboxName: box.metadata.name } });
    // A poller that looks too late finds it gone already, after which there is nothing more to see.
    return response.status === 404 || data.status === "TERMINATED";
  });
  await sandboxRefused(box.process.list(), 404);
  assert.ok(!names(bl.unwrapListData(await ok(bl.listSandboxes({ query: { q: box.metadata.name } })))).includes(box.metadata.name));
  await until("its record is gone", async () => (await bl.getSandbox({ path: { sandboxName: box.metadata.name } })).response.status === 404);

  const short = await sandbox(t, { ttl: "2s" });
  await until("it is terminated", async () => (await read(short)).status === "TERMINATED");
  const listed = await ok(bl.listSandboxes({ query: { showTerminated: true, q: short.metadata.name } }));
  assert.deepEqual(names(bl.unwrapListData(listed)), [short.metadata.name]);
  const anew = await SandboxInstance.createIfNotExists({ ...base, name: short.metadata.name });
  assert.equal(await run(anew, "echo anew"), "anew\n");
});

test("a disabled sandbox rests until it is enabled again", async (t) => {
  const box = await sandbox(t);
  const path = { sandboxName: box.metadata.name };
  await box.fs.write("/tmp/kept", "kept");
  const wish = await read(box);
  await ok(bl.updateSandbox({ path, body: { ...wish, spec: { ...wish.spec, enabled: false } } }));
  const error = await box.fs.read("/tmp/kept").then(() => assert.fail("it is disabled"), (error) => error);
  assert.equal(error.status, 404, String(error));
  await ok(bl.updateSandbox({ path, body: { ...wish, spec: { ...wish.spec, enabled: true } } }));
  assert.equal(await box.fs.read("/tmp/kept"), "kept");
});

test("a sandbox has the memory that it was given, and no more", async (t) => {
  const box = await sandbox(t, { memory: 512 });
  const eats = await box.process.exec({ command: "python3 -c 'x = bytearray(700 << 20)'", waitForCompletion: true });
  assert.notEqual(eats.exitCode, 0);
  assert.equal(await run(box, "echo still here"), "still here\n");
  const full = await box.process.exec({ command: "head -c 400M /dev/zero > /tmp/full", waitForCompletion: true });
  assert.notEqual(full.exitCode, 0);
  assert.match(full.stderr, /No space left/);
  assert.equal(await run(box, "rm /tmp/full; echo still here"), "still here\n");
});
