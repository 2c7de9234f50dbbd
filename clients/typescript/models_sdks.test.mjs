// The packages of Anthropic, Google and Vercel, and the published client's for LlamaIndex, ask
// models of their own provider and of others.
import Anthropic, { APIError, RateLimitError } from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { blModel } from "@blaxel/llamaindex";
import { ApiError, GoogleGenAI } from "@google/genai";
import { embedMany, generateObject, generateText, jsonSchema, streamText, tool } from "ai";
import assert from "node:assert/strict";
import { test } from "node:test";
import { counted, keepsKeys, key, model, policy, sampled, schema, standin, text, usage, virtual } from "./models.mjs";
import { until } from "./support.mjs";

const types = ["anthropic", "openai", "gemini", "cohere"];
const anthropic = ({ url }) => new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 });
const google = ({ url }) => new GoogleGenAI({ apiKey: key, httpOptions: { baseUrl: url } });
const content = "Where is it?";
const asked = (made) => ({ model: made.name, max_tokens: 100, system: "Be brief.", messages: [{ role: "user", content }] });
const find = { name: "find", description: "Finds a city.", input_schema: schema };

for (const type of types) {
  test(`Anthropic's client, ${type}: answers, streams, tools`, async (t) => {
    const made = await model(t, type);
    const client = anthropic(made);
    const answer = await client.messages.create(asked(made));
    assert.equal(answer.content[0].text, text);
    assert.equal(answer.stop_reason, "end_turn");
    assert.deepEqual([answer.usage.input_tokens, answer.usage.output_tokens], [5, 8]);
    const stream = client.messages.stream(asked(made));
    let pieces = 0;
    stream.on("text", () => { pieces += 1; });
    const whole = await stream.finalMessage();
    assert.equal(whole.content[0].text, text);
    assert.equal(pieces, 8);
    assert.equal(whole.usage.output_tokens, 8);
    const called = await client.messages.create({ ...asked(made), tools: [find] });
    assert.equal(called.stop_reason, "tool_use");
    const call = called.content.find(({ type }) => type === "tool_use");
    assert.deepEqual(call.input, sampled);
    const again = await client.messages.stream({ ...asked(made), tools: [find] }).finalMessage();
    assert.deepEqual(again.content.find(({ type }) => type === "tool_use").input, sampled);
    const results = [{ type: "tool_result", tool_use_id: call.id, content: "It is in France." }];
    const messages = [...asked(made).messages, { role: "assistant", content: called.content }, { role: "user", content: results }];
    const end = await client.messages.create({ ...asked(made), messages, tools: [find] });
    assert.equal(end.content[0].text, text);
    const short = await client.messages.create({ ...asked(made), max_tokens: 3 });
    assert.equal(short.stop_reason, "max_tokens");
    assert.equal(short.content[0].text, "Hello from a");
    await keepsKeys(made);
    await counted(made);
  });

  test(`Anthropic's client, ${type}: errors and limits`, async (t) => {
    const busy = await model(t, type, "status=429", { routing: { retries: 0 } });
    const error = await anthropic(busy).messages.create(asked(busy)).catch((error) => error);
    assert.ok(error instanceof RateLimitError, String(error));
    assert.equal(error.error.error.type, "rate_limit_error");
    const made = await model(t, type, "", { policies: [await policy(t, { granularity: "day", requests: 1 })] });
    await anthropic(made).messages.create(asked(made));
    const over = await anthropic(made).messages.create(asked(made)).catch((error) => error);
    assert.ok(over instanceof RateLimitError, String(over));
    assert.ok(Number(over.headers.get("retry-after")) > 0);
  });

  test(`Google's client, ${type}: answers, streams, tools, structured output`, async (t) => {
    const made = await model(t, type);
    const { models } = google(made);
    const ask = { model: made.asked, contents: content, config: { systemInstruction: "Be brief." } };
    const answer = await models.generateContent(ask);
    assert.equal(answer.text, text);
    assert.deepEqual([answer.usageMetadata.promptTokenCount, answer.usageMetadata.totalTokenCount], [5, 13]);
    let said = "", last;
    for await (const chunk of await models.generateContentStream(ask)) {
      said += chunk.text ?? "";
      last = chunk;
    }
    assert.equal(said, text);
    assert.equal(last.usageMetadata.totalTokenCount, 13);
    assert.equal(last.candidates[0].finishReason, "STOP");
    const functionDeclarations = [{ name: "find", description: "Finds a city.", parametersJsonSchema: schema }];
    const called = await models.generateContent({ ...ask, config: { tools: [{ functionDeclarations }] } });
    assert.deepEqual(called.functionCalls.map(({ name, args }) => [name, args]), [["find", sampled]]);
    const config = { responseMimeType: "application/json", responseJsonSchema: schema };
    const parsed = await models.generateContent({ ...ask, config });
    assert.deepEqual(JSON.parse(parsed.text), sampled);
    await keepsKeys(made);
    await counted(made);
  });

  test(`Google's client, ${type}: errors`, async (t) => {
    const made = await model(t, type, "status=429", { routing: { retries: 0 } });
    const ask = { model: made.asked, contents: content, config: { httpOptions: { retryOptions: { attempts: 1 } } } };
    const error = await google(made).models.generateContent(ask).catch((error) => error);
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(error.status, 429);
  });
}

