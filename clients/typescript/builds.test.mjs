// Folders that become images: in a known language without a Dockerfile, on images that were pushed,
// with files from elsewhere.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { test } from "node:test";
import { build, image, of, packed, printed, upload } from "./builds.mjs";
import { fresh, ok, until } from "./support.mjs";

/// Deploys an agent from sources, and returns its answer.
async function ask(context, files, more = {}) {
  const name = fresh("folder");
  context.after(async () => {
    await of("agent").remove(name);
    await bl.deleteImage({ path: { resourceType: "agent", imageName: name } });
  });
  const body = { metadata: { name, labels: { "x-blaxel-auto-generated": "true" } }, spec: { runtime: { memory: 512, ...more } } };
  const seen = await build("agents", name, body, packed(files));
  assert.ok(seen.has("DEPLOYED"), (await printed("agents", name)).join("\n"));
  const agent = bl.blAgent(name);
  return { name, said: await (await agent.call(agent.url, "hi")).text() };
}

const python = `
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from greeting import greeting

class Program(BaseHTTPRequestHandler):
    def do_POST(self):
        body = greeting().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Program).serve_forever()
`;

/// Builds a wheel with Python's standard library, so that nothing has to be fetched for it.
const backend = `
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "greeting-1.0-py3-none-any.whl"
    about = "greeting-1.0.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("greeting.py", "def greeting():\\n    return 'hello from python'\\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{about}/RECORD", "")
    return name
`;
const pyproject = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n[project]\nname = "greeting"\nversion = "1.0"\n';

test("a Python folder with requirements needs no Dockerfile", async (t) => {
  const { name, said } = await ask(t, {
    "main.py": python, "requirements.txt": "./lib\n", "lib/pyproject.toml": pyproject, "lib/backend.py": backend,
  });
  assert.equal(said, "hello from python");
  assert.ok((await printed("agents", name)).some((line) => line.includes("FROM holm/base")), "the log says what was made");
});

test("a Python folder with a pyproject needs no Dockerfile, and its settings say what starts it", async (t) => {
  const { said } = await ask(t, {
    "server.py": python, "pyproject.toml": pyproject, "backend.py": backend, "blaxel.toml": '[entrypoint]\nprod = "python server.py"\n',
  });
  assert.equal(said, "hello from python");
});

test("a Node.js folder needs no Dockerfile: it is installed, built and started", async (t) => {
  const program = `
    const { greeting } = require("greeting");
    const { built } = require("./built.json");
    require("http").createServer((_, response) => response.end(greeting + built)).listen(process.env.PORT, process.env.HOST);`;
  const { said } = await ask(t, {
    "package.json": JSON.stringify({
      name: "folder", version: "1.0.0", dependencies: { greeting: "file:./lib" },
      scripts: { build: "echo '{\"built\": \" and built\"}' > built.json", start: "node index.js" },
    }),
    "index.js": program,
    "lib/package.json": '{"name": "greeting", "version": "1.0.0"}',
    "lib/index.js": 'exports.greeting = "hello from node";',
  });
  assert.equal(said, "hello from node and built");
});

test("a folder in no known language says so", async (t) => {
  const name = fresh("folder");
  t.after(() => of("agent").remove(name));
  await build("agents", name, { metadata: { name }, spec: { runtime: { memory: 256 } } }, packed({ "main.go": "package main" }));
  const { status, events } = await of("agent").get(name);
  assert.equal(status, "FAILED");
  assert.match(events.at(-1).message, /no Dockerfile/);
});

