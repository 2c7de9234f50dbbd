// The protocol's conformance suite against a reference server: directly, and deployed with several
// replicas. What passes there has to pass through the gateway too.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { address, api, reference, settled } from "./support.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const suite = here("../node_modules/@modelcontextprotocol/conformance/dist/index.js");
const name = "conformance";
const scratch = mkdtempSync(join(tmpdir(), "holm-mcp-"));
let direct, url;

before(async () => {
  direct = spawn(process.execPath, [here("reference/server.mjs")], { env: { ...process.env, PORT: "0", HOST: "127.0.0.1" } });
  const [port] = await once(createInterface(direct.stdout), "line");
  url = `http://127.0.0.1:${port}`;
  // The suite sends no credentials.
  await api("POST", "/functions", { metadata: { name }, spec: { public: true, ...reference({ minScale: 3, maxScale: 3 }) } });
  await settled(name, "DEPLOYED");
});

after(async () => {
  direct.kill();
  await api("DELETE", `/functions/${name}`);
  rmSync(scratch, { recursive: true });
});

/// Returns the result of each check of each scenario.
async function run(url, label, more) {
  const folder = join(scratch, label);
  const args = ["--import", here("node20.mjs"), suite, "server", "--url", `${url}/mcp`, "--suite", "all", "--output-dir", folder];
  await once(spawn(process.execPath, [...args, ...more], { stdio: "ignore" }), "exit");
  const results = new Map();
  for (const each of readdirSync(folder)) {
    const scenario = each.replace(/-\d{4}-\d\d-\d\dT.*$/, "");
    const checks = JSON.parse(readFileSync(join(folder, each, "checks.json"), "utf8"));
    const told = checks.map(({ id, status, errorMessage }) => `${id}: ${status}${errorMessage ? ` (${errorMessage})` : ""}`);
    results.set(scenario, told);
  }
  return results;
}

for (const version of ["2025-11-25", "2025-06-18"]) {
  test(`protocol ${version}`, async (t) => {
    const more = ["--spec-version", version];
    const [alone, deployed] = await Promise.all([
      run(url, `direct-${version}`, more), run(address(name), `deployed-${version}`, more),
    ]);
    assert.ok(alone.size >= 25, `only ${alone.size} scenarios`);
    for (const [scenario, wanted] of alone) {
      await t.test(scenario, () => {
        assert.deepEqual(wanted.filter((line) => line.includes("FAILURE")), [], "the reference server itself");
        assert.deepEqual(deployed.get(scenario), wanted);
      });
    }
  });
}
