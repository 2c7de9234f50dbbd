// An MCP server with one tool, over streamable HTTP at /mcp.
const http = require("node:http");

const tools = [
  {
    name: "greet",
    description: "Greets somebody by name",
    inputSchema: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
  },
];

// Replace this with what your tools do.
function call(tool, given) {
  if (tool === "greet") return `Hello, ${given.name}!`;
  throw new Error(`there is no tool ${tool}`);
}

function result(method, params) {
  switch (method) {
    case "initialize":
      return {
        protocolVersion: params.protocolVersion ?? "2025-03-26",
        capabilities: { tools: {} },
        serverInfo: { name: process.env.BL_NAME ?? "tools", version: "1" },
      };
    case "tools/list":
      return { tools };
    case "tools/call":
      try {
        return { content: [{ type: "text", text: call(params.name, params.arguments ?? {}) }], isError: false };
      } catch (error) {
        return { content: [{ type: "text", text: error.message }], isError: true };
      }
    case "ping":
      return {};
  }
}

function reply(response, status, answer) {
  response.writeHead(status, { "Content-Type": "application/json" });
  response.end(answer === undefined ? "" : JSON.stringify(answer));
}

const server = http.createServer(async (request, response) => {
  if (request.method !== "POST") return reply(response, 405);
  let body = "";
  request.setEncoding("utf8");
  for await (const piece of request) body += piece;
  let message;
  try {
    message = JSON.parse(body);
    if (message?.method === undefined) throw new TypeError("no request");
  } catch {
    return reply(response, 400, { jsonrpc: "2.0", id: null, error: { code: -32700, message: "no request" } });
  }
  if (message.id === undefined || message.id === null) return reply(response, 202);
  const found = result(message.method, message.params ?? {});
  const error = { code: -32601, message: `there is no method ${message.method}` };
  reply(response, 200, { jsonrpc: "2.0", id: message.id, ...(found === undefined ? { error } : { result: found }) });
});

server.listen(Number(process.env.PORT ?? 1338), process.env.HOST ?? "127.0.0.1");
