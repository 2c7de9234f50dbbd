// The package `openai` asks models of every provider, in one dialect.
import * as bl from "@blaxel/core";
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { APIConnectionError, APIError, BadRequestError, InternalServerError, NotFoundError, RateLimitError } from "openai";
import { counted, keepsKeys, key, model, policy, sampled, schema, secret, standin, text, usage, virtual } from "./models.mjs";
import { fresh, ok, until } from "./support.mjs";

const client = ({ url }, more = {}) => new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, ...more });
const messages = [{ role: "system", content: "Be brief." }, { role: "user", content: "Where is it?" }];
const tools = [{ type: "function", function: { name: "find", description: "Finds a city.", parameters: schema } }];
const responseTools = [{ type: "function", name: "find", description: "Finds a city.", parameters: schema, strict: true }];

// The provider's own dialect may be OpenAI's, or another.
const types = ["openai", "anthropic", "gemini", "cohere", "mistral", "groq", "deepseek", "xai", "cerebras"];

async function streamed(events) {
  const seen = [];
  for await (const event of events) seen.push(event);
  return seen;
}

const said = (chunks) => chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");

for (const type of types) {
  test(`${type}: an answer, whole and as a stream`, async (t) => {
    const made = await model(t, type);
    const openai = client(made);
    const answer = await openai.chat.completions.create({ model: made.name, messages });
    assert.equal(answer.choices[0].message.content, text);
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.deepEqual([answer.usage.prompt_tokens, answer.usage.completion_tokens], [5, 8]);
    const chunks = await streamed(await openai.chat.completions.create({
      model: made.name, messages, stream: true, stream_options: { include_usage: true },
    }));
    assert.equal(said(chunks), text);
    assert.equal(chunks.filter(({ choices }) => choices[0]?.delta.content).length, 8, "token by token");
    assert.equal(chunks.findLast(({ choices }) => choices.length).choices[0].finish_reason, "stop");
    assert.equal(chunks.at(-1).usage.total_tokens, 13);
    const silent = await streamed(await openai.chat.completions.create({ model: made.name, messages, stream: true }));
    assert.equal(said(silent), text);
    // Mistral reports it to everybody.
    if (type !== "mistral") assert.ok(silent.every(({ usage }) => !usage), "nobody asked for it");
    await keepsKeys(made);
    const seen = await counted(made);
    assert.deepEqual([seen.calls, seen.input, seen.output], [3, 15, 24]);
  });

  test(`${type}: tools are called, in parallel, and answered`, async (t) => {
    const made = await model(t, type, "tools=2");
    const openai = client(made);
    const { choices: [{ message, finish_reason }] } = await openai.chat.completions.create({ model: made.name, messages, tools });
    assert.equal(finish_reason, "tool_calls");
    assert.equal(message.tool_calls.length, 2);
    for (const call of message.tool_calls) {
      assert.equal(call.function.name, "find");
      assert.deepEqual(JSON.parse(call.function.arguments), sampled);
    }
    assert.equal(new Set(message.tool_calls.map(({ id }) => id)).size, 2);
    const stream = openai.chat.completions.stream({ model: made.name, messages, tools });
    const { message: again } = (await stream.finalChatCompletion()).choices[0];
    assert.deepEqual(again.tool_calls.map((call) => JSON.parse(call.function.arguments)), [sampled, sampled]);
    const results = message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "It is in France." }));
    const end = await openai.chat.completions.create({ model: made.name, messages: [...messages, message, ...results], tools });
    assert.equal(end.choices[0].message.content, text);
    assert.match((await standin.last(made.asked)).body, /It is in France\..*It is in France\./s);
    await counted(made);
  });

  test(`${type}: structured output`, async (t) => {
    const made = await model(t, type);
    const response_format = { type: "json_schema", json_schema: { name: "place", schema, strict: true } };
    const { choices: [{ message }] } = await client(made).chat.completions.parse({ model: made.name, messages, response_format });
    assert.deepEqual(message.parsed, sampled);
  });

  test(`${type}: errors are the provider's, in words of this client`, async (t) => {
    for (const [words, kind, status] of [
      ["status=429,retry-after=7", RateLimitError, 429], ["status=400", BadRequestError, 400], ["status=500", InternalServerError, 500],
    ]) {
      const made = await model(t, type, words, { routing: { retries: 0 } });
      const error = await client(made).chat.completions.create({ model: made.name, messages }).catch((error) => error);
      assert.ok(error instanceof kind, `${words}: ${error}`);
      assert.equal(error.status, status);
      assert.ok(error.message.includes("The stand-in fails"), error.message);
      if (status === 429) assert.equal(error.headers.get("retry-after"), "7");
    }
  });

  test(`${type}: responses`, async (t) => {
    const made = await model(t, type);
    const openai = client(made);
    const answer = await openai.responses.create({ model: made.name, input: "Where is it?", instructions: "Be brief." });
    assert.equal(answer.output_text, text);
    assert.equal(answer.status, "completed");
    assert.deepEqual([answer.usage.input_tokens, answer.usage.output_tokens], [5, 8]);
    const events = await streamed(await openai.responses.create({ model: made.name, input: "Where is it?", stream: true }));
    const deltas = events.filter(({ type }) => type === "response.output_text.delta");
    assert.equal(deltas.map(({ delta }) => delta).join(""), text);
    assert.equal(events.at(-1).type, "response.completed");
    assert.deepEqual(events.map(({ sequence_number }) => sequence_number), events.map((_, at) => at));
    const called = await openai.responses.create({ model: made.name, input: "Where?", tools: responseTools });
    const call = called.output.find(({ type }) => type === "function_call");
    assert.deepEqual(JSON.parse(call.arguments), sampled);
    const parsed = await openai.responses.parse({
      model: made.name, input: "Where?", text: { format: { type: "json_schema", name: "place", schema, strict: true } },
    });
    assert.deepEqual(parsed.output_parsed, sampled);
    await counted(made);
  });
}

