// Files in sandboxes, with the helpers of the client.
import { SandboxInstance } from "@blaxel/core";
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fresh, run, sandboxRefused, until } from "./support.mjs";

const MIB = 1024 * 1024;

let box;
before(async () => {
  box = await SandboxInstance.create({ name: fresh("box"), region: "local", memory: 4096 });
});
after(() => box.delete());

test("text is read as it was written, wherever the path begins", async () => {
  const text = 'a line\nwith "quotes", tabs\t, ünïcödé and 🦀\n';
  await box.fs.write("/tmp/deep/er/a b.txt", text);
  assert.equal(await box.fs.read("/tmp/deep/er/a b.txt"), text);
  await box.fs.write("/tmp/deep/er/a b.txt", "");
  assert.equal(await box.fs.read("/tmp/deep/er/a b.txt"), "");

  await box.fs.write("beside.txt", "here");
  assert.equal(await run(box, "cat beside.txt"), "here");
  await sandboxRefused(box.fs.read("/tmp/not-there"), 404);
});

test("every byte of binary content comes back", async (t) => {
  const bytes = Buffer.from(Array.from({ length: 4096 }, (_, index) => index % 256));
  await box.fs.writeBinary("/tmp/binary/all.bin", bytes);
  assert.ok(Buffer.from(await (await box.fs.readBinary("/tmp/binary/all.bin")).arrayBuffer()).equals(bytes));

  const folder = mkdtempSync(join(tmpdir(), "holm-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const here = join(folder, "copy.bin");
  await box.fs.download("/tmp/binary/all.bin", here, { mode: 0o600 });
  assert.ok(readFileSync(here).equals(bytes));
  assert.equal(statSync(here).mode & 0o777, 0o600);
  await box.fs.writeBinary("/tmp/binary/back.bin", here);
  await run(box, "cmp /tmp/binary/all.bin /tmp/binary/back.bin");
});

test("200 MB go up in parts and come back the same", async () => {
  const bytes = randomBytes(200 * MIB + 12_345);
  const digest = createHash("sha256").update(bytes).digest("hex");
  await box.fs.writeBinary("/data/large.bin", bytes);
  assert.equal((await run(box, "sha256sum /data/large.bin")).split(" ")[0], digest);
  const back = Buffer.from(await (await box.fs.readBinary("/data/large.bin")).arrayBuffer());
  assert.equal(createHash("sha256").update(back).digest("hex"), digest);
  await box.fs.rm("/data/large.bin");

  const text = "0123456789abcdef\n".repeat(500_000);
  await box.fs.write("/data/large.txt", text);
  assert.ok((await box.fs.read("/data/large.txt")) === text);
  await box.fs.rm("/data", true);
});

test("folders are made, listed and removed", async () => {
  await box.fs.mkdir("/tmp/folder/inner", "0700");
  assert.equal(await run(box, "stat -c %a /tmp/folder/inner"), "700\n");
  await box.fs.write("/tmp/folder/file", "12345");
  const { files, subdirectories } = await box.fs.ls("/tmp/folder");
  assert.deepEqual(files.map(({ name, path, size, permissions, owner }) => [name, path, size, permissions, owner]), [["file", "/tmp/folder/file", 5, "644", "root"]]);
  assert.deepEqual(subdirectories.map(({ name, path }) => [name, path]), [["inner", "/tmp/folder/inner"]]);

  await box.fs.rm("/tmp/folder/file");
  await sandboxRefused(box.fs.rm("/tmp/folder/file"), 404);
  await sandboxRefused(box.fs.rm("/tmp/folder"), 422);
  await box.fs.rm("/tmp/folder", true);
  await sandboxRefused(box.fs.ls("/tmp/folder"), 404);
});

test("a tree is written at once", async () => {
  const files = [{ path: "src/main.py", content: "print('hi')\n" }, { path: "README.md", content: "# App\n" }, { path: "src/deep/er/x", content: "" }];
  const made = await box.fs.writeTree(files, "/tmp/tree");
  assert.deepEqual([made.files.map(({ name }) => name), made.subdirectories.map(({ name }) => name)], [["README.md"], ["src"]]);
  assert.equal(await run(box, "python3 /tmp/tree/src/main.py"), "hi\n");
  assert.equal(await box.fs.read("/tmp/tree/src/deep/er/x"), "");
});

test("files and folders are copied, whatever their names", async () => {
  await box.fs.write("/tmp/copy/it's $HOME.txt", "x");
  await box.fs.cp("/tmp/copy/it's $HOME.txt", "/tmp/copy/other");
  assert.equal(await box.fs.read("/tmp/copy/other"), "x");
  await box.fs.cp("/tmp/copy", "/tmp/copied");
  assert.equal(await box.fs.read("/tmp/copied/it's $HOME.txt"), "x");
  await assert.rejects(box.fs.cp("/tmp/not-there", "/tmp/copied"));
});

test("files are found by name, by likeness and by content", async () => {
  const files = [{ path: "one.py", content: "import os\n# Needle here\n" }, { path: "sub/two.py", content: "needle\n" }, { path: "sub/three.md", content: "nothing\n" }, { path: "node_modules/four.py", content: "needle\n" }];
  await box.fs.writeTree(files, "/tmp/find");

  const found = await box.fs.find("/tmp/find", { type: "file", patterns: ["*.py"] });
  assert.deepEqual(found.matches.map(({ path }) => path).sort(), ["one.py", "sub/two.py"]);
  const folders = await box.fs.find("/tmp/find", { type: "directory", excludeDirs: ["sub"] });
  assert.deepEqual(folders.matches.map(({ path }) => path), ["node_modules"]);

  const lines = await box.fs.grep("needle", "/tmp/find");
  assert.deepEqual(lines.matches.map(({ path, line }) => `${path}:${line}`).sort(), ["one.py:2", "sub/two.py:1"]);
  const exact = await box.fs.grep("needle", "/tmp/find", { caseSensitive: true, filePattern: "*.py", maxResults: 5 });
  assert.deepEqual(exact.matches.map(({ text }) => text.trim()), ["needle"]);

  await box.fs.write("likely-name.txt", "");
  assert.ok((await box.fs.search("likly", "likly")).matches.some(({ path }) => path.endsWith("likely-name.txt")));
});

test("changes are watched, with the content of what was written", async (t) => {
  await box.fs.mkdir("/tmp/watched/sub");
  const events = [];
  const failed = [];
  const watch = box.fs.watch("/tmp/watched/**", (event) => events.push(event), { withContent: true, ignore: ["skipped"], onError: (error) => failed.push(error) });
  t.after(() => watch.close());
  // The client does not report when its watch has begun.
  let beats = 0;
  await until("the watch began", async () => {
    await box.fs.write(`/tmp/watched/beat-${(beats += 1)}`, "");
    return events.length > 0;
  });

  await run(box, "cd /tmp/watched && echo secret > skipped && printf hello > sub/new && mv sub/new sub/moved && rm sub/moved && mkdir later && printf x > later/in");
  const saw = (op, name) => events.some((event) => event.op.includes(op) && event.name === name);
  await until("all events came", () => saw("CREATE", "in") && saw("CREATE", "moved"));
  await until("the removal came", () => saw("REMOVE", "moved"));
  assert.ok(saw("CREATE", "new") && saw("RENAME", "new") && saw("CREATE", "later"));
  assert.ok(!saw("", "skipped"));

  await box.fs.write("/tmp/watched/kept", "its content");
  await until("the content came", () => events.some(({ name, content }) => name === "kept" && content === "its content"));
  watch.close();
  assert.deepEqual(failed, []);

  box.fs.watch("/tmp/not-there", () => {}, { onError: (error) => failed.push(error) });
  await until("a watch of nothing fails", () => failed.length === 1);
});
