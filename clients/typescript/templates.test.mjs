// Every project that `holm new` creates: deployed unchanged by the command line, and asked.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { fresh } from "./support.mjs";

const run = promisify(execFile);
const home = mkdtempSync(join(tmpdir(), "holm-templates-"));
process.on("exit", () => rmSync(home, { recursive: true }));

/// Returns the command line's output, after it has succeeded.
async function holm(...words) {
  const { stdout, stderr } = await run(process.env.HOLM_PROGRAM, words, { cwd: home });
  assert.ok(!`${stdout}${stderr}`.includes("\u001b"), "no terminal, no control characters");
  return { stdout, stderr };
}

/// Asks what was deployed.
const asked = {
  async agent(name) {
    const data = JSON.stringify({ inputs: "hi there" });
    assert.match((await holm("run", "agent", name, "--data", data)).stdout, /^You said: hi there/);
    assert.match((await holm("chat", name, "--message", "good day")).stdout, /^You said: good day/);
  },
  async function(name) {
    const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "greet", arguments: { name: "Ann" } } };
    const { stdout } = await holm("run", "function", name, "--path", "/mcp", "--data", JSON.stringify(call));
    assert.equal(JSON.parse(stdout).result.content[0].text, "Hello, Ann!");
  },
  async application(name) {
    const { stdout } = await holm("run", "application", name, "--path", "/x?<b>");
    assert.match(stdout, new RegExp(`<title>${name}</title>`));
    assert.ok(!stdout.includes("<b>"), stdout);
  },
  async job(name) {
    const { stdout } = await holm("run", "job", name, "--wait", "--data", JSON.stringify([{ city: "Bonn" }, { city: "Köln" }]));
    const printed = (await holm("logs", "job", name, stdout.trim(), "--raw")).stdout;
    assert.match(printed, /Bonn/);
    assert.match(printed, /Köln/);
  },
  async sandbox(name) {
    const { stdout } = await holm("exec", name, "python3", "/app/hello.py");
    assert.equal(stdout, `hello from ${name}\n`);
  },
};

const { stdout: list } = await holm("new", "--list");
const templates = list.trim().split("\n").map((line) => line.match(/^(\w+) --template (\w+)$/).slice(1));
assert.equal(templates.length, 9);

for (const [kind, language] of templates) {
  test(`a new ${kind} in ${language} is deployed and answers`, async (t) => {
    const name = fresh(`${kind}-${language}`);
    await holm("new", kind, name, "--template", language);
    t.after(() => holm("delete", kind, name, "--ignore-missing"));
    const { stdout, stderr } = await holm("deploy", name);
    for (const sign of ["BUILDING", "FROM holm/base", `deployed ${kind} ${name}`]) assert.ok(stderr.includes(sign), stderr);
    if (["agent", "function", "application"].includes(kind)) assert.match(stdout, /^http/);
    await asked[kind](name);
    await holm("delete", kind, name);
  });
}