for (const type of ["openai", "gemini", "cohere"]) {
  test(`${type}: embeddings`, async (t) => {
    const made = await model(t, type);
    const { data, usage } = await client(made).embeddings.create({ model: made.name, input: ["one two", "three"] });
    assert.deepEqual(data.map(({ embedding }) => embedding.length), [8, 8]);
    assert.equal(data[0].embedding[4], 0.5);
    if (type !== "gemini") assert.equal(usage.prompt_tokens, 3);
  });
}

for (const type of ["openai", "anthropic", "gemini"]) {
  test(`${type}: images are seen`, async (t) => {
    const made = await model(t, type);
    const image_url = { url: "data:image/png;base64,iVBORw0KGgo=" };
    const content = [{ type: "text", text: "What is it?" }, { type: "image_url", image_url }];
    const answer = await client(made).chat.completions.create({ model: made.name, messages: [{ role: "user", content }] });
    assert.equal(answer.choices[0].message.content, `[1 images] ${text}`);
  });

  test(`${type}: what is thought and what was cached is counted`, async (t) => {
    const made = await model(t, type, "reasoning=5,cached=2");
    const { usage: told } = await client(made).chat.completions.create({ model: made.name, messages });
    assert.deepEqual([told.prompt_tokens, told.prompt_tokens_details.cached_tokens, told.completion_tokens], [5, 2, 13]);
    await streamed(await client(made).chat.completions.create({ model: made.name, messages, stream: true }));
    const seen = await usageOf(made, 2);
    assert.deepEqual([seen.input, seen.cached, seen.output], [10, 4, 26]);
  });

  test(`${type}: a caller who hangs up half-way pays for what was sent`, async (t) => {
    const made = await model(t, type, "out=1000,gap=20");
    const stream = await client(made).chat.completions.create({ model: made.name, messages, stream: true });
    let pieces = 0;
    for await (const { choices } of stream) {
      if (choices[0]?.delta.content && ++pieces === 10) break;
    }
    stream.controller.abort();
    const served = await until("the provider sees it", async () => {
      const served = await standin.served(made.asked);
      return served.broken === 1 && served;
    });
    const seen = await usageOf(made, 1);
    assert.ok(seen.output >= 8 && seen.output <= served.output + 5, JSON.stringify({ seen, served }));
    assert.ok(seen.output < 200, "not what was not sent");
    assert.ok(seen.estimated > 0, "counted here, which is said");
  });

  test(`${type}: a provider that does not say what was used is counted here`, async (t) => {
    const made = await model(t, type, "no-usage");
    await client(made).chat.completions.create({ model: made.name, messages });
    await streamed(await client(made).chat.completions.create({ model: made.name, messages, stream: true }));
    const seen = await usageOf(made, 2);
    assert.ok(seen.output >= 12 && seen.output <= 40 && seen.input >= 8, JSON.stringify(seen));
    assert.equal(seen.estimated, 2);
  });
}

