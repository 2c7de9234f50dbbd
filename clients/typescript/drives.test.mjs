// Drives through the published client: mounted and unmounted while sandboxes run, shared by many,
// bounded by rules.

import assert from "node:assert/strict";
import { test } from "node:test";
import { DriveInstance, SandboxInstance, updateSandbox } from "@blaxel/core";
import { fresh, run, sandbox, thrown } from "./support.mjs";

/// Creates a drive for one test. Created after the sandboxes that mount it, so that it is deleted
/// after them.
async function drive(context, more = {}) {
  const made = await DriveInstance.create({ name: fresh("drive"), region: "local", ...more });
  context.after(() => DriveInstance.delete(made.name).catch((error) => assert.equal(error.code, 404)));
  return made;
}

/// Checks the sandbox API's refusal: status and text.
async function refused(promise, status, text) {
  const error = await promise.then(() => assert.fail(`must fail with ${status}`), (error) => error);
  if (error instanceof assert.AssertionError) throw error;
  assert.equal(error.status ?? error.response?.status ?? error.code, status, String(error));
  assert.match(`${error.message} ${JSON.stringify(error)}`, text);
}

test("what one sandbox writes the other reads at once", async (t) => {
  const [one, two] = await Promise.all([sandbox(t), sandbox(t)]);
  const shared = await drive(t);
  const mounted = await one.drives.mount({ driveName: shared.name, mountPath: "/mnt/shared" });
  assert.deepEqual(mounted, {
    success: true, message: "Drive mounted successfully", driveName: shared.name, mountPath: "/mnt/shared", drivePath: "/", readOnly: false,
  });
  await two.drives.mount({ driveName: shared.name, mountPath: "/mnt/other", drivePath: "/" });
  await run(one, "sh -c 'echo from one > /mnt/shared/x && sync'");
  assert.equal((await run(two, "cat /mnt/other/x")).trim(), "from one");
  await two.fs.write("/mnt/other/y", "from two");
  assert.equal(await one.fs.read("/mnt/shared/y"), "from two");

  // Mounting the same again is fine; mounting another drive there is not.
  await one.drives.mount({ driveName: shared.name, mountPath: "/mnt/shared/" });
  const { driveName, mountPath, drivePath, readOnly } = (await one.drives.list())[0];
  assert.deepEqual({ driveName, mountPath, drivePath, readOnly }, { driveName: shared.name, mountPath: "/mnt/shared", drivePath: "/", readOnly: false });
  const other = await drive(t);
  await refused(one.drives.mount({ driveName: other.name, mountPath: "/mnt/shared" }), 409, /in use/);
  await refused(one.drives.mount({ driveName: other.name, mountPath: "/mnt/shared/in" }), 409, /in use/);
  await refused(one.drives.mount({ driveName: other.name, mountPath: "/etc" }), 400, /hide/);
  await refused(one.drives.mount({ driveName: other.name, mountPath: "/a/../b" }), 400, /without/);
  await refused(one.drives.mount({ driveName: fresh("none"), mountPath: "/mnt/none" }), 500, /no drive/);

  await thrown(DriveInstance.delete(shared.name), 409);
  const gone = await one.drives.unmount("/mnt/shared");
  assert.deepEqual(gone, { success: true, message: "Drive unmounted successfully", mountPath: "/mnt/shared" });
  assert.equal((await run(one, "ls -A /mnt/shared")).trim(), "");
  assert.deepEqual(await one.drives.list(), []);
  await refused(one.drives.unmount("/mnt/shared"), 500, /no drive is mounted/);
  // A deleted sandbox holds no drive.
  await SandboxInstance.delete(two.metadata.name);
  await DriveInstance.delete(shared.name);
});

