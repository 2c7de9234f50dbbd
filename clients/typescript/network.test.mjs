// What sandboxes may reach, and the secrets that they use and never see.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { ok, run, sandbox, until } from "./support.mjs";
import { openWorld } from "./world.mjs";

const { SandboxInstance } = bl;
let world;
before(async () => (world = await openWorld()));
after(() => world.close());

const SECRET = "sk-never-seen-inside-4711";
const variables = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"];
const show = variables.map((name) => `echo ${name}=$${name}`).join("; ");
const tls = (name, path = "/") => `https://${name}.example.test:${world.ports.tls}${path}`;
const plain = (name, path = "/") => `http://${name}.example.test:${world.ports.plain}${path}`;

/// Returns the status that curl sees: the proxy's own if that refuses, and 000 if there is no
/// answer.
async function status(box, url, flags = "") {
  const command = `curl -s -o /tmp/answer -D /tmp/head -m 20 -w '%{http_connect} %{http_code}' ${flags} '${url}' || true`;
  const [connect, code] = (await run(box, command)).trim().split(" ");
  return code === "000" && Number(connect) >= 400 ? connect : code;
}

/// Returns what the server says it was asked, through curl in the sandbox.
async function told(box, url, flags = "") {
  return JSON.parse(await run(box, `curl -sS -f -m 20 ${flags} '${url}'`));
}

function secretRule(name, more = {}) {
  return {
    destinations: [`${name}.example.test`],
    headers: { Authorization: "Bearer {{SECRET:key}}" },
    secrets: { key: SECRET },
    ...more,
  };
}

async function setNetwork(box, network) {
  await SandboxInstance.updateNetwork(box.metadata.name, { network });
}

