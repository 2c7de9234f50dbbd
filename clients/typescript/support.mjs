// What the tests of the TypeScript client share.
import { SandboxInstance } from "@blaxel/core";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

let made = 0;

/// Returns a name that no other test uses: files run at the same time against one server.
export function fresh(prefix) {
  made += 1;
  return `${prefix}-${process.pid}-${made}`;
}

/// Returns the data of a call of the generated client, which must succeed with 200.
export async function ok(call) {
  const { data, error, response } = await call;
  assert.equal(response.status, 200, `${response.url}: ${JSON.stringify(error)}`);
  return data;
}

/// Returns the body of a call of the generated client, which must fail with the status and in the
/// shape of the contract.
export async function refused(call, status) {
  const { error, response } = await call;
  assert.equal(response.status, status, response.url);
  check(error, status);
  return error;
}

/// Returns what a helper throws, which is the body of the answer.
export async function thrown(promise, status) {
  const error = await promise.then(
    (value) => assert.fail(`must fail with ${status}, answered ${JSON.stringify(value)}`),
    (error) => error,
  );
  if (error instanceof assert.AssertionError) throw error;
  check(error, status);
  return error;
}

function check(error, status) {
  assert.equal(error.code, status);
  assert.equal(typeof error.error, "string");
  assert.equal(typeof error.message, "string");
}

/// Returns the names of resources.
export function names(list) {
  return list.map((item) => item.metadata.name);
}

/// Creates a sandbox for one test. Its commands and files have `memory` MB, files half of that.
export async function sandbox(context, more = {}) {
  const made = await SandboxInstance.create({ name: fresh("box"), region: "local", memory: 1024, ...more });
  context.after(() => SandboxInstance.delete(made.metadata.name).catch((error) => assert.equal(error.code, 404)));
  return made;
}

/// Runs a command in a sandbox to its end, which must succeed; returns its output.
export async function run(box, command, more = {}) {
  const process = await box.process.exec({ command, waitForCompletion: true, ...more });
  assert.equal(process.exitCode, 0, `${command}: ${process.logs}`);
  return process.stdout;
}

/// Returns what a helper of sandboxes throws when the sandbox answers with an error.
export async function sandboxRefused(promise, status) {
  const error = await promise.then(() => assert.fail(`must fail with ${status}`), (error) => error);
  assert.equal(error.status, status, String(error));
  return error;
}

/// Calls `probe` until it returns something truthy, and returns that.
export async function until(what, probe, seconds = 30) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const found = await probe();
    if (found) return found;
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what}`);
    await sleep(50);
  }
}

/// Starts the server of `echo.py` in a sandbox. It answers with the request as JSON, and echoes
/// WebSocket messages. It ends when the sandbox does.
export async function startEcho(box, port = 3000) {
  await box.fs.write("/srv/echo.py", readFileSync(new URL("echo.py", import.meta.url), "utf8"));
  await box.process.exec({ name: `echo-${port}`, command: `python3 /srv/echo.py ${port}`, waitForPorts: [port] });
}
