// What tests of deployments share: sources, their upload, and the images that are built from them.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { fresh, ok, until } from "./support.mjs";

export const base = process.env.BL_API_URL;
export const headers = { authorization: `Bearer ${process.env.BL_API_KEY}`, "x-blaxel-workspace": "main" };
const installed = fileURLToPath(new URL("../node_modules", import.meta.url));

/// Returns a zip or a tar.gz of these files. A tar.gz may also have installed packages and all that
/// they need.
export function packed(files, form = "zip", packages = []) {
  const folder = mkdtempSync(join(tmpdir(), "holm-sources-"));
  try {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
    const archive = join(folder, "..", `${fresh("sources")}.${form}`);
    try {
      if (form === "zip") {
        const tops = new Set(Object.keys(files).map((name) => name.split("/")[0]));
        execFileSync("python3", ["-m", "zipfile", "-c", archive, ...tops], { cwd: folder });
      } else {
        const tops = needed(packages).map((name) => `node_modules/${name}`);
        const more = tops.length ? ["--exclude=*.map", "--exclude=*.d.ts", "-C", dirname(installed), ...tops] : [];
        execFileSync("tar", ["-czf", archive, "-C", folder, ".", ...more]);
      }
      return readFileSync(archive);
    } finally {
      rmSync(archive, { force: true });
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/// Returns the top-level folders of these packages and of all that they need.
function needed(packages) {
  const found = new Set();
  const seen = new Set();
  const visit = (name, from) => {
    let folder = from;
    while (!existsSync(join(folder, "node_modules", name))) {
      assert.notEqual(folder, dirname(folder), `${name} is not installed`);
      folder = dirname(folder);
    }
    const place = join(folder, "node_modules", name);
    if (seen.has(place)) return;
    seen.add(place);
    // A package that lies inside another one comes with it.
    if (folder === dirname(installed)) found.add(name);
    const { dependencies = {} } = JSON.parse(readFileSync(join(place, "package.json"), "utf8"));
    for (const each of Object.keys(dependencies)) visit(each, place);
  };
  for (const name of packages) visit(name, dirname(installed));
  return [...found];
}

/// Asks for an upload address, by PUT or else by POST as published clients do, and uploads the
/// sources there.
export async function upload(plural, name, body, sources, type = "application/zip") {
  const ask = (method, path) => fetch(`${base}/${path}?upload=true`, {
    method, headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body),
  });
  let answer = await ask("PUT", `${plural}/${name}`);
  if ([404, 405].includes(answer.status)) answer = await ask("POST", plural);
  assert.equal(answer.status, 200, await answer.clone().text());
  const url = answer.headers.get("x-blaxel-upload-url");
  const put = () => fetch(url, { method: "PUT", headers: { "content-type": type }, body: sources });
  assert.equal((await put()).status, 200);
  assert.notEqual((await put()).status, 200, "an address takes one upload");
}

/// Applies a deployment whose image is built from sources; returns the statuses that a poller sees.
export async function build(plural, name, body, sources, type) {
  await upload(plural, name, body, sources, type);
  const seen = new Set();
  await until(`${name} is built`, async () => {
    const { status } = await (await fetch(`${base}/${plural}/${name}`, { headers })).json();
    seen.add(status);
    return status === "FAILED" || (status === "DEPLOYED" && seen.has("BUILDING"));
  }, 180);
  return seen;
}

/// Builds an image of the workspace from sources, as `bl push` does; returns the reference that a
/// wish uses.
export async function image(resourceType, name, sources, type) {
  await upload("images", name, { name, resourceType }, sources, type);
  const made = await until(`${name} is built`, async () => {
    const found = await ok(bl.getImage({ path: { resourceType, imageName: name } }));
    assert.notEqual(found.metadata.status, "FAILED", await printed(`${resourceType}s`, name));
    return found.metadata.status === "BUILT" && found;
  }, 180);
  return `${resourceType}/${name}:${made.spec.tags[0].name}`;
}

/// Returns what a workload and its builds have printed, oldest first.
export async function printed(plural, name) {
  const query = new URLSearchParams({ resourceType: plural, workloadIds: name, limit: "1000" });
  const logs = await (await fetch(`${base}/observability/logs?${query}`, { headers })).json();
  return logs[name].logs.map(({ message }) => message).reverse();
}

const kinds = {
  agent: { get: bl.getAgent, create: bl.createAgent, update: bl.updateAgent, remove: bl.deleteAgent, path: "agentName" },
  function: { get: bl.getFunction, create: bl.createFunction, update: bl.updateFunction, remove: bl.deleteFunction, path: "functionName" },
  application: { get: bl.getApplication, create: bl.createApplication, update: bl.updateApplication, remove: bl.deleteApplication, path: "applicationName" },
};

/// Returns the operations on a kind of deployment, as calls of the generated client.
export function of(kind) {
  const { get, create, update, remove, path } = kinds[kind];
  const at = (name) => ({ path: { [path]: name } });
  return {
    get: (name) => ok(get(at(name))),
    create: (body) => ok(create({ body })),
    update: (name, body) => ok(update({ ...at(name), body })),
    remove: (name) => remove(at(name)),
    async deployed(name) {
      const found = await until(`${name} is deployed`, async () => {
        const found = await ok(get(at(name)));
        return ["DEPLOYED", "FAILED"].includes(found.status) && found;
      }, 150);
      assert.equal(found.status, "DEPLOYED", `${JSON.stringify(found.events)}\n${(await printed(`${kind}s`, name)).join("\n")}`);
      return found;
    },
  };
}
