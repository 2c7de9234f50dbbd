// Snapshots, forks, archives and restores through the published client.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as bl from "@blaxel/core";
import { SandboxInstance, Snapshot } from "@blaxel/core";
import { fresh, ok, refused, run, sandbox, thrown, until } from "./support.mjs";

/// Creates a sandbox that writes to memory, or to a disk of its own.
async function boxed(t, storageMb) {
  const metadata = { name: fresh("box") };
  const spec = { region: "local", runtime: { image: "blaxel/base-image:latest", memory: 1024, storageMb } };
  const made = await SandboxInstance.create({ metadata, spec });
  t.after(() => SandboxInstance.delete(metadata.name).catch((error) => assert.equal(error.code, 404)));
  return made;
}

/// Returns the sandbox that a fork created, and deletes it after the test.
async function forked(t, name) {
  t.after(() => SandboxInstance.delete(name).catch((error) => assert.equal(error.code, 404)));
  return await SandboxInstance.get(name);
}

test("a fork has the files of its sandbox and is itself", async (t) => {
  const one = await sandbox(t, { envs: [{ name: "A", value: "1" }] });
  await run(one, "echo before > /root/x");
  const name = fresh("fork");
  const answer = await one.fork(name, { envs: [{ name: "B", value: "2" }] });
  assert.deepEqual([answer.type, answer.name], ["sandbox", name]);
  const two = await forked(t, name);
  assert.equal(await run(two, "cat /root/x; echo $A$B; hostname"), `before\n12\n${name}\n`);
  await run(one, "echo after > /root/x");
  await run(two, "echo mine > /root/y");
  assert.match(await run(two, "cat /root/x"), /before/);
  await run(one, "! test -e /root/y");
  await thrown(one.fork(name), 409);
  await thrown(one.fork(fresh("fork"), { snapshotId: "snap_unknown" }), 404);
});

test("a snapshot belongs to the workspace and outlives its sandbox", async (t) => {
  const one = await sandbox(t);
  await run(one, "echo first > /root/x");
  const taken = await one.snapshots.create("first");
  assert.deepEqual([taken.status, taken.name, taken.source.deleted], ["ready", "first", false]);
  await run(one, "echo second > /root/x");
  const older = await one.snapshot("second");
  assert.deepEqual((await one.snapshots.list()).map(({ name }) => name).sort(), ["first", "second"]);
  assert.equal((await one.snapshots.get("first")).id, taken.id);
  await thrown(one.snapshots.create("first"), 409);

  const restored = await one.snapshots.restore("first");
  assert.deepEqual(restored, { name: one.metadata.name, snapshotId: taken.id });
  await until("it is back", async () => (await SandboxInstance.get(one.metadata.name)).status === "DEPLOYED");
  assert.match(await run(one, "cat /root/x"), /first/);
  await thrown(one.restore("snap_unknown"), 404);

  await SandboxInstance.delete(one.metadata.name);
  const found = await Snapshot.get(older.id);
  assert.equal(found.source.deleted, true);
  const listed = await (await Snapshot.list({ limit: 1 })).autoPagingToArray({ limit: 1000 });
  assert.ok(listed.some(({ id }) => id === taken.id));
  const name = fresh("fork");
  assert.equal((await found.fork(name)).snapshotId, older.id);
  const two = await forked(t, name);
  assert.match(await run(two, "cat /root/x"), /second/);

  await found.delete();
  await Snapshot.delete(taken.id);
  await thrown(Snapshot.get(found.id), 404);
  await refused(bl.forkSnapshot({ path: { snapshotName: found.id }, body: { targetName: fresh("fork"), targetType: "sandbox" } }), 404);
  // What begins with it still does so, although it was deleted.
  await two.fork(fresh("unused")).then(({ name }) => SandboxInstance.delete(name));
  assert.match(await run(two, "cat /root/x"), /second/);
});

test("the calls of the generated client", async (t) => {
  const one = await sandbox(t);
  const made = await ok(bl.createSnapshot({ body: { source: { name: one.metadata.name, kind: "sandbox" } } }));
  assert.equal((await ok(bl.getSnapshot({ path: { snapshotName: made.id } }))).id, made.id);
  const { data } = await ok(bl.listSnapshots({ query: { limit: 200 } }));
  assert.ok(data.some(({ id }) => id === made.id));
  const sandboxName = one.metadata.name;
  await ok(bl.restoreSandboxSnapshot({ path: { sandboxName, snapshotId: made.id } }));
  await until("it is back", async () => (await SandboxInstance.get(sandboxName)).status === "DEPLOYED");
  await ok(bl.archiveSandbox({ path: { sandboxName } }));
  await until("it is archived", async () => (await SandboxInstance.get(sandboxName)).status === "ARCHIVED");
  assert.equal((await ok(bl.unarchiveSandbox({ path: { sandboxName } }))).status, "DEPLOYED");
  await refused(bl.deleteSnapshot({ path: { snapshotName: "snap_unknown" } }), 404);
  await one.deleteSnapshot(made.id);
  assert.deepEqual(await one.listSnapshots(), []);
  await refused(bl.createSnapshot({ body: { source: { name: fresh("none") } } }), 404);
});

test("an application begins with the files of a sandbox", async (t) => {
  const one = await sandbox(t, { ports: [{ target: 3000 }] });
  await run(one, "echo kept > /root/x");
  const name = fresh("app");
  t.after(() => bl.deleteApplication({ path: { applicationName: name } }));
  const answer = await one.fork(name, { targetType: "application" });
  assert.equal(answer.type, "application");
  const app = await ok(bl.getApplication({ path: { applicationName: name } }));
  assert.equal(app.spec.port, 3000);
  assert.equal(app.spec.revisions[0].snapshot, answer.snapshotId);
  const more = await one.fork(name, { targetType: "application", traffic: 10, port: 4000 });
  assert.notEqual(more.snapshotId, answer.snapshotId);
  const canary = await ok(bl.getApplication({ path: { applicationName: name } }));
  assert.equal(canary.spec.revision.canaryPercent, 10);
  assert.equal(canary.spec.revisions.length, 2);
});

for (const storageMb of [undefined, 400]) {
test(`an archived sandbox comes back with its files${storageMb ? " on disk" : ""}`, async (t) => {
  const one = await boxed(t, storageMb);
  await run(one, "echo kept > /root/x");
  const taken = await one.snapshots.create();
  await run(one, "echo lost > /root/x");
  await one.snapshots.restore(taken.id);
  await until("it is back", async () => (await SandboxInstance.get(one.metadata.name)).status === "DEPLOYED");
  assert.match(await run(one, "cat /root/x"), /kept/);
  await one.archive({ interval: 100 });
  assert.equal(one.status, "ARCHIVED");
  assert.ok(one.sandbox.archive.createdAt);
  await thrown(one.archive(), 409);
  await one.unarchive({ interval: 100 });
  assert.equal(one.status, "DEPLOYED");
  assert.match(await run(one, "cat /root/x"), /kept/);
  await thrown(one.unarchive(), 409);
});
}
