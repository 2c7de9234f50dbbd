// Volumes through the published client: mounted, kept, grown, and in one sandbox at a time.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as bl from "@blaxel/core";
import { getVolume, SandboxInstance, VolumeInstance } from "@blaxel/core";
import { packed, upload } from "./builds.mjs";
import { fresh, ok, refused, run, sandbox, thrown, until } from "./support.mjs";

test("what is written to a volume is there for the next sandbox", async (t) => {
  const name = fresh("volume");
  const volume = await VolumeInstance.create({ name, size: 512, region: "local" });
  const volumes = [{ name, mountPath: "/data", readOnly: false }];

  const one = await sandbox(t, { volumes });
  await run(one, "echo kept > /data/x && sync");
  const { state } = await ok(getVolume({ path: { volumeName: name } }));
  assert.equal(state.attachedTo, `sandbox:${one.metadata.name}`);
  await thrown(SandboxInstance.create({ name: fresh("box"), region: "local", volumes }), 400);
  await thrown(VolumeInstance.delete(name), 409);
  await SandboxInstance.delete(one.metadata.name);

  const two = await sandbox(t, { volumes });
  assert.match(await run(two, "cat /data/x && stat -c %u /data/x"), /kept\n0/);
  assert.equal((await volume.update({ size: 1024 })).spec.size, 1024);
  await SandboxInstance.delete(two.metadata.name);
  await VolumeInstance.delete(name);
  await thrown(VolumeInstance.get(name), 404);
});

test("a volume begins with what was uploaded to its template", async (t) => {
  const name = fresh("template");
  const template = { metadata: { name }, spec: { defaultSize: 256 } };
  const found = () => ok(bl.getVolumeTemplate({ path: { volumeTemplateName: name } }));
  const version = (name, status) => until(`version ${name} is ${status}`, async () => {
    const seen = await found();
    return seen.versions.some((it) => it.name === name && it.status === status) && seen;
  }, 120);

  await upload("volume_templates", name, template, packed({ "data/x": "first\n" }), "application/zip");
  await version("1", "READY");
  await upload("volume_templates", name, template, packed({ "data/x": "second\n" }, "tar.gz"), "application/x-tar");
  const { state } = await version("2", "READY");
  assert.equal(state.status, "ready");
  assert.equal(state.latestVersion, "2");
  assert.equal(state.versionCount, 2);
  await upload("volume_templates", name, template, Buffer.from("no archive ".repeat(100)), "application/x-tar");
  assert.equal((await version("3", "FAILED")).state.status, "ready", "the others stay");

  const [one, two] = [fresh("volume"), fresh("volume")];
  await ok(bl.createVolume({ body: { metadata: { name: one }, spec: { region: "local", template: `${name}:latest` } } }));
  await ok(bl.createVolume({ body: { metadata: { name: two }, spec: { region: "local", template: `${name}:1`, size: 512 } } }));
  const wrong = (spec) => bl.createVolume({ body: { metadata: { name: fresh("volume") }, spec: { region: "local", ...spec } } });
  await refused(wrong({ template: `${name}:3` }), 400);
  await refused(wrong({ template: `${name}:1`, size: 2 }), 400);

  const volumes = [{ name: one, mountPath: "/one", readOnly: false }, { name: two, mountPath: "/two", readOnly: false }];
  const box = await sandbox(t, { volumes: volumes.slice(0, 1) });
  assert.match(await run(box, "cat /one/data/x"), /second/);
  const other = await sandbox(t, { volumes: volumes.slice(1) });
  assert.match(await run(other, "cat /two/data/x && df -m /two | tail -1"), /first/);

  await ok(bl.deleteVolumeTemplateVersion({ path: { volumeTemplateName: name, versionName: "1" } }));
  await ok(bl.deleteVolumeTemplateVersion({ path: { volumeTemplateName: name, versionName: "3" } }));
  await refused(bl.deleteVolumeTemplateVersion({ path: { volumeTemplateName: name, versionName: "2" } }), 400);
  await ok(bl.deleteVolumeTemplate({ path: { volumeTemplateName: name } }));
  assert.match(await run(other, "cat /two/data/x"), /first/);
  for (const each of [box, other]) await SandboxInstance.delete(each.metadata.name);
  for (const each of [one, two]) await VolumeInstance.delete(each);
});
