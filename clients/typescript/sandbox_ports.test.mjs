// What listens in a sandbox: its ports, previews, browser sessions, terminals and tools.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";
import WebSocket from "ws";
import { fresh, ok, run, sandbox, sandboxRefused, startEcho, until } from "./support.mjs";

const { SandboxInstance, settings } = bl;
const HOUR = 3_600_000;

let box;
before(async () => {
  box = await SandboxInstance.create({ name: fresh("box"), region: "local", memory: 2048 });
  await startEcho(box);
});
after(() => box.delete());

const later = (ms = HOUR) => new Date(Date.now() + ms);

async function preview(spec, of = box) {
  return of.previews.create({ metadata: { name: fresh("preview") }, spec: { port: 3000, ...spec } });
}

/// Returns the status of a request to a preview.
async function status(url, headers = {}) {
  const answer = await fetch(url, { headers });
  await answer.arrayBuffer();
  return answer.status;
}

/// Returns what the server of `echo.py` saw.
async function seen(answer) {
  assert.equal(answer.status, 200);
  return answer.json();
}

async function opened(url, options) {
  const socket = new WebSocket(url, options);
  await once(socket, "open");
  return socket;
}

test("a port is reached with method, path, query, headers and body, and without the credentials", async () => {
  const asked = await seen(await box.fetch(3000, "/a%2Fb//c?x=1&y=%20", { method: "POST", headers: { "X-Own": "1" }, body: "text" }));
  assert.deepEqual([asked.method, asked.path, asked.body, asked.headers["x-own"]], ["POST", "/a%2Fb//c?x=1&y=%20", "text", "1"]);
  assert.ok(!JSON.stringify(asked).includes(process.env.BL_API_KEY));
  assert.equal((await seen(await box.fetch(3000))).path, "/");
  assert.equal((await box.network.fetch(3000, "no-slash", { method: "DELETE" })).status, 200);
});

test("an answer of a port says how long its parts took", async () => {
  const answer = await box.fetch(3000);
  assert.match(answer.headers.get("server-timing"), /workload;dur=/);
});

test("strangers do not reach a sandbox", async () => {
  assert.equal(await status(`${box.metadata.url}/process`), 401);
  assert.equal(await status(`${box.metadata.url}/port/3000/`, { Authorization: "Bearer wrong" }), 401);
  assert.equal(await status(`${box.metadata.url}-not/process`, settings.headers), 404);
});

test("WebSockets of a port", async () => {
  const url = box.metadata.url.replace(/^http/, "ws");
  const socket = await opened(`${url}/port/3000/chat`, { headers: settings.headers });
  socket.send("hello");
  const [message] = await once(socket, "message");
  assert.equal(message.toString(), "hello");
  socket.close();
  await once(socket, "close");
});

test("a public preview is open, sets headers, and answers what browsers ask before", async () => {
  const cors = { "Access-Control-Allow-Origin": "https://app.example.org", "Access-Control-Allow-Methods": "GET, POST" };
  const open = await preview({ public: true, requestHeaders: { "X-Set": "by us" }, responseHeaders: { ...cors, "X-Frame": "no" } });
  const answer = await fetch(`${open.spec.url}/path?x=1`, { headers: { "X-Set": "by me", Authorization: "Bearer of the app" } });
  assert.equal(answer.headers.get("access-control-allow-origin"), "https://app.example.org");
  assert.equal(answer.headers.get("x-frame"), "no");
  const { path, headers } = await seen(answer);
  assert.deepEqual([path, headers["x-set"], headers.authorization], ["/path?x=1", "by us", "Bearer of the app"]);

  const asked = { Origin: "https://app.example.org", "Access-Control-Request-Method": "POST" };
  const before = await fetch(open.spec.url, { method: "OPTIONS", headers: asked });
  assert.equal(before.status, 204);
  assert.equal(before.headers.get("access-control-allow-methods"), "GET, POST");
});

test("a private preview opens to its own tokens alone", async () => {
  const [closed, other] = [await preview({ public: false }), await preview({ public: false })];
  const url = closed.spec.url;
  assert.equal(await status(url), 401);
  assert.equal(await status(url, { "X-Blaxel-Preview-Token": "wrong" }), 401);

  const token = await closed.tokens.create(later());
  const strange = await other.tokens.create(later());
  assert.equal(await status(url, { "X-Blaxel-Preview-Token": token.value }), 200);
  assert.equal(await status(`${url}/?bl_preview_token=${token.value}`), 200);
  assert.equal(await status(url, { "X-Blaxel-Preview-Token": strange.value }), 401);
  assert.equal(await status(url, settings.headers), 200);

  // What the app sees contains no token.
  const { path, headers } = await seen(await fetch(`${url}/x?a=1&bl_preview_token=${token.value}`, { headers: { "X-Blaxel-Preview-Token": token.value } }));
  assert.equal(path, "/x?a=1");
  assert.ok(!JSON.stringify(headers).includes(token.value));

  // A browser that followed the link keeps the cookie that later requests need.
  const cookie = (await fetch(`${url}/?bl_preview_token=${token.value}`)).headers.get("set-cookie").split(";")[0];
  assert.equal(await status(`${url}/style.css`, { Cookie: cookie }), 200);

  assert.deepEqual((await closed.tokens.list()).map(({ value }) => value), [token.value]);
  await closed.tokens.delete(token.previewToken.metadata.name);
  assert.equal(await status(url, { "X-Blaxel-Preview-Token": token.value }), 401);
  assert.equal(await status(`${url}/style.css`, { Cookie: cookie }), 401);
});

