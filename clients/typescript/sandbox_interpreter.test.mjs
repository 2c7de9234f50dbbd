// Code that is run piece by piece, with the client's class for it.
import { CodeInterpreter } from "@blaxel/core";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fresh } from "./support.mjs";

let interpreter;
before(async () => {
  interpreter = await CodeInterpreter.create({ name: fresh("code"), region: "local", memory: 4096 });
});
after(() => interpreter.delete());

test("an interpreter has the image, port and lifecycle of the client", () => {
  assert.equal(interpreter.spec.runtime.image, "blaxel/jupyter-server");
  assert.deepEqual(interpreter.spec.runtime.ports.map(({ target }) => target), [8888]);
  assert.equal(interpreter.spec.lifecycle.expirationPolicies[0].value, "30m");
});

test("code answers what it wrote and its value, and keeps its state", async () => {
  const first = await interpreter.runCode("import sys\nx = 20\nprint('out')\nprint('err', file=sys.stderr)\nx + 1");
  assert.equal(first.logs.stdout.join(""), "out\n");
  assert.equal(first.logs.stderr.join(""), "err\n");
  assert.equal(first.results[0].text, "21");
  assert.equal(first.error, null);
  assert.equal(typeof first.executionCount, "number");
  assert.equal((await interpreter.runCode("x * 2")).results[0].text, "40");
});

test("output arrives while the code runs", async () => {
  const heard = [];
  let going;
  const done = await interpreter.runCode(
    // It cannot end before its first line was received.
    "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)\nprint('second')",
    {
      onStdout: ({ text }) => {
        heard.push(text);
        going ??= interpreter.fs.write("/tmp/go", "");
      },
    },
  );
  await going;
  assert.equal(heard.join(""), "first\nsecond\n");
  assert.equal(done.error, null);
});

test("an error is told with its name, and what follows works", async () => {
  const errors = [];
  const failed = await interpreter.runCode("1 / 0", { onError: (error) => errors.push(error) });
  assert.equal(failed.error.name, "ZeroDivisionError");
  assert.match(failed.error.value, /division/);
  assert.match([failed.error.traceback].flat().join("\n"), /line 1/);
  assert.equal(errors.length, 1);
  assert.equal((await interpreter.runCode("'works'")).results[0].text, "'works'");
});

test("contexts are apart, and have their own folder", async () => {
  const [one, two] = [await interpreter.createCodeContext({ language: "python", cwd: "/tmp" }), await interpreter.createCodeContext()];
  assert.ok(one.id && two.id && one.id !== two.id);
  await interpreter.runCode("import os\nmine = os.getcwd()", { context: one });
  assert.equal((await interpreter.runCode("mine", { context: one })).results[0].text, "'/tmp'");
  assert.equal((await interpreter.runCode("mine", { context: two })).error.name, "NameError");
});

test("code has the environment that comes with it, and other languages", async () => {
  const done = await interpreter.runCode("import os\nos.environ['COLOUR']", { envs: { COLOUR: "blue" } });
  assert.equal(done.results[0].text, "'blue'");
  const script = await interpreter.runCode("console.log(6 * 7)", { language: "javascript" });
  assert.equal(script.error, null);
  assert.equal(script.logs.stdout.join("").trim(), "42");
  await assert.rejects(interpreter.runCode("x", { language: "no-such-language" }), /status: 400/);
});

test("a picture comes as such", async () => {
  const done = await interpreter.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()");
  assert.equal(done.error, null, done.error?.value);
  const picture = done.results.map((result) => result["image/png"] ?? result.png).find(Boolean);
  assert.equal(Buffer.from(picture, "base64").subarray(1, 4).toString(), "PNG");
});
