// Volumes through the published client: mounted, kept, grown, and in one sandbox at a time.

import assert from "node:assert/strict";
import { test } from "node:test";
import { getVolume, SandboxInstance, VolumeInstance } from "@blaxel/core";
import { fresh, ok, run, sandbox, thrown } from "./support.mjs";

test("what is written to a volume is there for the next sandbox", async (t) => {
  const name = fresh("volume");
  const volume = await VolumeInstance.create({ name, size: 512, region: "local" });
  const volumes = [{ name, mountPath: "/data", readOnly: false }];

  const one = await sandbox(t, { volumes });
  await run(one, "echo kept > /data/x && sync");
  const { state } = await ok(getVolume({ path: { volumeName: name } }));
  assert.equal(state.attachedTo, `sandbox:${one.metadata.name}`);
  await thrown(SandboxInstance.create({ name: fresh("box"), region: "local", volumes }), 409);
  await thrown(VolumeInstance.delete(name), 409);
  await SandboxInstance.delete(one.metadata.name);

  const two = await sandbox(t, { volumes });
  assert.match(await run(two, "cat /data/x && stat -c %u /data/x"), /kept\n0/);
  assert.equal((await volume.update({ size: 1024 })).spec.size, 1024);
  await SandboxInstance.delete(two.metadata.name);
  await VolumeInstance.delete(name);
  await thrown(VolumeInstance.get(name), 404);
});
