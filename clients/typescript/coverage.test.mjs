// Checks that nothing which the client can call was forgotten, here or in the server.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

/// Calls that are served, and tested without this client: they need a second workspace with its own
/// people, an outside provider or name server, or something that cannot be created yet.
const elsewhere = [
  "acceptImageShare", "createImage", "declineImageShare", "deleteVolumeTemplateVersion",
  "getIntegrationConnectionModelEndpointConfigurations", "leaveWorkspace", "shareImage", "unshareImage", "verifyCustomDomain",
];

/// Calls that helpers make for the tests.
const byHelpers = [
  "createJobExecution", "createSandboxPreview", "createSandboxPreviewToken", "createSandboxSchedule", "deleteJobExecution",
  "deleteSandboxPreview", "deleteSandboxPreviewToken", "deleteSandboxSchedule", "getJobExecution", "getSandboxPreview",
  "getSandboxSchedule", "listJobExecutions", "listSandboxPreviewTokens", "listSandboxPreviews", "listSandboxScheduleExecutions",
  "listSandboxSchedules", "updateSandboxSchedule",
];

const anonymous = (path) => path.replace(/\{[^}]*\}/g, "{}");

/// Returns the name, method and path of every call of the generated client.
function calls() {
  const source = readFileSync(fileURLToPath(new URL("./client/sdk.gen.js", import.meta.resolve("@blaxel/core"))), "utf8");
  return source.split(/^export const /m).slice(1).map((text) => ({
    name: text.match(/^\w+/)[0],
    method: text.match(/\)\.(get|post|put|delete|patch)\(/)[1],
    path: anonymous(text.match(/url: ["']([^"']+)/)[1]),
  }));
}

test("every call of the client is served", async () => {
  const { paths } = await (await fetch(`${process.env.BL_API_URL}/openapi.json`)).json();
  const served = new Set(Object.entries(paths).flatMap(([path, item]) => Object.keys(item).map((method) => `${method} ${anonymous(path)}`)));
  const missing = calls().filter(({ method, path }) => !served.has(`${method} ${path}`)).map(({ name }) => name);
  assert.deepEqual(missing, []);
});

test("every call of the client is tried, or said to be tried elsewhere", () => {
  const here = new URL(".", import.meta.url);
  const others = readdirSync(here).filter((name) => name.endsWith(".test.mjs") && name !== "coverage.test.mjs");
  const text = others.map((name) => readFileSync(new URL(name, here), "utf8")).join("\n");
  const known = new Set([...elsewhere, ...byHelpers]);
  const untried = calls().map(({ name }) => name).filter((name) => !known.has(name) && !text.includes(`bl.${name}`));
  assert.deepEqual(untried, []);
});
