// Lets the conformance suite run on Node.js 20: it imports a newer function of `fs` for a command
// that is not used here.
import { register } from "node:module";

const names = `export * from "node:fs";
export { default } from "node:fs";
export function globSync() { throw new Error("this needs Node.js 22"); }`;
const asModule = (text) => `data:text/javascript,${encodeURIComponent(text)}`;
register(asModule(`export async function resolve(name, context, next) {
  const suite = context.parentURL?.includes("/@modelcontextprotocol/conformance/");
  return name === "fs" && suite ? { url: ${JSON.stringify(asModule(names))}, shortCircuit: true } : next(name, context);
}`));