/// Returns what was counted, once there are `calls` calls.
function usageOf({ name }, calls) {
  return until(`${calls} calls are counted`, async () => {
    const seen = await usage(name);
    return seen.calls === calls && seen;
  });
}

test("what passes through is sent byte for byte", async (t) => {
  const made = await model(t, "openai", "", { runtime: { model: undefined } });
  const asked = fresh("own");
  const body = `{ "model" : "${asked}",\n "messages":[{"role":"user","content":"\\u00e9 1.50e1"}], "temperature": 1.50, "future":{"b":1,"a":2} }`;
  const answer = await fetch(`${made.url}/v1/chat/completions`, {
    method: "POST", body, headers: { "content-type": "application/json", "x-blaxel-authorization": `Bearer ${key}`, authorization: "Bearer replaced" },
  });
  assert.equal(answer.status, 200);
  const sent = await standin.last(asked);
  assert.equal(sent.body, body);
  assert.equal(Object.fromEntries(sent.headers).authorization, `Bearer ${secret}`);
});

test("the name of another model in the body is replaced", async (t) => {
  const made = await model(t, "openai");
  await client(made).chat.completions.create({ model: "gpt-most-expensive", messages });
  const sent = await standin.last(made.asked);
  assert.equal(JSON.parse(sent.body).model, made.asked);
});

test("every header for keys is taken, and none of them passed on", async (t) => {
  const made = await model(t, "openai");
  const body = JSON.stringify({ model: made.name, messages });
  for (const headers of [
    { authorization: `Bearer ${key}` }, { "x-blaxel-authorization": `Bearer ${key}` }, { "x-api-key": key }, { "api-key": key }, { "x-goog-api-key": key },
  ]) {
    const answer = await fetch(`${made.url}/v1/chat/completions`, { method: "POST", body, headers: { "content-type": "application/json", ...headers } });
    assert.equal(answer.status, 200, JSON.stringify(headers));
    await answer.text();
  }
  const answer = await fetch(`${made.url}/v1/chat/completions?key=${key}`, { method: "POST", body, headers: { "content-type": "application/json" } });
  assert.equal(answer.status, 200);
  await keepsKeys(made);
  const stranger = await fetch(`${made.url}/v1/chat/completions`, { method: "POST", body, headers: { authorization: "Bearer sk-no" } });
  assert.equal(stranger.status, 401);
});

test("models are listed", async (t) => {
  const made = await model(t, "openai");
  const { data } = await client(made).models.list();
  assert.ok(data.length > 0 && data.every(({ object }) => object === "model"));
});

test("a connection says which models its provider has", async (t) => {
  for (const type of ["openai", "anthropic", "gemini"]) {
    const { name } = await model(t, type);
    const all = await ok(bl.listIntegrationConnectionModels({ path: { connectionName: name } }));
    assert.match(JSON.stringify(all), /standin-large.*standin-small/, type);
    const one = await ok(bl.getIntegrationConnectionModel({ path: { connectionName: name, modelId: "standin-large" } }));
    assert.match(JSON.stringify(one), /standin-large/, type);
  }
});

test("who fails is told apart: the caller, this server, the provider", async (t) => {
  const made = await model(t, "openai");
  const unknown = await client({ url: made.url.replace(made.name, "model-of-nobody") }).chat.completions.create({ model: "x", messages }).catch((error) => error);
  assert.ok(unknown instanceof NotFoundError, String(unknown));
  const post = (url, body) => fetch(`${url}/v1/chat/completions`, { method: "POST", body, headers: { authorization: `Bearer ${key}`, "content-type": "application/json" } });
  for (const body of ["{ no json", "[]", ""]) assert.equal((await post(made.url, body)).status, 400, body);
  for (const [words, status] of [["malformed", 502], ["drop", 502], ["redirect", 502]]) {
    const { url, name } = await model(t, "anthropic", words, { routing: { retries: 0 } });
    const error = await client({ url }).chat.completions.create({ model: name, messages }).catch((error) => error);
    assert.ok(error instanceof APIError && error.status === status, `${words}: ${error}`);
  }
  const away = await model(t, "openai", "", { endpoint: "http://127.0.0.1:9/v1", routing: { retries: 0 } });
  const error = await client(away).chat.completions.create({ model: away.name, messages }).catch((error) => error);
  assert.equal(error.status, 502, String(error));
  const inside = await model(t, "openai", "", { endpoint: "http://169.254.169.254/v1", routing: { retries: 0 } });
  const refused = await client(inside).chat.completions.create({ model: inside.name, messages }).catch((error) => error);
  assert.ok(refused instanceof APIError && refused.status >= 400, String(refused));
});

