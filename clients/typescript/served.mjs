// The program that the tests' deployments run, with the official MCP SDK: it reports what it was
// asked, streams, echoes over WebSockets, and serves tools at /mcp, with or without sessions as
// $ANSWERS says.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { WebSocketServer } from "ws";
import { z } from "zod";

const replica = randomUUID();
const sessions = new Map();

export function tools() {
  const server = new McpServer({ name: process.env.BL_NAME, version: "1" });
  const text = (value) => ({ content: [{ type: "text", text: String(value) }] });
  const numbers = { a: z.number(), b: z.number() };
  server.registerTool("add", { description: "Adds two numbers.", inputSchema: numbers }, ({ a, b }) => text(a + b));
  server.registerTool("replica", { description: "Tells which replica answers.", inputSchema: {} }, () => text(replica));
  const steps = { steps: z.number() };
  server.registerTool("count", { description: "Counts, and tells its progress.", inputSchema: steps }, async ({ steps }, extra) => {
    for (let progress = 1; progress <= steps; progress += 1) {
      const params = { progressToken: extra._meta?.progressToken, progress, total: steps };
      await extra.sendNotification({ method: "notifications/progress", params });
      await sleep(200);
    }
    return text(steps);
  });
  return server;
}

async function mcp(request, response) {
  const session = sessions.get(request.headers["mcp-session-id"]);
  if (session) return session.handleRequest(request, response);
  const transport = new StreamableHTTPServerTransport(process.env.ANSWERS === "sessions"
    ? { sessionIdGenerator: randomUUID, onsessioninitialized: (id) => void sessions.set(id, transport) }
    : { sessionIdGenerator: undefined, enableJsonResponse: process.env.ANSWERS === "whole" });
  await tools().connect(transport);
  await transport.handleRequest(request, response);
}

async function stream(response, type, pieces) {
  response.writeHead(200, { "content-type": type });
  for (const piece of pieces) {
    response.write(piece);
    await sleep(300);
  }
  response.end();
}

async function answer(request, response) {
  const { pathname } = new URL(request.url, "http://here");
  if (pathname.endsWith("/mcp")) return mcp(request, response);
  const counted = (line) => [0, 1, 2, 3].map(line);
  if (pathname.endsWith("/lines")) return stream(response, "text/plain", counted((n) => `line ${n}\n`));
  if (pathname.endsWith("/events")) return stream(response, "text/event-stream", counted((n) => `data: ${n}\n\n`));
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const body = Buffer.concat(pieces).toString();
  const told = { method: request.method, path: request.url, headers: request.headers, body, colour: process.env.COLOUR, replica };
  console.log(`answered ${request.method} ${request.url}`);
  response.writeHead(pathname.endsWith("/fails") ? 500 : 200, { "content-type": "application/json" });
  response.end(JSON.stringify(told));
}

/// Serves at the address that the platform gives.
export function listen(answer) {
  const server = createServer((request, response) => {
    answer(request, response).catch((error) => {
      console.error(error);
      response.destroy();
    });
  });
  server.listen(Number(process.env.PORT), process.env.HOST, () => console.log(`listening on ${process.env.PORT}`));
  return server;
}

if (process.argv[1] === import.meta.filename) {
  const sockets = new WebSocketServer({ server: listen(answer) });
  sockets.on("connection", (socket, request) => {
    socket.send(JSON.stringify({ path: request.url }));
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  });
}
