// An agent that does what it is asked with the published client, with the identity that the
// platform gives it.
import * as bl from "@blaxel/core";
import { listen } from "./served.mjs";

const acts = {
  environment: async () => Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("BL_"))),
  tools: async ({ name }) => (await bl.getTool(name)).map((tool) => tool.name),
  tool: async ({ name, tool, input }) => {
    const found = (await bl.getTool(name)).find((each) => each.name === tool);
    return (await found.call(input)).content[0].text;
  },
  agent: async ({ name, input }) => {
    const agent = bl.blAgent(name);
    return (await agent.call(agent.url, input)).json();
  },
  command: async ({ name, command }) => {
    const box = await bl.SandboxInstance.get(name);
    return (await box.process.exec({ command, waitForCompletion: true })).stdout;
  },
  sandbox: async ({ name }) => {
    const box = await bl.SandboxInstance.create({ name, memory: 512 });
    await box.fs.write("/tmp/note", "from an agent");
    return box.fs.read("/tmp/note");
  },
  execution: async ({ name, tasks }) => bl.blJob(name).run(tasks),
  /// Makes a call of the generated client, and returns its status.
  status: async ({ operation, options }) => (await bl[operation](options)).response.status,
  /// Makes any request with the client's own headers.
  fetch: async ({ url, method = "GET", body }) => {
    await bl.settings.authenticate();
    return (await fetch(url, { method, headers: { ...bl.settings.headers, "content-type": "application/json" }, body })).status;
  },
};

listen(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  const { act, ...input } = JSON.parse(Buffer.concat(pieces).toString());
  const done = await acts[act](input).then((value) => ({ value }), (error) => ({ error: error.stack ?? JSON.stringify(error) }));
  response.writeHead(200, { "content-type": "application/json" });
  response.end(JSON.stringify(done));
});
