// A server with everything that the conformance suite asks for, and with what tests of replicas
// need. It keeps its sessions in memory, as most servers do. TRANSPORT=websocket makes it a server
// of the kind from before streamable HTTP.
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { hostHeaderValidation } from "@modelcontextprotocol/sdk/server/middleware/hostHeaderValidation.js";
import * as shapes from "@modelcontextprotocol/sdk/types.js";
import express from "express";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

/// Identifies this replica among several.
const replica = randomUUID();
const port = Number(process.env.PORT ?? 8080);

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const wav = Buffer.concat([
  Buffer.from("RIFF"), Buffer.from([36, 0, 0, 0]), Buffer.from("WAVEfmt "), Buffer.from([16, 0, 0, 0, 1, 0, 1, 0]),
  Buffer.from([0x40, 0x1f, 0, 0, 0x40, 0x1f, 0, 0, 1, 0, 8, 0]), Buffer.from("data"), Buffer.from([0, 0, 0, 0]),
]).toString("base64");

const text = (text) => ({ type: "text", text });
const image = { type: "image", data: png, mimeType: "image/png" };
const resource = (uri, mimeType, text) => ({ type: "resource", resource: { uri, mimeType, text } });
const said = (...content) => ({ content });

/// Returns the schema of a tool's arguments.
const takes = (properties = {}, more = {}) => ({ type: "object", properties, required: Object.keys(properties), ...more });
const word = { type: "string" };

const addressed = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object",
  $defs: { address: { type: "object", properties: { street: word, city: word } } },
  properties: { name: word, address: { $ref: "#/$defs/address" } },
  additionalProperties: false,
};

const defaults = {
  type: "object",
  properties: {
    name: { type: "string", default: "John Doe" },
    age: { type: "integer", default: 30 },
    score: { type: "number", default: 95.5 },
    status: { type: "string", enum: ["active", "inactive", "pending"], default: "active" },
    verified: { type: "boolean", default: true },
  },
};

const titled = (word) => ["First", "Second", "Third"].map((title, at) => ({ const: `value${at + 1}`, title: `${title} ${word}` }));
const options = ["option1", "option2", "option3"];
const choices = {
  type: "object",
  properties: {
    untitledSingle: { type: "string", enum: options },
    titledSingle: { type: "string", oneOf: titled("Option") },
    legacyEnum: { type: "string", enum: ["opt1", "opt2", "opt3"], enumNames: ["Option One", "Option Two", "Option Three"] },
    untitledMulti: { type: "array", items: { type: "string", enum: options } },
    titledMulti: { type: "array", items: { anyOf: titled("Choice") } },
  },
};

const person = {
  type: "object",
  properties: {
    username: { type: "string", description: "User's response" },
    email: { type: "string", description: "User's email address" },
  },
  required: ["username", "email"],
};

/// Asks the user of the client.
async function elicit(extra, message, requestedSchema, begin) {
  const params = { message, requestedSchema };
  const { action, content } = await extra.sendRequest({ method: "elicitation/create", params }, shapes.ElicitResultSchema);
  return said(text(`${begin}: action=${action}, content=${JSON.stringify(content ?? {})}`));
}

/// By name: what it is for, its arguments, and what it does.
const tools = {
  test_simple_text: ["Says a text", takes(), () => said(text("This is a simple text response for testing."))],
  test_image_content: ["Shows an image", takes(), () => said(image)],
  test_audio_content: ["Plays nothing", takes(), () => said({ type: "audio", data: wav, mimeType: "audio/wav" })],
  test_embedded_resource: ["Hands a resource over", takes(),
    () => said(resource("test://embedded-resource", "text/plain", "This is an embedded resource content."))],
  test_multiple_content_types: ["Says several things", takes(), () => said(
    text("Multiple content types test:"), image,
    resource("test://mixed-content-resource", "application/json", JSON.stringify({ test: "data", value: 123 })))],
  test_tool_with_logging: ["Logs what it does", takes(), async (_, extra) => {
    for (const data of ["Tool execution started", "Tool processing data", "Tool execution completed"]) {
      await extra.sendNotification({ method: "notifications/message", params: { level: "info", data } });
      await sleep(50);
    }
    return said(text("It has logged three messages."));
  }],
  test_tool_with_progress: ["Tells how far it is", takes(), async (_, extra) => {
    const progressToken = extra._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progressToken !== undefined) {
        await extra.sendNotification({ method: "notifications/progress", params: { progressToken, progress, total: 100 } });
      }
      await sleep(50);
    }
    return said(text(String(progressToken)));
  }],
  test_error_handling: ["Fails", takes(), () => { throw new Error("This tool intentionally returns an error for testing"); }],
  test_sampling: ["Asks the client's model", takes({ prompt: word }), async ({ prompt }, extra) => {
    const params = { messages: [{ role: "user", content: text(prompt) }], maxTokens: 100 };
    const answer = await extra.sendRequest({ method: "sampling/createMessage", params }, shapes.CreateMessageResultSchema);
    return said(text(`LLM response: ${answer.content.text ?? ""}`));
  }],
  test_elicitation: ["Asks the user", takes({ message: word }),
    ({ message }, extra) => elicit(extra, message, person, "User response")],
  test_elicitation_sep1034_defaults: ["Asks with defaults", takes(),
    (_, extra) => elicit(extra, "Look at the defaults", defaults, "Elicitation completed")],
  test_elicitation_sep1330_enums: ["Asks with choices", takes(),
    (_, extra) => elicit(extra, "Choose", choices, "Elicitation completed")],
  json_schema_2020_12_tool: ["Tool with JSON Schema 2020-12 features", addressed, (given) => said(text(JSON.stringify(given)))],
  test_reconnection: ["Ends its stream before it answers", takes(), async (_, extra) => {
    extra.closeSSEStream?.();
    await sleep(100);
    return said(text("The client came back for this."));
  }],
  whoami: ["Says which replica answers", takes(), () => said(text(replica))],
  crash: ["Ends the replica without another word", takes(), () => process.exit(1)],
};