test("a stream that breaks off is an error, not an end", async (t) => {
  for (const [type, words] of [["openai", "cut=4"], ["anthropic", "cut=5"], ["anthropic", "cut=5,half"], ["anthropic", "cut=5,fault"], ["gemini", "cut=3"]]) {
    const made = await model(t, type, words);
    const error = await (async () => {
      await streamed(await client(made).chat.completions.create({ model: made.name, messages, stream: true }));
    })().catch((error) => error);
    assert.ok(error instanceof Error, `${type}, ${words}`);
    await usageOf(made, 1);
  }
});

test("what a provider compresses unasked is read all the same", async (t) => {
  for (const type of ["openai", "anthropic"]) {
    const made = await model(t, type, "gzip");
    const answer = await client(made).chat.completions.create({ model: made.name, messages });
    assert.equal(answer.choices[0].message.content, text);
    await counted(made);
  }
});

test("a provider behind TLS is asked over HTTP/2", async (t) => {
  const made = await model(t, "openai", "", { endpoint: `${process.env.HOLM_STANDIN_TLS}/v1` });
  const answer = await client(made).chat.completions.create({ model: made.name, messages });
  assert.equal(answer.choices[0].message.content, text);
  assert.equal((await standin.last(made.asked)).http, "HTTP/2.0");
});

test("the next model is asked when one fails, and the answer says who it was", async (t) => {
  const bad = await model(t, "openai", "status=500", { routing: { retries: 0 } });
  const slow = await model(t, "gemini", "first=5000", { routing: { retries: 0, firstTokenTimeoutMs: 300 } });
  const good = await model(t, "anthropic");
  const chain = await virtual(t, { targets: [{ model: bad.name }], fallbacks: [{ model: slow.name }, { model: good.name }], retries: 0 });
  const { data, response } = await client(chain).chat.completions.create({ model: "any", messages }).withResponse();
  assert.equal(data.choices[0].message.content, text);
  assert.equal(response.headers.get("x-holm-model"), good.name);
  const only = await virtual(t, { targets: [{ model: bad.name }], fallbacks: [{ model: good.name, on: ["rateLimit"] }] });
  const error = await client(only).chat.completions.create({ model: "any", messages }).catch((error) => error);
  assert.equal(error.status, 500, String(error));
});

test("a failure that may pass is tried again", async (t) => {
  const made = await model(t, "openai", "status=503,failing=1", { routing: { retries: 2 } });
  const answer = await client(made).chat.completions.create({ model: made.name, messages });
  assert.equal(answer.choices[0].message.content, text);
  assert.equal((await standin.served(made.asked)).calls, 2);
});

test("requests are spread by weight", async (t) => {
  const [often, seldom, never] = [await model(t, "openai"), await model(t, "anthropic"), await model(t, "gemini")];
  const spread = await virtual(t, { targets: [{ model: often.name, weight: 3 }, { model: seldom.name }, { model: never.name, weight: 0 }] });
  for (let count = 0; count < 40; count += 1) {
    await client(spread).chat.completions.create({ model: "any", messages: [{ role: "user", content: `Question ${count}` }] });
  }
  const [first, second, third] = await Promise.all([often, seldom, never].map(({ asked }) => standin.served(asked)));
  assert.equal(first.calls + second.calls, 40);
  assert.ok(first.calls > second.calls && second.calls > 0, `${first.calls} and ${second.calls}`);
  assert.equal(third.calls, 0);
});

test("a limit of tokens is this client's error of rates, and says when it ends", async (t) => {
  const limit = await policy(t, { granularity: "hour", total: 20 });
  const made = await model(t, "openai", "", { policies: [limit] });
  const ask = () => client(made).chat.completions.create({ model: made.name, messages });
  // 13 tokens each: the second crosses the limit and is served.
  await ask();
  await ask();
  const error = await ask().catch((error) => error);
  assert.ok(error instanceof RateLimitError, String(error));
  assert.match(error.message, new RegExp(limit));
  const wait = Number(error.headers.get("retry-after"));
  assert.ok(wait > 0 && wait <= 3600, String(wait));
  assert.equal((await standin.served(made.asked)).calls, 2);
});

