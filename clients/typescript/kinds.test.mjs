// Every kind that the generated client knows by name is created, read, listed, changed and deleted.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { test } from "node:test";
import { fresh, names, ok, refused } from "./support.mjs";

const image = "blaxel/base-image:latest";

/// `path` is the name of the path parameter, `spec` what is created, `change` the spec of a
/// replacement.
const kinds = [
  {
    kind: "agent", path: "agentName", paged: true,
    list: bl.listAgents, create: bl.createAgent, get: bl.getAgent, update: bl.updateAgent, remove: bl.deleteAgent,
    spec: { runtime: { image, memory: 2048, envs: [{ name: "MODE", value: "a" }] } },
    change: { runtime: { image, memory: 4096 } },
  },
  {
    kind: "application", path: "applicationName", paged: true,
    list: bl.listApplications, create: bl.createApplication, get: bl.getApplication, update: bl.updateApplication, remove: bl.deleteApplication,
    spec: { image: "app/web:1", memory: 2048, port: 8080 },
    change: { image: "app/web:2", memory: 2048, port: 8081 },
  },
  {
    kind: "function", path: "functionName", paged: true,
    list: bl.listFunctions, create: bl.createFunction, get: bl.getFunction, update: bl.updateFunction, remove: bl.deleteFunction,
    spec: { runtime: { type: "mcp", image, memory: 2048, transport: "http-stream" } },
    change: { runtime: { type: "mcp", image, memory: 4096 } },
  },
  {
    kind: "job", path: "jobId", paged: true,
    list: bl.listJobs, create: bl.createJob, get: bl.getJob, update: bl.updateJob, remove: bl.deleteJob,
    spec: { runtime: { image, memory: 2048, timeout: 60, maxRetries: 2 }, triggers: [{ type: "cron", configuration: { schedule: "0 3 * * *" } }] },
    change: { runtime: { image, memory: 2048, timeout: 120, maxRetries: 0 } },
  },
  {
    kind: "model", path: "modelName", paged: true,
    list: bl.listModels, create: bl.createModel, get: bl.getModel, update: bl.updateModel, remove: bl.deleteModel,
    spec: { runtime: { type: "openai", model: "gpt-4o" } },
    change: { runtime: { type: "openai", model: "gpt-4o-mini" } },
  },
  {
    kind: "policy", path: "policyName", paged: true,
    list: bl.listPolicies, create: bl.createPolicy, get: bl.getPolicy, update: bl.updatePolicy, remove: bl.deletePolicy,
    spec: { type: "maxToken", maxTokens: { granularity: "day", step: 1, total: 1000 }, resourceTypes: ["model"] },
    change: { type: "maxToken", maxTokens: { granularity: "day", step: 1, total: 2000 }, resourceTypes: ["model"] },
  },
  {
    kind: "sandbox", path: "sandboxName", paged: true,
    list: bl.listSandboxes, create: bl.createSandbox, get: bl.getSandbox, update: bl.updateSandbox, remove: bl.deleteSandbox,
    spec: { runtime: { image, memory: 2048, ports: [{ name: "web", target: 3000, protocol: "HTTP" }] } },
    change: { runtime: { image, memory: 4096 } },
  },
  {
    kind: "volume", path: "volumeName", paged: true,
    list: bl.listVolumes, create: bl.createVolume, get: bl.getVolume, update: bl.updateVolume, remove: bl.deleteVolume,
    spec: { size: 1024, region: "local" },
    change: { size: 2048, region: "local" },
  },
  {
    kind: "drive", path: "driveName", paged: true,
    list: bl.listDrives, create: bl.createDrive, get: bl.getDrive, update: bl.updateDrive, remove: bl.deleteDrive,
    spec: { region: "local", permissions: [{ labels: { team: "a" }, mode: "read", path: "/a" }] },
    change: { region: "local", permissions: [] },
  },
  {
    kind: "volume template", path: "volumeTemplateName", paged: false,
    list: bl.listVolumeTemplates, create: bl.createVolumeTemplate, get: bl.getVolumeTemplate, update: bl.updateVolumeTemplate, remove: bl.deleteVolumeTemplate,
    spec: { defaultSize: 1024 },
    change: { defaultSize: 2048 },
  },
  {
    kind: "integration connection", path: "connectionName", paged: false,
    list: bl.listIntegrationConnections, create: bl.createIntegrationConnection, get: bl.getIntegrationConnection, update: bl.updateIntegrationConnection, remove: bl.deleteIntegrationConnection,
    spec: { integration: "openai", secret: { apiKey: "sk-1" } },
    change: { integration: "openai", secret: { apiKey: "sk-2" }, config: { organization: "o" } },
  },
  {
    kind: "custom domain", path: "domainName", paged: false, name: () => `${fresh("d")}.example.org`,
    list: bl.listCustomDomains, create: bl.createCustomDomain, get: bl.getCustomDomain, update: bl.updateCustomDomain, remove: bl.deleteCustomDomain,
    spec: { domainType: "previews", region: "local" },
    change: { domainType: "previews", region: "local" },
  },
  {
    kind: "vpc", path: "vpcName", paged: false,
    list: bl.listVpcs, create: bl.createVpc, get: bl.getVpc, remove: bl.deleteVpc,
    spec: {},
  },
];