const resources = {
  "test://static-text": ["text", "text/plain", { text: "This is the content of the static text resource." }],
  "test://static-binary": ["binary", "image/png", { blob: png }],
  "test://watched-resource": ["watched", "text/plain", { text: "It stays as it is." }],
};

const user = (content) => ({ role: "user", content });
const prompts = {
  test_simple_prompt: [[], () => [user(text("This is a simple prompt for testing."))]],
  test_prompt_with_arguments: [["arg1", "arg2"],
    ({ arg1, arg2 }) => [user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`))]],
  test_prompt_with_embedded_resource: [["resourceUri"], ({ resourceUri }) => [
    user(resource(resourceUri, "text/plain", "Embedded resource content for testing.")),
    user(text("Please process the embedded resource above."))]],
  test_prompt_with_image: [[], () => [user(image), user(text("Please analyze the image above."))]],
};

function read(uri) {
  if (resources[uri]) {
    const [, mimeType, content] = resources[uri];
    return { contents: [{ uri, mimeType, ...content }] };
  }
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (!id) throw new shapes.McpError(shapes.ErrorCode.InvalidParams, `there is no ${uri}`);
  const data = { id, templateTest: true, data: `Data for ID: ${id}` };
  return { contents: [{ uri, mimeType: "application/json", text: JSON.stringify(data) }] };
}

function server() {
  const capabilities = { tools: {}, resources: { subscribe: true }, prompts: {}, logging: {}, completions: {} };
  const server = new Server({ name: "reference", version: "1.0.0" }, { capabilities });
  const on = (shape, act) => server.setRequestHandler(shape, act);
  on(shapes.ListToolsRequestSchema, () => ({
    tools: Object.entries(tools).map(([name, [description, inputSchema]]) => ({ name, description, inputSchema })),
  }));
  on(shapes.CallToolRequestSchema, async ({ params }, extra) => {
    try {
      return await tools[params.name][2](params.arguments ?? {}, extra);
    } catch (error) {
      return { isError: true, content: [text(error.message)] };
    }
  });
  on(shapes.ListResourcesRequestSchema, () => ({
    resources: Object.entries(resources).map(([uri, [name, mimeType]]) => ({ uri, name, mimeType, description: `It is ${name}.` })),
  }));
  on(shapes.ListResourceTemplatesRequestSchema, () => ({
    resourceTemplates: [{ uriTemplate: "test://template/{id}/data", name: "template", description: "By its id" }],
  }));
  on(shapes.ReadResourceRequestSchema, ({ params }) => read(params.uri));
  on(shapes.SubscribeRequestSchema, () => ({}));
  on(shapes.UnsubscribeRequestSchema, () => ({}));
  on(shapes.ListPromptsRequestSchema, () => ({
    prompts: Object.entries(prompts).map(([name, [names]]) => ({
      name, description: `The prompt ${name}`, arguments: names.map((name) => ({ name, required: true })),
    })),
  }));
  on(shapes.GetPromptRequestSchema, ({ params }) => ({ messages: prompts[params.name][1](params.arguments ?? {}) }));
  on(shapes.CompleteRequestSchema, () => ({ completion: { values: [], total: 0, hasMore: false } }));
  on(shapes.SetLevelRequestSchema, () => ({}));
  return server;
}

/// Stores the messages of all streams, so that a stream that was cut can be resumed.
function memory() {
  const events = [];
  return {
    async storeEvent(stream, message) {
      events.push({ stream, message });
      return String(events.length);
    },
    async replayEventsAfter(last, { send }) {
      const { stream } = events[Number(last) - 1];
      for (let at = Number(last); at < events.length; at += 1) {
        if (events[at].stream === stream) await send(String(at + 1), events[at].message);
      }
      return stream;
    },
  };
}

const sessions = new Map();

async function transport(request, response) {
  const name = request.headers["mcp-session-id"];
  if (name) {
    if (sessions.has(name)) return sessions.get(name);
    response.status(404).json({ jsonrpc: "2.0", error: { code: -32001, message: "Session not found" }, id: null });
    return undefined;
  }
  const opened = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: memory(),
    retryInterval: 500,
    onsessioninitialized: (name) => sessions.set(name, opened),
    onsessionclosed: (name) => sessions.delete(name),
  });
  await server().connect(opened);
  return opened;
}

async function overHttp() {
  const app = express();
  app.use(hostHeaderValidation(["localhost", "127.0.0.1", "[::1]"]));
  app.use(express.json());
  app.all("/mcp", async (request, response) => {
    await (await transport(request, response))?.handleRequest(request, response, request.body);
  });
  const listening = app.listen(port, process.env.HOST ?? "127.0.0.1", () => console.log(listening.address().port));
}

async function overWebSocket() {
  const { BlaxelMcpServerTransport } = await import("@blaxel/core");
  await server().connect(new BlaxelMcpServerTransport(port));
}

await (process.env.TRANSPORT === "websocket" ? overWebSocket() : overHttp());
