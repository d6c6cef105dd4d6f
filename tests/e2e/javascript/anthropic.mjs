// The official `@anthropic-ai/sdk` package.

import assert from "node:assert/strict";

import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { jsonSchemaOutputFormat } from "@anthropic-ai/sdk/helpers/json-schema";

import {
  DEGREES,
  PERSON,
  POCKET,
  SCRIPTED,
  TWO_CITIES,
  WEATHER,
  check,
  collect,
  end,
  isPerson,
  leavingFreesTheServer,
} from "./checks.mjs";

const claude = new Anthropic({ baseURL: POCKET, apiKey: "unused", maxRetries: 0 });
const scripted = new Anthropic({ baseURL: SCRIPTED, apiKey: "unused", maxRetries: 0 });

const says = (content) => [{ role: "user", content }];
const description = "Get the current weather in a city.";
const tools = [{ name: "get_weather", description, input_schema: WEATHER }];
const ask = { model: "pocket", max_tokens: 300, temperature: 0 };
const think = { max_tokens: 1500, thinking: { type: "enabled", budget_tokens: 1024 } };
const HELLO = { ...ask, messages: says("Hello!") };
const THINKING = { ...HELLO, ...think };
const CITIES = { ...ask, messages: says(TWO_CITIES), tools };
const CUT = { ...ask, max_tokens: 7, messages: says("Tell me a story.") };
const LOOK = { model: "scripted", max_tokens: 300, messages: says("LOOK-UP"), tools };
const FOR_EVER = { model: "scripted", max_tokens: 100_000, messages: says("FOR-EVER") };

// What two answers to one question share.
const lasting = ({ content, stop_reason, stop_sequence, usage }) => ({
  content: content.map(({ id: _, parsed_output: __, ...block }) => block),
  stop_reason,
  stop_sequence,
  output_tokens: usage.output_tokens,
  input_tokens: usage.input_tokens + usage.cache_read_input_tokens,
});
const inputs = ({ content }) =>
  content.filter(({ type }) => type === "tool_use").map(({ input }) => input);
const texts = ({ content }) => content.map(({ text }) => text ?? "").join("");

await check("models are listed and retrieved", async () => {
  assert.deepEqual((await collect(claude.models.list())).map(({ id }) => id), ["pocket"]);
  assert.equal((await claude.models.retrieve("pocket")).id, "pocket");
});

await check("a message answers, with usage", async () => {
  const message = await claude.messages.create(HELLO);
  assert.deepEqual([message.type, message.role, message.model], ["message", "assistant", "pocket"]);
  assert.equal(message.stop_reason, "end_turn");
  assert.ok(texts(message));
  assert.ok(message.usage.output_tokens > 0);
});

for (const [name, asked] of Object.entries({ HELLO, THINKING, CITIES, CUT })) {
  await check(`a stream's final message is the whole one: ${name}`, async () => {
    const whole = await claude.messages.create(asked);
    const stream = claude.messages.stream(asked);
    let text = "";
    stream.on("text", (delta) => (text += delta));
    const final = await stream.finalMessage();
    assert.deepEqual(lasting(final), lasting(whole));
    assert.equal(text, texts(whole));
  });
}

await check("events come in Anthropic's order, ids equal in stream and final message", async () => {
  const events = await collect(await claude.messages.create({ ...CITIES, stream: true }));
  const kinds = events.map(({ type }) => type);
  assert.equal(kinds[0], "message_start");
  assert.deepEqual(kinds.slice(-2), ["message_delta", "message_stop"]);
  const starts = events.filter(({ type }) => type === "content_block_start");
  assert.deepEqual(starts.map(({ index }) => index), starts.map((_, place) => place));
  const stream = claude.messages.stream(CITIES);
  const streamed = [];
  stream.on("streamEvent", (event) => {
    if (event.type === "content_block_start") streamed.push(event.content_block.id);
  });
  assert.deepEqual((await stream.finalMessage()).content.map(({ id }) => id), streamed);
});

await check("a tool loop with two parallel calls ends in an answer", async () => {
  const first = await claude.messages.stream(CITIES).finalMessage();
  assert.equal(first.stop_reason, "tool_use");
  assert.deepEqual(inputs(first), [{ city: "Paris" }, { city: "London" }]);
  const results = first.content
    .filter(({ type }) => type === "tool_use")
    .map(({ id, input }) => ({
      type: "tool_result",
      tool_use_id: id,
      content: JSON.stringify({ temperature: DEGREES[input.city] }),
    }));
  const messages = [
    ...CITIES.messages,
    { role: "assistant", content: first.content },
    { role: "user", content: results },
  ];
  const second = await claude.messages.create({ ...CITIES, messages });
  assert.equal(second.stop_reason, "end_turn");
  assert.ok(texts(second).includes("18") && texts(second).includes("11"));
});