for (const { kind, path, paged, list, create, get, update, remove, spec, change, name } of kinds) {
  test(`a ${kind} is made, read, listed, changed and deleted`, async () => {
    const own = (name ?? (() => fresh("kind")))();
    const where = { path: { [path]: own } };

    const made = await ok(create({ body: { metadata: { name: own, displayName: "First" }, spec } }));
    assert.equal(made.metadata.name, own);
    assert.equal(made.metadata.workspace, process.env.BL_WORKSPACE);
    assert.ok(made.metadata.createdAt);
    await refused(create({ body: { metadata: { name: own }, spec } }), 409);

    const read = await ok(get(where));
    assert.equal(read.metadata.displayName, "First");
    const listed = await ok(list(paged ? { query: { q: own } } : {}));
    assert.equal(Array.isArray(listed), !paged);
    assert.ok(names(bl.unwrapListData(listed)).includes(own));

    if (update) {
      // A whole object is sent back as it came, with the members that only the server sets.
      const same = await ok(update({ ...where, body: read }));
      assert.deepEqual({ ...same.spec, revision: null }, { ...read.spec, revision: null });
      const changed = await ok(update({ ...where, body: { ...read, metadata: { ...read.metadata, displayName: "Second" }, spec: change } }));
      assert.equal(changed.metadata.displayName, "Second");
      assert.equal((await ok(get(where))).metadata.displayName, "Second");
    }

    await ok(remove(where));
    await refused(get(where), 404);
    await refused(remove(where), 404);
  });
}

test("a gateway and its addresses live inside their VPC", async () => {
  const [vpcName, gatewayName, ipName] = [fresh("vpc"), fresh("gateway"), fresh("ip")];
  await ok(bl.createVpc({ body: { metadata: { name: vpcName }, spec: {} } }));
  const gateway = { path: { vpcName, gatewayName } };
  await ok(bl.createEgressGateway({ path: { vpcName }, body: { metadata: { name: gatewayName }, spec: { region: "local" } } }));
  assert.equal((await ok(bl.getEgressGateway(gateway))).metadata.vpcName, vpcName);
  assert.deepEqual(names(await ok(bl.listEgressGateways({ path: { vpcName } }))), [gatewayName]);
  assert.ok(names(await ok(bl.listAllEgressGateways())).includes(gatewayName));
  assert.equal(typeof (await ok(bl.getEgressGatewayUsage())), "object");

  const ip = { path: { vpcName, gatewayName, ipName } };
  await ok(bl.createEgressIp({ ...gateway, body: { metadata: { name: ipName }, spec: { ipFamily: "IPv4" } } }));
  assert.equal((await ok(bl.getEgressIp(ip))).metadata.gatewayName, gatewayName);
  assert.deepEqual(names(await ok(bl.listEgressIps(gateway))), [ipName]);
  assert.ok(names(await ok(bl.listAllEgressIps())).includes(ipName));

  await ok(bl.deleteEgressIp(ip));
  await ok(bl.deleteEgressGateway(gateway));
  await ok(bl.deleteVpc({ path: { vpcName } }));
});

test("each change of a workload is a revision, and an older one can be made active again", async () => {
  for (const { kind, path, create, get, update, remove, spec, change } of kinds) {
    const revisions = {
      agent: bl.listAgentRevisions, function: bl.listFunctionRevisions, job: bl.listJobRevisions, model: bl.listModelRevisions,
      application: bl.listApplicationRevisions,
    }[kind];
    if (!revisions) continue;
    const where = { path: { [path]: fresh("rev") } };
    const metadata = { name: where.path[path] };
    await ok(create({ body: { metadata, spec } }));
    await ok(update({ ...where, body: { metadata, spec: change } }));
    const list = await ok(revisions(where));
    assert.equal(list.length, 2, kind);
    const read = await ok(get(where));
    const older = list.find((revision) => revision.id !== read.spec.revision.active).id;
    await ok(update({ ...where, body: { ...read, spec: { ...read.spec, revision: { ...read.spec.revision, active: older } } } }));
    assert.equal((await ok(get(where))).spec.revision.active, older, kind);
    await ok(remove(where));
  }
});

test("secrets are masked, kept when the mask comes back, and shown to an administrator who asks", async () => {
  const where = { path: { agentName: fresh("secret") } };
  const metadata = { name: where.path.agentName };
  const envs = [{ name: "TOKEN", value: "hidden", secret: true }];
  const made = await ok(bl.createAgent({ body: { metadata, spec: { runtime: { image, envs } } } }));
  assert.doesNotMatch(JSON.stringify(made), /hidden/);
  await ok(bl.updateAgent({ ...where, body: made }));
  const shown = await ok(bl.getAgent({ ...where, query: { show_secrets: true } }));
  assert.equal(shown.spec.runtime.envs[0].value, "hidden");
  await ok(bl.deleteAgent(where));

  const connection = { path: { connectionName: fresh("secret") } };
  const body = { metadata: { name: connection.path.connectionName }, spec: { integration: "openai", secret: { apiKey: "hidden" } } };
  assert.doesNotMatch(JSON.stringify(await ok(bl.createIntegrationConnection({ body }))), /hidden/);
  await ok(bl.deleteIntegrationConnection(connection));
});

test("a policy names the resources under it", async () => {
  const [policyName, modelName] = [fresh("policy"), fresh("model")];
  await ok(bl.createPolicy({ body: { metadata: { name: policyName }, spec: kinds.find(({ kind }) => kind === "policy").spec } }));
  await ok(bl.createModel({ body: { metadata: { name: modelName }, spec: { policies: [policyName], runtime: { type: "openai", model: "gpt-4o" } } } }));
  assert.match(JSON.stringify(await ok(bl.getPolicyUsages({ path: { policyName } }))), new RegExp(modelName));
  await ok(bl.deleteModel({ path: { modelName } }));
  await ok(bl.deletePolicy({ path: { policyName } }));
});
