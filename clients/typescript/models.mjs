// What the tests of models share: the stand-in for providers, and models that lead to it.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { fresh, ok, until } from "./support.mjs";

export const key = process.env.HOLM_KEY;

/// A connection's provider key.
export const secret = "sk-of-the-provider";

/// The server that stands in for all providers. It counts and remembers by the name of the model
/// that it was sent.
export const standin = {
  url: process.env.HOLM_STANDIN,
  served: (model) => told("served", model),
  requests: (model) => told("requests", model),
  last: async (model) => (await told("requests", model)).at(-1),
};

async function told(what, model) {
  const answer = await fetch(`${standin.url}/standin/${what}?model=${encodeURIComponent(model)}`);
  return answer.json();
}

/// Where a provider of a type would be: the dialect of OpenAI, which most providers share, is below
/// `/v1`.
const roots = { anthropic: "", gemini: "", cohere: "", mistral: "/with/usage/v1" };

/// Creates a model that leads to the stand-in, which behaves as the words say. `more` is added to
/// its `spec`.
export async function model(t, type, words = "", more = {}) {
  const name = fresh("model");
  const asked = fresh("served") + (words && `+${words}`);
  const { endpoint = standin.url + (roots[type] ?? "/v1"), runtime, ...spec } = more;
  const config = { endpoint };
  await ok(bl.createIntegrationConnection({
    body: { metadata: { name }, spec: { integration: type, config, secret: { apiKey: secret } } },
  }));
  const body = { integrationConnections: [name], runtime: { type, model: asked, ...runtime }, ...spec };
  afterwards(t, () => bl.deleteIntegrationConnection({ path: { connectionName: name } }));
  await made(t, name, body);
  return { name, asked, url: url(name) };
}

/// Creates a model that only leads to others.
export async function virtual(t, routing, more = {}) {
  const name = fresh("virtual");
  await made(t, name, { routing, ...more });
  return { name, url: url(name) };
}

/// What tests have created, to be removed in reverse order: a model that leads to others goes
/// before them.
const removals = new WeakMap();

function afterwards(t, remove) {
  if (!removals.has(t)) {
    removals.set(t, []);
    t.after(async () => {
      for (const each of removals.get(t).reverse()) await ok(each());
    });
  }
  removals.get(t).push(remove);
}

async function made(t, name, spec) {
  await ok(bl.createModel({ body: { metadata: { name }, spec } }));
  afterwards(t, () => bl.deleteModel({ path: { modelName: name } }));
}

function url(name) {
  return `${process.env.BL_RUN_URL}/main/models/${name}`;
}

/// Creates a policy of limits.
export async function policy(t, maxTokens) {
  const name = fresh("policy");
  await ok(bl.createPolicy({ body: { metadata: { name }, spec: { type: "maxToken", maxTokens } } }));
  afterwards(t, () => bl.deletePolicy({ path: { policyName: name } }));
  return name;
}

/// Returns what the server has counted for a model this month, with the cost in nanodollars.
export async function usage(name) {
  const answer = await fetch(`${process.env.BL_API_URL}/models/${name}/usage`, {
    headers: { authorization: `Bearer ${key}`, "x-blaxel-workspace": "main" },
  });
  assert.equal(answer.status, 200, await answer.clone().text());
  const { total } = await answer.json();
  return {
    calls: total.calls, failed: total.failedCalls, estimated: total.estimatedCalls, input: total.inputTokens, output: total.outputTokens,
    cached: total.cachedTokens, reasoning: total.reasoningTokens, cost: total.costNanodollars,
  };
}

/// Waits until the server has counted exactly what the stand-in says it has served, to the token.
export async function counted({ name, asked }) {
  const served = await standin.served(asked);
  let seen;
  await until(`${name} has used what was served`, async () => {
    seen = await usage(name);
    return ["input", "output", "cached", "reasoning"].every((each) => seen[each] === served[each]);
  }, 20).catch((error) => assert.fail(`${error.message}: ${JSON.stringify({ seen, served })}`));
  return seen;
}

/// Checks that no key of a caller reaches a provider, in any header, and that the provider's own
/// does.
export async function keepsKeys({ asked }) {
  for (const { headers, path, body } of await standin.requests(asked)) {
    const sent = JSON.stringify([headers, path, body]);
    assert.ok(!sent.includes(key), `the caller's key was sent to the provider: ${sent}`);
    assert.ok(sent.includes(secret), `no key was sent to the provider: ${sent}`);
    assert.ok(!/x-blaxel|"(cookie|forwarded|x-forwarded-for)"/i.test(JSON.stringify(headers)), sent);
  }
}

export const text = "Hello from a stand-in that counts its tokens";
export const schema = {
  type: "object", properties: { city: { type: "string" }, count: { type: "integer" } },
  required: ["city", "count"], additionalProperties: false,
};
export const sampled = { city: "Paris", count: 7 };
