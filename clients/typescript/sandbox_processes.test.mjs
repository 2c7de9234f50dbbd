// Commands in sandboxes, with the helpers of the client.
import { SandboxInstance } from "@blaxel/core";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fresh, run, sandboxRefused, until } from "./support.mjs";

let box;
before(async () => {
  box = await SandboxInstance.create({ name: fresh("box"), region: "local", memory: 2048, envs: [{ name: "COLOUR", value: "blue sky" }] });
});
after(() => box.delete());

test("a command that is waited for answers what it wrote and how it ended", async () => {
  const done = await box.process.exec({ command: "echo out; echo err >&2", waitForCompletion: true });
  assert.deepEqual([done.status, done.exitCode, done.stdout, done.stderr], ["completed", 0, "out\n", "err\n"]);
  assert.equal(done.logs.split("\n").sort().join(), ",err,out");
  assert.match(done.pid, /^\d+$/);

  const failed = await box.process.exec({ command: "exit 7", waitForCompletion: true });
  assert.deepEqual([failed.status, failed.exitCode], ["failed", 7]);
  const unknown = await box.process.exec({ command: "no-such-program", waitForCompletion: true });
  assert.deepEqual([unknown.status, unknown.exitCode], ["failed", 127]);
  const killed = await box.process.exec({ command: "kill -9 $$", waitForCompletion: true });
  assert.deepEqual([killed.status, killed.exitCode], ["failed", -1]);
});

test("a command has the environment of its sandbox and its own, and its working directory", async () => {
  assert.equal(await run(box, 'printf "%s|%s|%s" "$COLOUR" "$SIZE" "$BL_NAME"', { env: { SIZE: "5 m" } }), `blue sky|5 m|${box.metadata.name}`);
  assert.equal(await run(box, "pwd", { workingDir: "/usr/lib" }), "/usr/lib\n");
  await sandboxRefused(box.process.exec({ command: "true", workingDir: "/not/there" }), 422);
});

test("what is not waited for goes on, and is found by name and by number", async () => {
  const started = await box.process.exec({ name: "sleeper", command: "sleep 600" });
  assert.equal(started.status, "running");
  assert.equal((await box.process.get("sleeper")).pid, started.pid);
  assert.equal((await box.process.get(started.pid)).name, "sleeper");
  assert.ok((await box.process.list()).some(({ name, status }) => name === "sleeper" && status === "running"));
  await sandboxRefused(box.process.exec({ name: "sleeper", command: "true" }), 400);

  await box.process.stop("sleeper");
  assert.equal((await box.process.wait("sleeper", { interval: 50 })).status, "stopped");
  await sandboxRefused(box.process.stop("sleeper"), 404);
  await sandboxRefused(box.process.get("nobody"), 404);

  const again = await box.process.exec({ name: "sleeper", command: "trap '' TERM; sleep 600" });
  assert.notEqual(again.pid, started.pid);
  await box.process.kill(again.pid);
  assert.equal((await box.process.wait("sleeper", { interval: 50 })).status, "killed");
});

test("waiting ends by its time-out and the command goes on; with keepAlive the command ends", async () => {
  await sandboxRefused(box.process.exec({ name: "long", command: "sleep 600", waitForCompletion: true, timeout: 1 }), 422);
  assert.equal((await box.process.get("long")).status, "running");
  await box.process.kill("long");

  await box.process.exec({ name: "held", command: "sleep 600", keepAlive: true, timeout: 1 });
  const ended = await until("the held command ends", async () => {
    const seen = await box.process.get("held");
    return seen.status !== "running" && seen;
  });
  assert.notEqual(ended.exitCode, 0);
});

test("output arrives while the command runs, when it is waited for", async () => {
  const seen = { stdout: "", stderr: "", log: "" };
  let going;
  const done = await box.process.exec({
    // It cannot end before its first line was received.
    command: "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; echo second; echo wrong >&2; exit 3",
    waitForCompletion: true,
    onStdout: (text) => {
      seen.stdout += text;
      going ??= box.fs.write("/tmp/go", "");
    },
    onStderr: (text) => (seen.stderr += text),
    onLog: (text) => (seen.log += text),
  });
  await going;
  assert.deepEqual([seen.stdout, seen.stderr], ["first\nsecond\n", "wrong\n"]);
  assert.equal(seen.log.length, seen.stdout.length + seen.stderr.length);
  assert.deepEqual([done.status, done.exitCode], ["failed", 3]);
});