/// Serves files that builds are allowed to fetch.
async function files(context, contents) {
  const server = createServer((request, response) => {
    const found = contents[new URL(request.url, "http://here").pathname];
    response.writeHead(found === undefined ? 404 : 200).end(found ?? "");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => server.close());
  return `http://127.0.0.1:${server.address().port}`;
}

const serves = 'CMD ["/bin/sh", "-c", "exec httpd -f -p $PORT -h /srv"]\n';
const task = "holm/test-task";

test("files are added from an address, and checked against their digest", async (t) => {
  const text = "from elsewhere";
  const url = await files(t, { "/note.txt": text });
  const digest = `sha256:${createHash("sha256").update(text).digest("hex")}`;
  const added = `FROM ${task}\nADD --checksum=${digest} ${url}/note.txt /srv/index.html\nENTRYPOINT []\n${serves}`;
  const name = fresh("adds");
  t.after(async () => {
    await of("agent").remove(name);
    await bl.deleteImage({ path: { resourceType: "agent", imageName: name } });
  });
  const body = { metadata: { name }, spec: { public: true, runtime: { memory: 128 } } };
  await build("agents", name, body, packed({ Dockerfile: added }));
  const { status, metadata, events } = await of("agent").get(name);
  assert.equal(status, "DEPLOYED", JSON.stringify(events));
  assert.equal(await (await fetch(metadata.url)).text(), text);
  for (const wrong of [added.replace(digest, `sha256:${"0".repeat(64)}`), added.replace("note.txt /srv", "none.txt /srv")]) {
    await build("agents", name, body, packed({ Dockerfile: wrong }));
    assert.equal((await of("agent").get(name)).status, "FAILED");
  }
});

/// Pushes an image of one layer by the registry protocol; returns its name there.
async function push(context, repository, tag, layer, config) {
  const host = process.env.BL_RUN_URL;
  const authorization = `Basic ${Buffer.from(`any:${process.env.BL_API_KEY}`).toString("base64")}`;
  const digest = (bytes) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
  const blob = async (bytes) => {
    const begun = await fetch(`${host}/v2/main/${repository}/blobs/uploads/`, { method: "POST", headers: { authorization } });
    assert.equal(begun.status, 202, await begun.text());
    const place = new URL(begun.headers.get("location"), host);
    place.searchParams.set("digest", digest(bytes));
    const put = await fetch(place, { method: "PUT", headers: { authorization, "content-type": "application/octet-stream" }, body: bytes });
    assert.equal(put.status, 201, await put.text());
    return { digest: digest(bytes), size: bytes.length };
  };
  const architecture = { x64: "amd64", arm64: "arm64" }[process.arch];
  const about = Buffer.from(JSON.stringify({ architecture, os: "linux", config, rootfs: { type: "layers", diff_ids: [digest(layer)] } }));
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: "application/vnd.oci.image.manifest.v1+json",
    config: { mediaType: "application/vnd.oci.image.config.v1+json", ...(await blob(about)) },
    layers: [{ mediaType: "application/vnd.oci.image.layer.v1.tar", ...(await blob(layer)) }],
  });
  const put = await fetch(`${host}/v2/main/${repository}/manifests/${tag}`, {
    method: "PUT", headers: { authorization, "content-type": "application/vnd.oci.image.manifest.v1+json" }, body: manifest,
  });
  assert.equal(put.status, 201, await put.text());
  return `${new URL(host).host}/main/${repository}:${tag}`;
}

test("an image that was pushed is one to begin with, by the name that it was pushed under", async (t) => {
  const name = fresh("pushed");
  const { gunzipSync } = await import("node:zlib");
  const layer = gunzipSync(packed({ "srv/index.html": "pushed" }, "tar.gz"));
  const pushed = await push(t, `agent/${name}`, "v1", layer, {});
  t.after(() => ok(bl.deleteImage({ path: { resourceType: "agent", imageName: name } })));
  for (const reference of [pushed, `agent/${name}:v1`]) {
    const dockerfile = `FROM ${reference} AS notes\nFROM ${task}\nCOPY --from=notes /srv /srv\nENTRYPOINT []\n${serves}`;
    const { said } = await askPage(t, { Dockerfile: dockerfile });
    assert.equal(said, "pushed");
  }
});

/// Does the same as `ask` for a program that serves a page.
async function askPage(context, files) {
  const name = fresh("page");
  context.after(async () => {
    await of("agent").remove(name);
    await bl.deleteImage({ path: { resourceType: "agent", imageName: name } });
  });
  const seen = await build("agents", name, { metadata: { name }, spec: { public: true, runtime: { memory: 128 } } }, packed(files));
  assert.ok(seen.has("DEPLOYED"), (await printed("agents", name)).join("\n"));
  const { metadata } = await of("agent").get(name);
  return { name, said: await (await fetch(metadata.url)).text() };
}

test("an image says what is done in those that begin with it", async (t) => {
  const name = fresh("parent");
  const parent = `FROM ${task}\nENTRYPOINT []\nONBUILD COPY page /srv/index.html\nONBUILD RUN echo ' and run' >> /srv/index.html\n${serves}`;
  const reference = await image("agent", name, packed({ Dockerfile: parent }));
  t.after(() => ok(bl.deleteImage({ path: { resourceType: "agent", imageName: name } })));
  const { said } = await askPage(t, { Dockerfile: `FROM ${reference}\n`, page: "copied" });
  assert.equal(said, "copied and run\n");
});

test("a build that is asked for anew replaces the one before", async (t) => {
  const name = fresh("again");
  t.after(async () => {
    await of("agent").remove(name);
    await bl.deleteImage({ path: { resourceType: "agent", imageName: name } });
  });
  const body = { metadata: { name }, spec: { public: true, runtime: { memory: 128 } } };
  const slow = `FROM ${task}\nENTRYPOINT []\nRUN sleep 60\n${serves}`;
  await upload("agents", name, body, packed({ Dockerfile: slow }));
  await until("it is built", async () => (await of("agent").get(name)).status === "BUILDING");
  const seen = await build("agents", name, body, packed({ Dockerfile: `FROM ${task}\nENTRYPOINT []\nCOPY index.html /srv/\n${serves}`, "index.html": "quick" }));
  assert.ok(seen.has("DEPLOYED"));
  assert.equal(await (await fetch((await of("agent").get(name)).metadata.url)).text(), "quick");
});