test("a limit of requests is never passed, however many come at once", async (t) => {
  const made = await model(t, "openai", "first=50", { policies: [await policy(t, { granularity: "hour", requests: 7 })] });
  const all = await Promise.allSettled(Array.from({ length: 40 }, () => client(made).chat.completions.create({ model: made.name, messages })));
  const good = all.filter(({ status }) => status === "fulfilled").length;
  assert.equal(good, 7);
  assert.ok(all.filter(({ reason }) => reason).every(({ reason }) => reason instanceof RateLimitError));
  assert.equal((await standin.served(made.asked)).calls, 7);
});

// By clients/prices.toml an input token costs 10,000 nanodollars, and an output token 2,000,000.
for (const type of ["openai", "anthropic", "gemini"]) {
  test(`${type}: a limit of money is never passed, and used up to what a call may cost`, async (t) => {
    const made = await model(t, type, "", { policies: [await policy(t, { granularity: "day", cost: "0.50" })] });
    const ask = (at) => client(made).chat.completions.create({ model: made.name, messages, max_tokens: 10, stream: at % 2 === 1 })
      .then((answer) => at % 2 === 1 ? streamed(answer) : answer);
    const outcomes = [];
    for (let round = 0; round < 4; round += 1) {
      outcomes.push(...await Promise.allSettled(Array.from({ length: 12 }, (_, at) => ask(at))));
    }
    const over = outcomes.filter(({ status }) => status === "rejected").map(({ reason }) => reason);
    assert.ok(over.every((error) => error instanceof RateLimitError), String(over[0]));
    const good = outcomes.length - over.length;
    const seen = await counted(made);
    // Each costs 5 tokens in and 8 out, and needs some 2,200 in and 10 out to be let through.
    assert.equal(seen.cost, good * 16_050_000);
    assert.ok(seen.cost <= 500_000_000, `${seen.cost} nanodollars were used`);
    assert.ok(good >= 28, `only ${good} of 31 calls were let through`);
    assert.ok(over.length > 0 && Number(over[0].headers.get("retry-after")) > 0);
  });
}

test("a model that is off takes no requests, and is asked again once it is on", async (t) => {
  const made = await model(t, "openai");
  const { spec, metadata } = await ok(bl.getModel({ path: { modelName: made.name } }));
  const set = (enabled) => ok(bl.updateModel({ path: { modelName: made.name }, body: { metadata, spec: { ...spec, enabled } } }));
  await set(false);
  const ask = () => client(made).chat.completions.create({ model: made.name, messages });
  const error = await until("it is off", () => ask().then(() => false, (error) => error));
  assert.ok(error instanceof APIError && !(error instanceof APIConnectionError) && error.status >= 400, String(error));
  await set(true);
  await until("it is on", () => ask().then(() => true, () => false));
});

test("equal requests are answered from the cache where that was asked for", async (t) => {
  const made = await model(t, "openai", "", { cache: { ttl: 60 } });
  const ask = () => client(made).chat.completions.create({ model: made.name, messages, temperature: 0 }).withResponse();
  const [first, second] = [await ask(), await ask()];
  assert.deepEqual([first, second].map(({ response }) => response.headers.get("x-holm-cache")), ["miss", "hit"]);
  assert.deepEqual(second.data, first.data);
  assert.equal((await standin.served(made.asked)).calls, 1);
});

test("what a hook finds is blocked or masked", async (t) => {
  const hooks = [{ when: "before", pattern: "forbidden" }, { when: "before", pattern: "[0-9]{4}-[0-9]{4}", action: "mask" }];
  const made = await model(t, "openai", "", { hooks });
  const ask = (content) => client(made).chat.completions.create({ model: made.name, messages: [{ role: "user", content }] });
  const error = await ask("a forbidden word").catch((error) => error);
  assert.ok(error instanceof BadRequestError, String(error));
  await ask("my card is 1234-5678");
  const requests = await standin.requests(made.asked);
  assert.equal(requests.length, 1);
  assert.equal(JSON.parse(requests[0].body).messages[0].content, "my card is ***");
});
