// The helpers that the client builds on top of the generated calls.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fresh, names, ok, refused, sandbox, thrown } from "./support.mjs";

const { ApplicationInstance, DriveInstance, SandboxInstance, VolumeInstance } = bl;

test("a sandbox has the defaults of the client and an address", async (t) => {
  const box = await sandbox(t, { memory: undefined, labels: { team: "a" }, envs: [{ name: "A", value: "1" }], ports: [{ target: 3000 }] });
  assert.equal(box.spec.runtime.image, "blaxel/base-image:latest");
  assert.equal(box.spec.runtime.memory, 4096);
  assert.equal(box.metadata.labels.team, "a");
  assert.match(box.metadata.url, /^http/);
  const read = await SandboxInstance.get(box.metadata.name);
  assert.deepEqual(read.spec.runtime.ports.map(({ target, protocol }) => ({ target, protocol })), [{ target: 3000, protocol: "HTTP" }]);
  await box.delete();
  await thrown(SandboxInstance.get(box.metadata.name), 404);
});

test("a sandbox without a name gets one", async () => {
  const box = await SandboxInstance.create({ region: "local" });
  assert.match(box.metadata.name, /^[a-z0-9-]{1,49}$/);
  await box.delete();
});

test("create-if-missing answers the sandbox that is there", async (t) => {
  const box = await sandbox(t);
  const again = await SandboxInstance.createIfNotExists({ name: box.metadata.name, region: "local" });
  assert.equal(again.metadata.createdAt, box.metadata.createdAt);
  await thrown(SandboxInstance.create({ name: box.metadata.name, region: "local" }), 409);
});

test("expiry, network and metadata of a sandbox change, and clear", async (t) => {
  const { metadata: { name } } = await sandbox(t, { ttl: "1h" });
  assert.equal((await SandboxInstance.updateTtl(name, "24h")).spec.runtime.ttl, "24h");
  assert.ok(!(await SandboxInstance.updateTtl(name, null)).spec.runtime.ttl);

  const policy = { type: "ttl-idle", value: "30m", action: "delete" };
  const limited = await SandboxInstance.updateLifecycle(name, { expirationPolicies: [policy] });
  assert.deepEqual(limited.spec.lifecycle.expirationPolicies, [policy]);
  assert.ok((await SandboxInstance.get(name)).expiresIn > 0);
  assert.ok(!(await SandboxInstance.updateLifecycle(name, null)).spec.lifecycle);

  const network = { allowedDomains: ["example.org"] };
  assert.deepEqual((await SandboxInstance.updateNetwork(name, { network })).spec.network.allowedDomains, ["example.org"]);

  const renamed = await SandboxInstance.updateMetadata(name, { displayName: "My box", labels: { team: "b" } });
  assert.equal(renamed.metadata.displayName, "My box");
  assert.deepEqual((await SandboxInstance.get(name)).metadata.labels, { team: "b" });
});

test("previews of a sandbox and their tokens", async (t) => {
  const box = await sandbox(t);
  const body = { metadata: { name: "web" }, spec: { port: 3000, public: false, responseHeaders: { "X-A": "1" } } };
  const preview = await box.previews.createIfNotExists(body);
  assert.equal(preview.metadata.resourceName, box.metadata.name);
  assert.match(preview.spec.url, /^http/);
  assert.equal((await box.previews.createIfNotExists(body)).metadata.createdAt, preview.metadata.createdAt);
  await thrown(box.previews.create(body), 409);
  await box.previews.create({ metadata: { name: "open" }, spec: { port: 4000, public: true } }, true);
  assert.deepEqual((await box.previews.list()).map(({ name }) => name).sort(), ["open", "web"]);

  const changed = await ok(bl.updateSandboxPreview({ path: { sandboxName: box.metadata.name, previewName: "web" }, body: { ...preview.preview, spec: { ...preview.spec, port: 3001 } } }));
  assert.equal(changed.spec.port, 3001);

  const token = await preview.tokens.create(new Date(Date.now() + 600_000));
  assert.ok(token.value.length >= 20);
  assert.equal(token.expired, false);
  const listed = await preview.tokens.list();
  assert.deepEqual(listed.map(({ value }) => value), [token.value]);
  await preview.tokens.delete(token.previewToken.metadata.name);
  assert.deepEqual(await preview.tokens.list(), []);

  await box.previews.delete("web");
  await thrown(box.previews.get("web"), 404);
});

test("a session of a browser is a preview with a token", async (t) => {
  const box = await sandbox(t);
  const session = await box.sessions.create({ responseHeaders: { "Access-Control-Allow-Origin": "*" } });
  assert.ok(session.token && session.url);
  assert.equal((await box.sessions.get(session.name)).token, session.token);
  assert.deepEqual((await box.sessions.list()).map(({ name }) => name), [session.name]);
  assert.equal((await box.sessions.createIfExpired()).name, session.name);
  await box.sessions.delete(session.name);
  assert.deepEqual(await box.sessions.list(), []);
});

