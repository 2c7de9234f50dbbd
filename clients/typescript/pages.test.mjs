// Lists: pages, filters, and the versions of the interface.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fresh, names, ok, refused, thrown } from "./support.mjs";

const common = fresh("page");
const all = Array.from({ length: 23 }, (_, index) => `${common}-${String(index).padStart(2, "0")}`);

before(async () => {
  for (const name of all) {
    await ok(bl.createSandbox({ body: { metadata: { name }, spec: { runtime: { image: "blaxel/base-image:latest" } } } }));
    await ok(bl.createVolume({ body: { metadata: { name }, spec: { size: 32 } } }));
    await ok(bl.createDrive({ body: { metadata: { name }, spec: {} } }));
  }
});

after(async () => {
  for (const name of all) {
    await ok(bl.deleteSandbox({ path: { sandboxName: name } }));
    await ok(bl.deleteVolume({ path: { volumeName: name } }));
    await ok(bl.deleteDrive({ path: { driveName: name } }));
  }
});

for (const [noun, helper] of [["sandboxes", bl.SandboxInstance], ["volumes", bl.VolumeInstance], ["drives", bl.DriveInstance]]) {
  test(`all ${noun} are seen once across pages`, async () => {
    const first = await helper.list({ limit: 5, q: common });
    assert.equal(first.data.length, 5);
    assert.equal(first.hasMore, true);
    assert.equal(first.meta.total, all.length);
    const seen = [];
    for await (const item of first) seen.push(item.metadata.name);
    assert.deepEqual(seen.sort(), all);

    const some = await first.autoPagingToArray({ limit: 12 });
    assert.equal(some.length, 12);
    const second = await first.nextPage();
    assert.equal(second.data.length, 5);
  });
}

test("a list is sorted as asked, and its end can be asked for", async () => {
  const names_of = async (query) => names((await bl.SandboxInstance.list({ q: common, limit: 5, ...query })).data);
  assert.deepEqual(await names_of({ sort: "name:asc" }), all.slice(0, 5));
  assert.deepEqual(await names_of({ sort: "name:desc" }), all.slice(-5).reverse());
  assert.deepEqual(await names_of({ sort: "createdAt:asc" }), all.slice(0, 5));
  assert.deepEqual(await names_of({}), all.slice(-5).reverse());
  assert.deepEqual((await names_of({ sort: "name:asc", anchor: "end" })).at(-1), all.at(-1));
});

test("a cursor serves only the list that gave it out", async () => {
  const { nextCursor } = await bl.SandboxInstance.list({ limit: 5, q: common });
  await thrown(bl.SandboxInstance.list({ limit: 5, cursor: nextCursor }), 400);
  await thrown(bl.VolumeInstance.list({ limit: 5, q: common, cursor: nextCursor }), 400);
  await thrown(bl.SandboxInstance.list({ cursor: "made-up" }), 400);
});

test("wrong questions are refused", async () => {
  await thrown(bl.SandboxInstance.list({ limit: 0 }), 400);
  await thrown(bl.SandboxInstance.list({ status: "NO_SUCH_STATUS" }), 400);
  await thrown(bl.SandboxInstance.list({ sort: "size:asc" }), 400);
});

test("the same walk works in every version of the interface", async () => {
  const walked = {};
  try {
    for (const version of ["2026-04-16", "2026-04-28", "2026-09-22"]) {
      process.env.BL_API_VERSION = version;
      const plain = await ok(bl.listSandboxes({ query: { q: common } }));
      assert.equal(Array.isArray(plain), version === "2026-04-16", version);
      walked[version] = [];
      for await (const item of await bl.SandboxInstance.list({ limit: 7, q: common })) walked[version].push(item.metadata.name);
    }
    process.env.BL_API_VERSION = "2020-01-01";
    const { error, response } = await bl.listSandboxes();
    assert.equal(response.status, 400);
    assert.equal(error.error, "invalid_api_version");
  } finally {
    delete process.env.BL_API_VERSION;
  }
  const newestFirst = all.toReversed();
  for (const [version, seen] of Object.entries(walked)) assert.deepEqual(seen, newestFirst, version);
});

test("kinds without pages answer arrays in every version", async () => {
  for (const list of [bl.listIntegrationConnections, bl.listImages, bl.listTemplates, bl.listVolumeTemplates, bl.listVpcs,
    bl.listCustomDomains, bl.listWorkspaces, bl.listWorkspaceUsers, bl.getWorkspaceServiceAccounts, bl.listLocations,
    bl.listMcpHubDefinitions, bl.listSandboxHubDefinitions, bl.listAllEgressGateways, bl.listAllEgressIps, bl.listPendingImageShares]) {
    assert.ok(Array.isArray(await ok(list())));
  }
});

test("objects are found by the id of their owner", async () => {
  const externalId = fresh("mine");
  const spec = { runtime: { image: "blaxel/base-image:latest" } };
  const { metadata } = await ok(bl.createSandbox({ body: { metadata: { name: fresh("ext"), externalId }, spec } }));
  assert.equal((await bl.SandboxInstance.getByExternalId(externalId)).metadata.name, metadata.name);
  assert.deepEqual(names((await bl.SandboxInstance.list({ externalId })).data), [metadata.name]);
  await refused(bl.getSandboxByExternalId({ path: { externalId: fresh("nobody") } }), 404);
  await refused(bl.getVolumeByExternalId({ path: { externalId } }), 404);
  await refused(bl.getDriveByExternalId({ path: { externalId } }), 404);
  await bl.SandboxInstance.delete(metadata.name);
});
