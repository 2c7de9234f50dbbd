// A stand-in for the internet in tests of outgoing requests: a name server that knows
// *.example.test, and servers at those names over HTTP/1.1, HTTP/2, WebSockets and TLS, which
// report what they were asked.
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createSecureServer } from "node:http2";
import { WebSocketServer } from "ws";

const folder = process.env.HOLM_CERTIFICATES;
const certificate = (by) => ({
  key: readFileSync(`${folder}/by-${by}.key`),
  cert: readFileSync(`${folder}/by-${by}.pem`),
});

/// An address of the machine: loopback in the sandbox is the sandbox's own.
const address = new URL(process.env.HOLM_ADDRESS).hostname;

/// Answers every question for an address of *.example.test with the machine's, and records the
/// names.
async function serveNames(asked) {
  const [host, port] = process.env.HOLM_NAMES.split(":");
  const socket = createSocket("udp4");
  socket.on("message", (question, from) => {
    const labels = [];
    let at = 12;
    for (; question[at] !== 0; at += question[at] + 1) labels.push(question.toString("ascii", at + 1, at + 1 + question[at]));
    const end = at + 5;
    const name = labels.join(".").toLowerCase();
    asked.push(name);
    const known = name.endsWith(".example.test");
    const wantsAddress = question.readUInt16BE(at + 1) === 1;
    const head = Buffer.from(question.subarray(0, 12));
    head.writeUInt16BE(known ? 0x8180 : 0x8183, 2);
    head.writeUInt16BE(known && wantsAddress ? 1 : 0, 6);
    head.writeUInt32BE(0, 8);
    const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, ...address.split(".").map(Number)]);
    const parts = [head, question.subarray(12, end), ...(known && wantsAddress ? [record] : [])];
    socket.send(Buffer.concat(parts), from.port, from.address);
  });
  socket.bind(Number(port), host);
  await once(socket, "listening");
  return socket;
}

async function tell(request, response, seen) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = Buffer.concat(pieces).toString();
  const raw = request.rawHeaders;
  const pairs = Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index].toLowerCase(), raw[2 * index + 1]]);
  const told = {
    method: request.method, path: request.url, http: request.httpVersion, headers: request.headers, pairs, body,
  };
  seen.push(told);
  if (request.url.startsWith("/stream")) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (let count = 0; count < 3; count += 1) {
      response.write(`data: ${count}\n\n`);
      await new Promise((done) => setTimeout(done, 100));
    }
    return response.end();
  }
  if (request.url.startsWith("/large")) {
    response.writeHead(200, { "content-type": "application/octet-stream" });
    return response.end(Buffer.alloc(8 << 20, "x"));
  }
  response.writeHead(200, { "content-type": "application/json" });
  return response.end(JSON.stringify(told));
}

/// `seen` collects every request that came, `asked` every name.
export async function openWorld() {
  const [seen, asked] = [[], []];
  const answer = (request, response) => void tell(request, response, seen).catch(() => response.destroy());
  const servers = {
    tls: createSecureServer({ ...certificate("authority"), allowHTTP1: true }, answer),
    stranger: createSecureServer({ ...certificate("stranger"), allowHTTP1: true }, answer),
    plain: createServer(answer),
  };
  const sockets = new WebSocketServer({ noServer: true });
  for (const server of [servers.tls, servers.plain]) {
    server.on("upgrade", (request, socket, head) => sockets.handleUpgrade(request, socket, head, (peer) => {
      peer.send(JSON.stringify(request.headers));
      peer.on("message", (message) => peer.send(`echo ${message}`));
    }));
  }
  const names = await serveNames(asked);
  const ports = {};
  for (const [name, server] of Object.entries(servers)) {
    server.listen(0, address);
    await once(server, "listening");
    ports[name] = server.address().port;
  }
  const close = () => {
    names.close();
    sockets.close();
    for (const server of Object.values(servers)) {
      server.close();
      server.closeAllConnections?.();
    }
  };
  return { seen, asked, ports, close };
}