test("output arrives while the command runs, when it is not waited for", async () => {
  const lines = [];
  const started = await box.process.exec({ name: "teller", command: "for i in 1 2 3; do echo line $i; done; sleep 600", onLog: (line) => lines.push(line) });
  await until("all lines came", () => lines.length === 3);
  assert.deepEqual(lines, ["line 1", "line 2", "line 3"]);
  started.close();

  const heard = { out: [], err: [] };
  const stream = box.process.streamLogs("teller", { onStdout: (line) => heard.out.push(line), onStderr: (line) => heard.err.push(line) });
  await until("the backlog came", () => heard.out.length === 3);
  await box.process.kill("teller");
  await stream.wait();
  assert.deepEqual(heard, { out: lines, err: [] });
  assert.equal(await box.process.logs("teller"), "line 1\nline 2\nline 3\n");
  assert.equal(await box.process.logs("teller", "stderr"), "");

  const errors = [];
  await box.process.streamLogs("nobody", { onError: (error) => errors.push(error) }).wait();
  assert.equal(errors.length, 1);
});

test("nothing of much output is lost or doubled", async () => {
  const wanted = Array.from({ length: 200_000 }, (_, index) => `line ${index + 1}`).join("\n") + "\n";
  let heard = "";
  const done = await box.process.exec({ name: "much", command: "seq -f 'line %.0f' 200000", waitForCompletion: true, onStdout: (text) => (heard += text) });
  assert.equal(done.exitCode, 0);
  assert.ok(heard === wanted, `${heard.length} of ${wanted.length} characters`);
  const lines = [];
  await box.process.streamLogs("much", { onStdout: (line) => lines.push(line) }).wait();
  assert.ok(lines.join("\n") + "\n" === wanted, `${lines.length} lines`);
  assert.ok((await box.process.logs("much")) === wanted);
});

test("a child that outlives its parent does not hang the answer", async () => {
  const done = await box.process.exec({ command: "sleep 600 & echo started", waitForCompletion: true });
  assert.deepEqual([done.exitCode, done.stdout], [0, "started\n"]);
});

test("a command that fails is started again as often as asked", async () => {
  await box.process.exec({ name: "stubborn", command: "echo try >> /tmp/tries; exit 1", restartOnFailure: true, maxRestarts: 2 });
  const ended = await until("it gives up", async () => {
    const seen = await box.process.get("stubborn");
    return seen.status === "failed" && seen.restartCount === 2 && seen;
  });
  assert.equal(ended.exitCode, 1);
  assert.equal(await box.fs.read("/tmp/tries"), "try\n".repeat(3));
});

test("an answer that waits for a port comes when it is served", async () => {
  await box.process.exec({ name: "web", command: "python3 -m http.server 4100", workingDir: "/usr/share", waitForPorts: [4100], timeout: 60 });
  assert.equal((await box.fetch(4100, "/")).status, 200);
  await box.process.kill("web");
  await sandboxRefused(box.process.exec({ command: "sleep 600", waitForPorts: [4101], timeout: 1 }), 422);
});

test("commands at once each get their own answer", async () => {
  const answers = await Promise.all(Array.from({ length: 40 }, (_, index) => box.process.exec({ command: `echo ${index}; exit ${index}`, waitForCompletion: true })));
  assert.deepEqual(answers.map(({ stdout, exitCode }) => [stdout, exitCode]), answers.map((_, index) => [`${index}\n`, index]));
});

test("a command reads what is written to it until its input is closed", async () => {
  const started = await box.process.exec({ name: "reader", command: "sort", stdin: true });
  assert.equal(started.stdin, true);
  await box.process.writeStdin("reader", "pear\n");
  await box.process.writeStdin(started.pid, "apple\n");
  await box.process.closeStdin("reader");
  await box.process.closeStdin("reader");
  const done = await box.process.wait("reader", { interval: 50 });
  assert.deepEqual([done.status, await box.process.logs("reader", "stdout")], ["completed", "apple\npear\n"]);
  await sandboxRefused(box.process.writeStdin("reader", "late"), 409);
  await box.process.exec({ name: "deaf", command: "sleep 600" });
  await sandboxRefused(box.process.writeStdin("deaf", "x"), 409);
  await box.process.kill("deaf");
});
