// The packages for frameworks make their tools from a deployed MCP server. Their models are not
// tested here.
import * as bl from "@blaxel/core";
import { blTools } from "@blaxel/llamaindex";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { image, of, packed } from "./builds.mjs";
import { fresh, ok } from "./support.mjs";

test("LlamaIndex calls a tool of an MCP server", async (t) => {
  const name = fresh("tools");
  const dockerfile = 'FROM holm/base\nWORKDIR /srv\nCOPY . .\nCMD ["node", "/srv/served.mjs"]\n';
  const files = { Dockerfile: dockerfile, "served.mjs": readFileSync(new URL("served.mjs", import.meta.url), "utf8") };
  const built = await image("function", name, packed(files, "tar.gz", ["@modelcontextprotocol/sdk", "ws", "zod"]), "application/x-tar");
  t.after(async () => {
    await of("function").remove(name);
    await ok(bl.deleteImage({ path: { resourceType: "function", imageName: name } }));
  });
  await of("function").create({ metadata: { name }, spec: { runtime: { image: built, memory: 512 } } });
  await of("function").deployed(name);
  const add = (await blTools([name])).find(({ metadata }) => metadata.name === "add");
  assert.equal(add.metadata.description, "Adds two numbers.");
  const { content } = await add.call({ a: 2, b: 3 });
  assert.equal(content[0].text, "5");
});