for (const stream of [false, true]) {
  await check(`the SDK's tool runner ends in an answer: stream ${stream}`, async () => {
    const asked = [];
    const weather = betaTool({
      name: "get_weather",
      description,
      inputSchema: WEATHER,
      run: ({ city }) => {
        asked.push(city);
        return JSON.stringify({ temperature: DEGREES[city] });
      },
    });
    const runner = scripted.beta.messages.toolRunner({ ...LOOK, tools: [weather], stream });
    assert.equal(texts(await runner.runUntilDone()), "Paris has 18, London has 11.");
    assert.deepEqual(asked, ["Paris", "London"]);
  });
}

await check("text and calls are blocks in the order they came", async () => {
  const message = await scripted.messages.stream(LOOK).finalMessage();
  assert.deepEqual(message.content.map(({ type }) => type), ["text", "tool_use", "tool_use"]);
  assert.equal(texts(message), "I look it up.");
});

await check("a call without arguments has an empty input", async () => {
  const asked = { ...LOOK, messages: says("PING-THEN-NOTE") };
  const message = await scripted.messages.stream(asked).finalMessage();
  assert.deepEqual(inputs(message), [{}, { city: "Zürich 🚀" }]);
});

await check("a call cut by the token limit is max_tokens and not tool_use", async () => {
  const asked = { ...LOOK, max_tokens: 30 };
  assert.equal((await scripted.messages.create(asked)).stop_reason, "max_tokens");
  assert.equal((await scripted.messages.stream(asked).finalMessage()).stop_reason, "max_tokens");
});

await check("thinking is signed, streamed, and may come back", async () => {
  const stream = claude.messages.stream(THINKING);
  let thought = "";
  stream.on("thinking", (delta) => (thought += delta));
  const message = await stream.finalMessage();
  const [block] = message.content;
  assert.equal(block.type, "thinking");
  assert.ok(block.signature);
  assert.equal(block.thinking, thought);
  const again = (content) => ({
    ...THINKING,
    messages: [...HELLO.messages, { role: "assistant", content }, ...says("Count to 3")],
  });
  assert.ok((await claude.messages.create(again(message.content))).content.length);
  const altered = [{ ...block, thinking: "Something else." }];
  await assert.rejects(claude.messages.create(again(altered)), Anthropic.BadRequestError);
});

await check("messages.parse gives an object of the schema", async () => {
  const output_config = { format: jsonSchemaOutputFormat(PERSON) };
  const asked = { ...HELLO, messages: says("Extract name, age as JSON: Ada is 36 years old."), output_config };
  const message = await claude.messages.parse(asked);
  isPerson(message.parsed_output);
  const final = await claude.messages.stream(asked).finalMessage();
  assert.deepEqual(final.parsed_output, message.parsed_output);
});

await check("a stop sequence is named", async () => {
  const asked = { ...HELLO, messages: says("Tell me a story."), stop_sequences: ["a"] };
  const message = await claude.messages.stream(asked).finalMessage();
  assert.deepEqual([message.stop_reason, message.stop_sequence], ["stop_sequence", "a"]);
  assert.ok(!texts(message).includes("a"));
});

await check("counted tokens are those that are used", async () => {
  const { max_tokens: _, temperature: __, ...prompt } = CITIES;
  const { input_tokens } = await claude.messages.countTokens(prompt);
  assert.equal(lasting(await claude.messages.create(CITIES)).input_tokens, input_tokens);
});

await check("errors are the SDK's own, with status and type", async () => {
  await assert.rejects(claude.messages.create({ ...HELLO, model: "claude-9" }), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.deepEqual([error.status, error.type], [404, "not_found_error"]);
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(claude.messages.create({ ...HELLO, max_tokens: -1 }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.deepEqual([error.status, error.type], [400, "invalid_request_error"]);
    assert.match(error.message, /max_tokens/);
    return true;
  });
  const stream = claude.messages.stream({ ...HELLO, messages: [] });
  await assert.rejects(stream.finalMessage(), Anthropic.BadRequestError);
});

await check("leaving a stream frees the server", () =>
  leavingFreesTheServer(async () => {
    const stream = scripted.messages.stream(FOR_EVER);
    await new Promise((resolve) => stream.once("text", resolve));
    const aborted = assert.rejects(stream.done(), Anthropic.APIUserAbortError);
    return async () => {
      stream.abort();
      await aborted;
    };
  }),
);

await check("leaving a whole message frees the server", () =>
  leavingFreesTheServer(async () => {
    const leaver = new AbortController();
    const options = { signal: leaver.signal, timeout: 60_000 };
    const message = scripted.messages.create(FOR_EVER, options);
    const refused = assert.rejects(message, Anthropic.APIUserAbortError);
    return async () => {
      leaver.abort();
      await refused;
    };
  }),
);

end();