test("schedules of a sandbox", async (t) => {
  const box = await sandbox(t);
  const input = { command: "echo hi", env: { TOKEN: "hidden" } };
  const nightly = await box.schedules.create({ id: "nightly", type: "cron", value: "0 3 * * *", input });
  assert.equal(nightly.id, "nightly");
  assert.doesNotMatch(JSON.stringify(nightly), /hidden/);
  const unnamed = await box.schedules.create({ type: "sleep", value: "10m", input: { command: "true" } });
  assert.match(unnamed.id, /^schedule-/);
  assert.equal(unnamed.type, "at");
  assert.equal((await box.schedules.get("nightly")).value, "0 3 * * *");
  assert.equal((await box.schedules.update("nightly", { type: "cron", value: "30 4 * * *", input })).value, "30 4 * * *");
  await thrown(box.schedules.create({ type: "cron", value: "every day", input }), 400);

  const seen = [];
  for await (const { id } of await box.schedules.list({ limit: 1 })) seen.push(id);
  assert.deepEqual(seen.sort(), ["nightly", unnamed.id].sort());
  assert.deepEqual((await box.schedules.executions()).data, []);
  await box.schedules.delete("nightly");
  await thrown(box.schedules.get("nightly"), 404);
});

test("volumes", async () => {
  const name = fresh("volume");
  const volume = await VolumeInstance.create({ name, displayName: "Data", size: 1024, region: "local", labels: { a: "1" } });
  assert.equal(volume.spec.size, 1024);
  assert.equal((await VolumeInstance.createIfNotExists({ name, size: 1024 })).metadata.createdAt, volume.metadata.createdAt);
  assert.equal((await volume.update({ size: 4096 })).spec.size, 4096);
  await thrown(VolumeInstance.update(name, { size: 512 }), 400);
  await volume.delete();
  await thrown(VolumeInstance.get(name), 404);
});

test("drives and their tokens", async () => {
  const name = fresh("drive");
  const drive = await DriveInstance.create({ name, displayName: "Shared", region: "local", size: 10 });
  assert.equal((await DriveInstance.createIfNotExists({ name })).metadata.createdAt, drive.metadata.createdAt);
  assert.equal((await drive.update({ displayName: "Ours" })).metadata.displayName, "Ours");
  const token = await ok(bl.createDriveAccessToken({ path: { driveName: name } }));
  assert.equal(token.token_type.toLowerCase(), "bearer");
  const { keys } = await ok(bl.getDriveJwks());
  const header = JSON.parse(Buffer.from(token.access_token.split(".")[0], "base64url"));
  assert.ok(keys.some(({ kid }) => kid === header.kid));
  assert.equal((await drive.delete()).name, name);
  await thrown(DriveInstance.get(name), 404);
});

test("applications", async () => {
  const name = fresh("application");
  const made = await ApplicationInstance.create({ name, image: "app/web:1", memory: 2048, port: 8080, region: "local" });
  await thrown(ApplicationInstance.create({ name, image: "app/web:1" }), 409);
  assert.equal((await ApplicationInstance.update(name, { memory: 4096 })).spec.memory, 4096);
  assert.ok(names(await ApplicationInstance.list()).includes(name));
  await made.delete();
  await thrown(ApplicationInstance.get(name), 404);
});

test("snapshots and forks by the calls of one sandbox", async (t) => {
  const path = { sandboxName: (await sandbox(t)).metadata.name };
  assert.deepEqual(await ok(bl.listSandboxSnapshots({ path })), []);
  const { id, status } = await ok(bl.createSandboxSnapshot({ path, body: {} }));
  assert.equal(status, "ready");
  const targetName = fresh("fork");
  const body = { targetName, targetType: "sandbox", snapshotId: id };
  assert.equal((await ok(bl.forkSandbox({ path, body }))).snapshotId, id);
  await ok(bl.deleteSandbox({ path: { sandboxName: targetName } }));
  const { response } = await bl.deleteSandboxSnapshot({ path: { ...path, snapshotId: id } });
  assert.equal(response.status, 204);
  await refused(bl.deleteSandboxSnapshot({ path: { ...path, snapshotId: "none" } }), 404);
});

test("a domain belongs to one application, is verified, and cannot be shared before", async () => {
  const name = fresh("application");
  await ok(bl.createApplication({ body: { metadata: { name }, spec: { image: "app/web:1" } } }));
  const domainName = `${fresh("shop")}.example.org`;
  const body = { metadata: { name: domainName }, spec: { domainType: "applications", region: "local" } };
  const made = await ok(bl.createApplicationCustomDomain({ path: { applicationName: name }, body }));
  assert.equal(made.spec.status, "pending");
  assert.deepEqual(await ok(bl.listCustomDomainShares({ path: { domainName } })), []);
  await refused(bl.shareCustomDomain({ path: { domainName }, body: { targetWorkspace: "elsewhere" } }), 400);
  await refused(bl.unshareCustomDomain({ path: { domainName, targetWorkspace: "elsewhere" } }), 404);
  await ok(bl.deleteCustomDomain({ path: { domainName } }));
  await ok(bl.deleteApplication({ path: { applicationName: name } }));
});

test("the example of the guide works", () => {
  const guide = readFileSync(process.env.HOLM_GUIDE, "utf8");
  const [, program] = guide.match(/```js\n([\s\S]*?)```/);
  assert.equal(execFileSync(process.execPath, ["--input-type=module", "--eval", program], { encoding: "utf8" }).includes("box"), true);
});