test("a drive is read-only or a folder where that is asked for", async (t) => {
  const box = await sandbox(t);
  const shared = await drive(t);
  await box.drives.mount({ driveName: shared.name, mountPath: "/mnt/all" });
  await run(box, "sh -c 'mkdir /mnt/all/a && echo in a > /mnt/all/a/x && echo secret > /mnt/all/secret'");
  await box.drives.mount({ driveName: shared.name, mountPath: "/mnt/a", drivePath: "/a", readOnly: true });
  assert.equal((await run(box, "sh -c 'ls /mnt/a && cat /mnt/a/x'")).trim(), "x\nin a");
  assert.match(await run(box, "sh -c 'echo no > /mnt/a/y 2>&1 || echo refused'"), /refused/);
  await run(box, "sh -c 'ln -s /etc /mnt/link && ln -s .. /mnt/all/a/up'");
  await refused(box.drives.mount({ driveName: shared.name, mountPath: "/mnt/link/x" }), 400, /link/);
  await refused(box.drives.mount({ driveName: shared.name, mountPath: "/mnt/up", drivePath: "/a/up" }), 400, /link/);
  // A program with open files keeps the mount busy, and the owner gets an error.
  await box.process.exec({ name: "holder", command: "sh -c 'exec 9> /mnt/all/held; sleep 300'" });
  await run(box, "sh -c 'until [ -e /mnt/all/held ]; do sleep 0.05; done'");
  await refused(box.drives.unmount("/mnt/all"), 500, /open/);
  await box.process.kill("holder");
  for (let tries = 0; ; tries += 1) {
    const end = await box.drives.unmount("/mnt/all").catch((error) => error);
    if (end.success) break;
    assert.ok(tries < 100, String(end));
    await new Promise((done) => setTimeout(done, 50));
  }
});

test("rules decide by the labels of a sandbox, which it cannot change", async (t) => {
  const name = fresh("drive");
  const permissions = [
    { labels: { team: "a", role: "reader" }, mode: "read", path: "/" },
    { labels: { team: "a" }, mode: "read-write", path: "/a" },
  ];
  const [writer, reader, stranger] = await Promise.all([
    sandbox(t, { labels: { team: "a" } }),
    sandbox(t, { labels: { team: "a", role: "reader" } }),
    sandbox(t, { labels: { team: "b" } }),
  ]);
  await drive(t, { name, permissions });
  // A sandbox that asks for everything gets what the rule allows.
  const mounted = await writer.drives.mount({ driveName: name, mountPath: "/mnt/d" });
  assert.deepEqual([mounted.drivePath, mounted.readOnly], ["/a", false]);
  await run(writer, "sh -c 'echo a > /mnt/d/x'");
  await refused(writer.drives.mount({ driveName: name, mountPath: "/mnt/e", drivePath: "/b" }), 500, /permission denied/);
  const read = await reader.drives.mount({ driveName: name, mountPath: "/mnt/d", readOnly: false });
  assert.deepEqual([read.drivePath, read.readOnly], ["/", true]);
  assert.equal((await run(reader, "cat /mnt/d/a/x")).trim(), "a");
  assert.match(await run(reader, "sh -c 'echo no > /mnt/d/y 2>&1 || echo refused'"), /refused/);
  await refused(stranger.drives.mount({ driveName: name, mountPath: "/mnt/d" }), 500, /permission denied/);
});

test("a sandbox that starts anew has its drives again", async (t) => {
  const box = await sandbox(t, { memory: 512 });
  const shared = await drive(t);
  await box.drives.mount({ driveName: shared.name, mountPath: "/mnt/d" });
  await run(box, "sh -c 'echo kept > /mnt/d/x'");
  const before = await SandboxInstance.get(box.metadata.name);
  const body = { metadata: before.metadata, spec: { ...before.spec, runtime: { ...before.spec.runtime, memory: 1024 } } };
  const changed = await updateSandbox({ path: { sandboxName: box.metadata.name }, body });
  assert.equal(changed.response.status, 200);
  for (let tries = 0; ; tries += 1) {
    const said = await run(box, "sh -c 'cat /mnt/d/x || true'").catch(String);
    if (said.trim() === "kept" && (await SandboxInstance.get(box.metadata.name)).status === "DEPLOYED") break;
    assert.ok(tries < 100, said);
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.equal((await box.drives.list()).length, 1);
});