const providers = {
  openai: ({ url, name }) => createOpenAI({ baseURL: `${url}/v1`, apiKey: key }).responses(name),
  "openai chat": ({ url, name }) => createOpenAI({ baseURL: `${url}/v1`, apiKey: key }).chat(name),
  anthropic: ({ url, name }) => createAnthropic({ baseURL: `${url}/v1`, apiKey: key })(name),
  google: ({ url, name }) => createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: key })(name),
};
for (const [name, provider] of Object.entries(providers)) {
  for (const type of ["openai", "anthropic", "gemini"]) {
    test(`the AI SDK's provider ${name}, ${type}: text, streams, tools, objects`, async (t) => {
      const made = await model(t, type);
      const ask = { model: provider(made), prompt: content, maxRetries: 0 };
      const answer = await generateText(ask);
      assert.equal(answer.text, text);
      assert.equal(answer.usage.totalTokens, 11);
      const stream = streamText(ask);
      let said = "";
      for await (const piece of stream.textStream) said += piece;
      assert.equal(said, text);
      assert.equal((await stream.usage).outputTokens, 8);
      const found = [];
      const execute = (input) => { found.push(input); return "It is in France."; };
      const tools = { find: tool({ description: "Finds a city.", inputSchema: jsonSchema(schema), execute }) };
      assert.equal((await generateText({ ...ask, tools })).finishReason, "tool-calls");
      assert.deepEqual(found, [sampled]);
      const { object } = await generateObject({ ...ask, schema: jsonSchema(schema) });
      assert.deepEqual(object, sampled);
      await counted(made);
    });
  }
}

test("the AI SDK: embeddings, errors, and a caller who hangs up", async (t) => {
  const made = await model(t, "openai");
  const openai = createOpenAI({ baseURL: `${made.url}/v1`, apiKey: key });
  const { embeddings } = await embedMany({ model: openai.embedding(made.name), values: ["one two", "three"] });
  assert.deepEqual(embeddings.map(({ length }) => length), [8, 8]);
  const busy = await model(t, "anthropic", "status=429", { routing: { retries: 0 } });
  const error = await generateText({ model: providers["openai chat"](busy), prompt: content, maxRetries: 0 }).catch((error) => error);
  assert.equal(error.statusCode, 429);
  const long = await model(t, "anthropic", "out=1000,gap=20");
  const abort = new AbortController();
  const stream = streamText({ model: providers.anthropic(long), prompt: content, abortSignal: abort.signal, onError: () => {} });
  let pieces = 0;
  for await (const _ of stream.textStream) if (++pieces === 5) abort.abort();
  await until("the provider sees it", async () => (await standin.served(long.asked)).broken === 1);
  await until("it is counted", async () => (await usage(long.name)).output >= 5);
});

test("chains of models answer every client", async (t) => {
  const bad = await model(t, "openai", "status=529", { routing: { retries: 0 } });
  const good = await model(t, "gemini");
  const chain = await virtual(t, { targets: [{ model: bad.name }], fallbacks: [{ model: good.name }], retries: 0 });
  assert.equal((await anthropic(chain).messages.create(asked(chain))).content[0].text, text);
  assert.equal((await google(chain).models.generateContent({ model: "any", contents: content })).text, text);
  assert.equal((await generateText({ model: providers.openai(chain), prompt: content, maxRetries: 0 })).text, text);
  const none = await virtual(t, { targets: [{ model: bad.name }], retries: 0 });
  const error = await anthropic(none).messages.create(asked(none)).catch((error) => error);
  assert.ok(error instanceof APIError && error.status >= 500, String(error));
});

for (const type of ["openai", "anthropic", "mistral", "deepseek", "groq", "cerebras", "cohere", "xai", "gemini"]) {
  test(`the published client's model for LlamaIndex, ${type}`, async (t) => {
    const made = await model(t, type);
    const llm = await blModel(made.name);
    const answer = await llm.chat({ messages: [{ role: "user", content }] });
    const said = answer.message.content;
    assert.equal(Array.isArray(said) ? said.map(({ text }) => text).join("") : said, text);
    const stream = await llm.chat({ messages: [{ role: "user", content }], stream: true });
    let streamed = "";
    for await (const { delta } of stream) streamed += delta;
    assert.equal(streamed, text);
    await keepsKeys(made);
    await counted(made);
  });
}