test("programs are told of the proxy when a rule needs it, and only then", async (t) => {
  const unset = variables.map((name) => `${name}=\n`).join("");
  for (const network of [undefined, { proxy: {} }, { proxy: { routing: [] } }]) {
    assert.equal(await run(await sandbox(t, { network }), show), unset);
  }
  for (const network of [{ allowedDomains: ["a.example.test"] }, { proxy: { routing: [secretRule("a")] } }]) {
    const box = await sandbox(t, { network });
    const lines = await run(box, show);
    assert.match(lines, /^HTTP_PROXY=https:\/\/[^:]+:[^@]+@[\d.]+:\d+\nHTTPS_PROXY=https:\/\//);
    assert.match(lines, /NO_PROXY=localhost,.*169\.254\.169\.254/);
    await run(box, 'test -s "$NODE_EXTRA_CA_CERTS" && test -s "$SSL_CERT_FILE"');
  }
});

test("what is allowed passes, everything else is refused with the reason", async (t) => {
  const network = { allowedDomains: ["good.example.test", "*.deep.example.test"] };
  const box = await sandbox(t, { network });
  assert.equal(await status(box, tls("good")), "200");
  assert.equal(await status(box, tls("a.deep")), "000", "no certificate is for two labels");
  assert.equal(await status(box, plain("a.deep")), "200");
  for (const [url, flags] of [[tls("bad")], [plain("bad"), '-x "$HTTP_PROXY"'], [tls("deep")]]) {
    assert.equal(await status(box, url, flags), "403", url);
    assert.match(await run(box, "cat /tmp/head"), /proxy-error: firewall_blocked/i);
  }
  // Programs that do not use the proxy are under the same rules.
  assert.equal(await status(box, tls("good"), "--noproxy '*'"), "200");
  assert.equal(await status(box, tls("bad"), "--noproxy '*'"), "000");
  const address = `--noproxy '*' --resolve bad.example.test:${world.ports.tls}:127.0.0.9`;
  assert.equal(await status(box, tls("bad"), address), "000");
  // Names that may not be reached are not even looked up.
  assert.equal(world.asked.filter((name) => name.startsWith("bad.") || name === "deep.example.test").length, 0);
});

test("a name on both lists passes", async (t) => {
  const both = { allowedDomains: ["a.example.test"], forbiddenDomains: ["*.example.test"] };
  const box = await sandbox(t, { network: both });
  assert.deepEqual([await status(box, tls("a")), await status(box, tls("b"))], ["200", "403"]);
});

test("rules may name methods and paths", async (t) => {
  const forbiddenDomains = ["POST:*.example.test", "c.example.test/private"];
  const box = await sandbox(t, { network: { forbiddenDomains } });
  for (const url of [tls("c", "/open"), plain("c", "/open")]) {
    assert.equal(await status(box, url), "200", url);
    assert.equal(await status(box, url, "-d x"), "403", url);
  }
  for (const url of [tls("c", "/private/x"), plain("c", "//./private/../private"), tls("c", "/%70rivate")]) {
    assert.equal(await status(box, url, "--path-as-is"), "403", url);
  }
});

test("a secret is used and never seen", async (t) => {
  const body = { model: "from-the-rule" };
  const headers = { Authorization: "Bearer {{SECRET:key}}", "X-Once": "{{FUNC:uuid()}}" };
  const network = { proxy: { routing: [secretRule("api", { body, headers })] } };
  const box = await sandbox(t, { network });
  const { headers: sent, path } = await told(box, tls("api", "/v1?key={{SECRET:key}}&other={{SECRET:none}}"), "-g");
  assert.equal(sent.authorization, `Bearer ${SECRET}`);
  assert.match(sent["x-once"], /^[0-9a-f]{8}-/);
  assert.ok(sent["x-blaxel-request-id"]);
  assert.ok(path.includes(SECRET) && decodeURIComponent(path).includes("{{SECRET:none}}"), path);
  const json = `-H 'content-type: application/json' -d '{"prompt": "{{SECRET:key}}"}'`;
  assert.deepEqual(JSON.parse((await told(box, tls("api"), json)).body), { prompt: SECRET, model: "from-the-rule" });
  // The same placeholder elsewhere stays text.
  const elsewhere = await told(box, plain("other"), `-H 'authorization: {{SECRET:key}}'`);
  assert.equal(elsewhere.headers.authorization, "{{SECRET:key}}");
  // Nothing in the sandbox has the secret, except for the test server's answer.
  await run(box, "rm -f /tmp/answer");
  const part = `$(printf '%s%s' ${SECRET.slice(0, 8)} ${SECRET.slice(8, -4)})`;
  const search = `! grep -rlsF "${part}" /proc/[0-9]*/environ /proc/[0-9]*/cmdline /etc /var /tmp /root /run`;
  await run(box, search);
  const seen = await ok(bl.getSandbox({ path: { sandboxName: box.metadata.name } }));
  assert.ok(!JSON.stringify(seen).includes(SECRET));
});

test("node's fetch and axios go the same way", async (t) => {
  const box = await sandbox(t, { network: { proxy: { routing: [secretRule("api")] } } });
  const script = `fetch(process.argv[1]).then((answer) => answer.json()).then(({ headers }) => console.log(headers.authorization))`;
  assert.equal(await run(box, `node -e '${script}' '${tls("api")}'`), `Bearer ${SECRET}\n`);
});

test("HTTP/2, server-sent events, large bodies and WebSockets pass", async (t) => {
  const box = await sandbox(t, { network: { proxy: { routing: [secretRule("api")] } } });
  const [first, second] = [await told(box, tls("api"), "--http1.1"), await told(box, tls("api"), "--http2")];
  assert.deepEqual([first.headers.authorization, second.headers.authorization], [`Bearer ${SECRET}`, `Bearer ${SECRET}`]);
  assert.equal(await run(box, `curl -sS -o /dev/null -w '%{http_version}' '${tls("api")}'`), "2");
  assert.equal(await run(box, `curl -sSN '${tls("api", "/stream")}'`), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
  assert.equal(await run(box, `curl -sS '${tls("api", "/large")}' | wc -c`), `${8 << 20}\n`);
  const sent = await run(box, `head -c 3000000 /dev/zero | tr '\\0' a | curl -sS --data-binary @- '${tls("api")}' | wc -c`);
  assert.ok(Number(sent) > 3_000_000, sent);
  const script = `const socket = new WebSocket(process.argv[2]);
    socket.onmessage = ({ data }) => { console.log(data); if (data.startsWith("echo")) process.exit(0); else socket.send("hi"); };
    socket.onerror = () => process.exit(1);`;
  await box.fs.write("/tmp/socket.mjs", script);
  const url = tls("api", "/ws").replace("https", "wss");
  const told2 = await run(box, `node --experimental-websocket /tmp/socket.mjs '${url}'`);
  assert.ok(told2.includes(`Bearer ${SECRET}`) && told2.endsWith("echo hi\n"), told2);
});

test("rules change while it runs, and hold when the change is answered", async (t) => {
  const box = await sandbox(t);
  assert.equal(await run(box, show), variables.map((name) => `${name}=\n`).join(""));
  await setNetwork(box, { allowedDomains: ["one.example.test"] });
  assert.deepEqual([await status(box, tls("one")), await status(box, tls("two"))], ["200", "403"]);
  await setNetwork(box, { allowedDomains: ["two.example.test"] });
  assert.deepEqual([await status(box, tls("one")), await status(box, tls("two"))], ["403", "200"]);
  await setNetwork(box, { proxy: { routing: [secretRule("one")] } });
  assert.equal((await told(box, tls("one"))).headers.authorization, `Bearer ${SECRET}`);
  await setNetwork(box, {});
  assert.equal(await run(box, show), variables.map((name) => `${name}=\n`).join(""));
});

test("rules hold after a sleep, and what changed meanwhile is known when it wakes", async (t) => {
  const box = await sandbox(t, { network: { allowedDomains: ["one.example.test"] } });
  assert.equal(await status(box, tls("two")), "403");
  const asleep = async () => (await ok(bl.getSandbox({ path: { sandboxName: box.metadata.name } }))).state === "STANDBY";
  await until("it sleeps", asleep, 60);
  await setNetwork(box, { forbiddenDomains: ["one.example.test"] });
  assert.deepEqual([await status(box, tls("one")), await status(box, tls("two"))], ["403", "200"]);
});

test("with the ruleset `proxy` only the proxy leads out", async (t) => {
  const network = { firewall: { rulesets: ["proxy"] }, proxy: { routing: [secretRule("api")] } };
  const box = await sandbox(t, { network });
  assert.equal((await told(box, tls("api"))).headers.authorization, `Bearer ${SECRET}`);
  assert.equal(await status(box, tls("api"), "--noproxy '*'"), "000");
});

test("the credential of another sandbox opens nothing", async (t) => {
  const network = { allowedDomains: ["one.example.test"] };
  const [one, two] = [await sandbox(t, { network }), await sandbox(t, { network: { allowedDomains: ["two.example.test"] } })];
  const stolen = (await run(two, "echo $HTTPS_PROXY")).trim();
  assert.equal(await status(one, tls("one"), `--proxy '${stolen}'`), "407");
});

test("an upstream that nobody trusts is refused, not passed on", async (t) => {
  const box = await sandbox(t, { network: { proxy: { routing: [secretRule("api")] } } });
  assert.equal(await status(box, `https://api.example.test:${world.ports.stranger}/`), "502");
  assert.match(await run(box, "cat /tmp/answer"), /certificate/i);
});