test("tokens and previews end with their time", async () => {
  const closed = await preview({ public: false });
  const token = await closed.tokens.create(later(1500));
  const asked = () => status(closed.spec.url, { "X-Blaxel-Preview-Token": token.value });
  await until("the token ends", async () => (await asked()) === 401);
  assert.equal((await closed.tokens.list())[0].expired, true);

  const short = await preview({ public: true, expires: later(1500).toISOString() });
  await until("the preview ends", async () => (await status(short.spec.url)) === 404);
  await until("the preview is gone", async () => !(await box.previews.list()).some(({ name }) => name === short.name));
});

test("a preview that was changed or deleted is so at once", async () => {
  const made = await preview({ public: true });
  assert.equal(await status(made.spec.url), 200);
  const where = { path: { sandboxName: box.metadata.name, previewName: made.name } };
  await ok(bl.updateSandboxPreview({ ...where, body: { ...made.preview, spec: { ...made.spec, public: false } } }));
  assert.equal(await status(made.spec.url), 401);
  await box.previews.delete(made.name);
  assert.equal(await status(made.spec.url), 404);
});

test("a preview of one port leads to no other", async () => {
  const made = await preview({ public: true });
  // What would be the sandbox API is a path of the app here.
  assert.equal((await seen(await fetch(`${made.spec.url}/process`))).path, "/process");
  assert.equal((await seen(await fetch(`${made.spec.url}/port/8080/process`))).path, "/port/8080/process");
});

test("a browser works in a sandbox with a session, until it is deleted", async () => {
  const session = await box.sessions.create({ expiresAt: later() });
  assert.deepEqual((await box.sessions.list()).map(({ name }) => name), [session.name]);
  const inside = await SandboxInstance.fromSession(session);
  await inside.fs.write("/tmp/session.txt", "from a browser");
  assert.equal(await box.fs.read("/tmp/session.txt"), "from a browser");
  await inside.fs.writeBinary("/tmp/session.bin", Buffer.from([0, 255]));
  assert.equal((await inside.fs.ls("/tmp")).files.filter(({ name }) => name === "session.bin").length, 1);
  const done = await inside.process.exec({ command: "echo here; exit 4", waitForCompletion: true });
  assert.deepEqual([done.stdout, done.exitCode], ["here\n", 4]);
  const lines = [];
  await inside.process.streamLogs(done.name, { onLog: (line) => lines.push(line) }).wait();
  assert.deepEqual(lines, ["here"]);
  assert.equal((await seen(await inside.fetch(3000, "/by-session"))).path, "/by-session");

  const socket = await opened(`${session.url.replace(/^http/, "ws")}/terminal/ws?sessionId=${session.name}&bl_preview_token=${session.token}`);
  socket.close();

  await box.sessions.delete(session.name);
  const error = await inside.fs.ls("/tmp").then(() => assert.fail("the session has ended"), (error) => error);
  assert.equal(error.status, 404, String(error));
});

test("a terminal is shared by its session, and shows what was before", async () => {
  const url = `${box.metadata.url.replace(/^http/, "ws")}/terminal/ws?cols=100&rows=30&sessionId=shared`;
  const token = `&token=${encodeURIComponent(process.env.BL_API_KEY)}`;
  const [refused] = await once(new WebSocket(url), "unexpected-response").then(([, answer]) => [answer.statusCode]);
  assert.equal(refused, 401);

  const attach = async () => {
    const socket = new WebSocket(url + token);
    const terminal = { socket, shown: "" };
    socket.on("message", (text) => {
      const { type, data } = JSON.parse(text);
      if (type === "output") terminal.shown += data;
    });
    await once(socket, "open");
    return terminal;
  };
  const say = ({ socket }, data) => socket.send(JSON.stringify({ type: "input", data }));
  const first = await attach();
  say(first, "stty size; echo $((6 * 7))-end\n");
  await until("the shell answers", () => first.shown.includes("30 100") && first.shown.includes("42-end"));

  const second = await attach();
  await until("the past is shown", () => second.shown.includes("42-end"));
  second.socket.send(JSON.stringify({ type: "resize", cols: 80, rows: 25 }));
  say(second, "stty size; echo from-$((1 + 1))\n");
  await until("both see it", () => [first, second].every(({ shown }) => shown.includes("25 80") && shown.includes("from-2")));
  first.socket.close();
  second.socket.close();
});

