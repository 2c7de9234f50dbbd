// Workspaces, people, service accounts, keys and catalogues; who may do what, and what refusals
// look like.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fresh, ok, refused } from "./support.mjs";

/// Runs a program with the client in another process, since a process has one identity; returns
/// what it prints.
function as(environment, program) {
  const { BL_API_KEY, ...rest } = process.env;
  const output = execFileSync(process.execPath, ["--input-type=module", "--eval", `import * as bl from "@blaxel/core"; ${program}`], {
    env: { ...rest, ...environment }, encoding: "utf8",
  });
  return JSON.parse(output);
}

const listing = "const { data, response } = await bl.listSandboxes(); console.log(JSON.stringify([response.status, Array.isArray(data?.data)]));";

test("a workspace is made, read, changed and deleted", async () => {
  const name = fresh("space");
  assert.equal(await ok(bl.checkWorkspaceAvailability({ body: { name } })), true);
  const made = await ok(bl.createWorkspace({ body: { name, displayName: "Space" } }));
  assert.equal(made.name, name);
  assert.equal(await ok(bl.checkWorkspaceAvailability({ body: { name } })), false);
  assert.ok((await ok(bl.listWorkspaces())).some((workspace) => workspace.name === name));
  const changed = await ok(bl.updateWorkspace({ path: { workspaceName: name }, body: { ...made, displayName: "Room" } }));
  assert.equal(changed.displayName, "Room");
  assert.equal((await ok(bl.getWorkspace({ path: { workspaceName: name } }))).displayName, "Room");
  await ok(bl.deleteWorkspace({ path: { workspaceName: name } }));
  assert.ok(!(await ok(bl.listWorkspaces())).some((workspace) => workspace.name === name));
});

test("a person is invited, gets another role, and is removed", async () => {
  const email = `${fresh("person")}@example.org`;
  const invitation = await ok(bl.inviteWorkspaceUser({ body: { email } }));
  assert.equal(invitation.email, email);
  const found = (await ok(bl.listWorkspaceUsers())).find((user) => user.email === email);
  assert.equal(found.accepted, false);
  await ok(bl.updateWorkspaceUserRole({ path: { subOrEmail: email }, body: { role: "admin" } }));
  await refused(bl.updateWorkspaceUserRole({ path: { subOrEmail: email }, body: { role: "king" } }), 400);
  await refused(bl.inviteWorkspaceUser({ body: { email: "nobody" } }), 400);
  await ok(bl.removeWorkspaceUser({ path: { subOrEmail: email } }));
  assert.ok(!(await ok(bl.listWorkspaceUsers())).some((user) => user.email === email));
});

test("a service account works by its client credentials and by its keys, until they are removed", async () => {
  const account = await ok(bl.createWorkspaceServiceAccount({ body: { name: fresh("robot") } }));
  const where = { path: { clientId: account.client_id } };
  assert.ok(account.client_secret);
  assert.ok((await ok(bl.getWorkspaceServiceAccounts())).every((each) => !each.client_secret));
  await ok(bl.updateWorkspaceServiceAccount({ ...where, body: { name: fresh("machine") } }));

  const BL_CLIENT_CREDENTIALS = Buffer.from(`${account.client_id}:${account.client_secret}`).toString("base64");
  assert.deepEqual(as({ BL_CLIENT_CREDENTIALS }, listing), [200, true]);

  const key = await ok(bl.createApiKeyForServiceAccount({ ...where, body: { name: "ci", expires_in: "30d" } }));
  assert.deepEqual(as({ BL_API_KEY: key.apiKey }, listing), [200, true]);
  const listed = await ok(bl.listApiKeysForServiceAccount(where));
  assert.deepEqual(listed.map(({ id, apiKey }) => ({ id, apiKey })), [{ id: key.id, apiKey: undefined }]);
  await ok(bl.deleteApiKeyForServiceAccount({ path: { ...where.path, apiKeyId: key.id } }));
  assert.equal(as({ BL_API_KEY: key.apiKey }, listing)[0], 401);

  await ok(bl.deleteWorkspaceServiceAccount(where));
  const failed = "const error = await bl.listSandboxes({ throwOnError: true }).then(() => null, (error) => error); console.log(JSON.stringify(String(error?.message ?? error)));";
  assert.match(as({ BL_CLIENT_CREDENTIALS }, failed), /invalid_client/);
});

test("catalogues answer", async () => {
  assert.deepEqual((await ok(bl.getConfiguration())).regions.map(({ name }) => name), ["local"]);
  assert.equal((await ok(bl.listLocations()))[0].region, "local");
  assert.ok(Array.isArray((await ok(bl.getChangelog())).entries));
  assert.equal(typeof (await ok(bl.getWorkspaceFeatures())), "object");
  await refused(bl.testFeatureFlag({ path: { featureKey: "none" } }), 404);
  assert.ok(await ok(bl.getIntegration({ path: { integrationName: "openai" } })));
  assert.ok(await ok(bl.listPublicIps()));
  await refused(bl.getTemplate({ path: { templateName: "none" } }), 404);
});

test("images can be listed and cleaned up, and unknown ones are not found", async () => {
  // Other tests build some at the same time.
  assert.ok(Array.isArray(await ok(bl.listImages())));
  const image = { path: { resourceType: "agent", imageName: "none" } };
  await refused(bl.getImage(image), 404);
  await refused(bl.deleteImage(image), 404);
  await refused(bl.listImageShares(image), 404);
  await refused(bl.deleteImageTag({ path: { ...image.path, tagName: "latest" } }), 404);
  assert.equal(typeof (await ok(bl.cleanupImages())).deleted, "number");
});

test("wrong credentials, foreign workspaces and wrong fields are told apart", async () => {
  const failing = "const { error, response } = await bl.listSandboxes(); console.log(JSON.stringify([response.status, error.code, typeof error.documentation]));";
  assert.deepEqual(as({ BL_API_KEY: "hk_wrong" }, failing), [401, 401, "string"]);
  const [status] = as({ BL_API_KEY: process.env.BL_API_KEY, BL_WORKSPACE: "elsewhere" }, failing);
  assert.ok([403, 404].includes(status), `${status}`);
  const long = { metadata: { name: "x".repeat(50) }, spec: { runtime: { image: "blaxel/base-image:latest" } } };
  assert.match((await refused(bl.createSandbox({ body: long }), 400)).message, /metadata\.name/);
});