test("ports of a process are listed, and new ones are told", async (t) => {
  const options = (path, body) => ({ baseUrl: box.metadata.url, path, body });
  const { pid } = await box.process.get("echo-3000");
  const listed = await ok(bl.getNetworkProcessByPidPorts(options({ pid })));
  assert.ok(listed.ports.some(({ localPort }) => localPort === 3000), JSON.stringify(listed));

  const two = await sandbox(t);
  const told = { baseUrl: two.metadata.url };
  await startEcho(two, 4000);
  const shell = await two.process.exec({ name: "opener", command: "until [ -e /tmp/open ]; do sleep 0.05; done; exec python3 -m http.server 4200" });
  await run(two, "cat > /srv/heard.py <<'END'\nimport http.server\nclass H(http.server.BaseHTTPRequestHandler):\n  def do_POST(self):\n    open('/tmp/told','ab').write(self.rfile.read(int(self.headers['Content-Length']))+b'\\n')\n    self.send_response(204); self.end_headers()\nhttp.server.HTTPServer(('0.0.0.0',4300),H).serve_forever()\nEND");
  await two.process.exec({ name: "listener", command: "python3 /srv/heard.py", waitForPorts: [4300] });
  await ok(bl.postNetworkProcessByPidMonitor({ ...told, path: { pid: shell.pid }, body: { callback: "http://127.0.0.1:4300/new" } }));
  await two.fs.write("/tmp/open", "");
  const lines = await until("the port is told", () => two.fs.read("/tmp/told").catch(() => ""));
  assert.deepEqual(JSON.parse(lines.split("\n")[0]), { pid: Number(shell.pid), port: 4200 });
  await ok(bl.deleteNetworkProcessByPidMonitor({ ...told, path: { pid: shell.pid } }));
});

test("a port that nothing serves, and one that is none, are said to be", async () => {
  const closed = await box.fetch(4999);
  assert.equal(closed.status, 502);
  assert.equal(closed.headers.get("x-blaxel-source"), "platform");
  const { error } = await closed.json();
  assert.deepEqual([error.status, error.retryable, error.origin], [502, true, "platform"]);
  assert.match(error.message, /4999/);
  assert.equal((await box.fetch("03000")).status, 400);
  assert.equal((await box.fetch("65536")).status, 400);
});

test("the tools of a sandbox are listed and called", async () => {
  const tools = await bl.getTool(`sandboxes/${box.metadata.name}`);
  const tool = (name) => tools.find((tool) => tool.name === name);
  const called = await tool("processExecute").call({ command: "echo tool; exit 5", waitForCompletion: true });
  assert.deepEqual([called.structuredContent.exitCode, called.structuredContent.logs.trim()], [5, "tool"]);
  await tool("fsWriteFile").call({ path: "/tmp/by-tool.txt", content: "written" });
  assert.equal(await box.fs.read("/tmp/by-tool.txt"), "written");
  assert.equal(JSON.parse((await tool("fsReadFile").call({ path: "/tmp/by-tool.txt" })).content[0].text).content, "written");
});

test("drives, upgrades and code tools say why they cannot", async () => {
  assert.deepEqual(await box.drives.list(), []);
  await sandboxRefused(box.drives.mount({ driveName: "shared", mountPath: "relative" }), 400);
  await sandboxRefused(box.drives.mount({ driveName: "shared", mountPath: "/mnt/shared" }), 500);
  await sandboxRefused(box.drives.unmount("/mnt/shared"), 500);
  await sandboxRefused(box.codegen.fastapply("/tmp/x", "edit"), 400);
  await sandboxRefused(box.codegen.reranking("/tmp", "query", 0.5, 1000), 503);

  // It answers before it tries. That it failed is reported by `health`, and everything goes on.
  await box.system.upgrade({ version: "1.0.0", baseUrl: "http://127.0.0.1:9/releases" });
  const health = () => fetch(`${box.metadata.url}/health`, { headers: settings.headers }).then((answer) => answer.json());
  const failed = await until("the upgrade fails", async () => {
    const { lastUpgrade, upgradeCount } = await health();
    return lastUpgrade.status === "failed" && { lastUpgrade, upgradeCount };
  });
  assert.ok(failed.lastUpgrade.error);
  assert.equal(failed.upgradeCount, 0);
  // Without an address the server hands over its own program.
  await box.system.upgrade({});
  await until("the upgrade is done", () => health().then(({ upgradeCount }) => upgradeCount === 1, () => false));
  assert.equal((await box.fetch(3000)).status, 200);
});
