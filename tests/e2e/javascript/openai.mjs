// The official `openai` package: Chat Completions, Completions, Responses, Embeddings, models.

import assert from "node:assert/strict";

import OpenAI from "openai";

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

const model = "pocket";
const openai = new OpenAI({ baseURL: `${POCKET}/v1`, apiKey: "unused", maxRetries: 0 });
const scripted = new OpenAI({ baseURL: `${SCRIPTED}/v1`, apiKey: "unused", maxRetries: 0 });

const says = (content) => [{ role: "user", content }];
const description = "Get the current weather in a city.";
const tools = [
  { type: "function", function: { name: "get_weather", description, parameters: WEATHER } },
];
const HELLO = { model, temperature: 0, messages: says("Hello!") };
const CITIES = { model, temperature: 0, messages: says(TWO_CITIES), tools };
const STORY = { model, seed: 5, temperature: 1, max_tokens: 80, messages: says("Tell me a story.") };
const LOOK = { model: "scripted", messages: says("LOOK-UP"), tools };

const called = (message) =>
  (message.tool_calls ?? []).map(({ function: { name, arguments: json } }) => [
    name,
    JSON.parse(json),
  ]);
const BOTH = [
  ["get_weather", { city: "Paris" }],
  ["get_weather", { city: "London" }],
];
const runnable = (asked) => [
  {
    type: "function",
    function: {
      name: "get_weather",
      description,
      parameters: WEATHER,
      parse: JSON.parse,
      function: ({ city }) => {
        asked.push(city);
        return JSON.stringify({ temperature: DEGREES[city] });
      },
    },
  },
];

await check("models are listed and retrieved", async () => {
  assert.deepEqual((await collect(openai.models.list())).map(({ id }) => id), ["pocket"]);
  assert.equal((await openai.models.retrieve("pocket")).id, "pocket");
});

await check("chat answers, with usage that adds up", async () => {
  const { choices, usage } = await openai.chat.completions.create(HELLO);
  assert.ok(choices[0].message.content);
  assert.equal(choices[0].finish_reason, "stop");
  assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
});

for (const [name, ask] of Object.entries({ HELLO, CITIES, STORY })) {
  await check(`a chat stream is the whole answer: ${name}`, async () => {
    const whole = await openai.chat.completions.create(ask);
    const stream = await openai.chat.completions.create({
      ...ask,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = await collect(stream);
    const said = chunks.flatMap(({ choices }) => choices);
    const [choice] = whole.choices;
    const text = said.map(({ delta }) => delta.content ?? "").join("");
    assert.equal(text, choice.message.content ?? "");
    const reasons = said.map((each) => each.finish_reason).filter(Boolean);
    assert.deepEqual(reasons, [choice.finish_reason]);
    assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(new Set(chunks.map(({ id }) => id)).size, 1);
  });
}

await check("chat.stream accumulates two parallel calls", async () => {
  const whole = await openai.chat.completions.create(CITIES);
  const final = await openai.chat.completions.stream(CITIES).finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, "tool_calls");
  assert.deepEqual(called(final.choices[0].message), BOTH);
  assert.deepEqual(called(whole.choices[0].message), BOTH);
  assert.equal(new Set(final.choices[0].message.tool_calls.map(({ id }) => id)).size, 2);
});

await check("runTools ends in an answer", async () => {
  const asked = [];
  const runner = openai.chat.completions.runTools({ ...CITIES, tools: runnable(asked) });
  const text = await runner.finalContent();
  assert.deepEqual(asked, ["Paris", "London"]);
  assert.ok(text.includes("18") && text.includes("11"), text);
});

await check("runTools ends in an answer while it streams", async () => {
  const asked = [];
  const runner = openai.chat.completions.runTools({
    ...CITIES,
    tools: runnable(asked),
    stream: true,
  });
  const text = await runner.finalContent();
  assert.deepEqual(asked, ["Paris", "London"]);
  assert.ok(text.includes("18") && text.includes("11"), text);
});

await check("text, two calls, results, text: one conversation of several steps", async () => {
  const asked = [];
  const runner = scripted.chat.completions.runTools({ ...LOOK, tools: runnable(asked), stream: true });
  assert.equal(await runner.finalContent(), "Paris has 18, London has 11.");
  assert.deepEqual(asked, ["Paris", "London"]);
  const first = runner.messages.find(({ role }) => role === "assistant");
  assert.equal(first.content, "I look it up.");
});

await check("a call without arguments streams as an empty object", async () => {
  const ask = { model: "scripted", messages: says("PING-THEN-NOTE"), tools };
  const final = await scripted.chat.completions.stream(ask).finalChatCompletion();
  assert.deepEqual(called(final.choices[0].message), [
    ["ping", {}],
    ["get_weather", { city: "Zürich 🚀" }],
  ]);
});

await check("a call cut by the token limit is length and not tool_calls", async () => {
  const ask = { ...LOOK, max_tokens: 30 };
  const whole = await scripted.chat.completions.create(ask);
  assert.equal(whole.choices[0].finish_reason, "length");
  const chunks = await collect(await scripted.chat.completions.create({ ...ask, stream: true }));
  assert.equal(chunks.at(-1).choices[0].finish_reason, "length");
  assert.ok(!JSON.stringify(chunks).includes("<tool_call>"));
});

await check("reasoning is apart from the text, whole and streamed, and counted", async () => {
  const ask = { ...HELLO, reasoning_effort: "medium" };
  const whole = await openai.chat.completions.create(ask);
  const { message } = whole.choices[0];
  assert.ok(message.reasoning && message.content);
  assert.equal(message.reasoning_content, message.reasoning);
  const spent = whole.usage.completion_tokens_details.reasoning_tokens;
  assert.ok(spent > 0 && spent < whole.usage.completion_tokens);
  const chunks = await collect(await openai.chat.completions.create({ ...ask, stream: true }));
  const deltas = chunks.flatMap(({ choices }) => choices.map(({ delta }) => delta));
  assert.equal(deltas.map((delta) => delta.reasoning ?? "").join(""), message.reasoning);
  assert.equal(deltas.map((delta) => delta.content ?? "").join(""), message.content);
});

const form = { type: "json_schema", json_schema: { name: "person", strict: true, schema: PERSON } };

await check("chat.parse gives an object of the schema", async () => {
  const ask = { model, messages: says("Ada is 36."), response_format: form, max_tokens: 300 };
  const { choices } = await openai.chat.completions.parse({ ...ask, seed: 1 });
  isPerson(choices[0].message.parsed);
});

await check("a structured stream is the same object", async () => {
  const messages = says("Invent a person.");
  const ask = { ...HELLO, messages, response_format: form, max_tokens: 300 };
  const whole = await openai.chat.completions.parse(ask);
  const final = await openai.chat.completions.stream(ask).finalChatCompletion();
  isPerson(final.choices[0].message.parsed);
  assert.deepEqual(final.choices[0].message.parsed, whole.choices[0].message.parsed);
});

await check("completions stream what they answer", async () => {
  const ask = { model, prompt: "Once upon a time", max_tokens: 24, seed: 3 };
  const whole = await openai.completions.create(ask);
  const chunks = await collect(await openai.completions.create({ ...ask, stream: true }));
  const text = chunks.flatMap(({ choices }) => choices.map((choice) => choice.text)).join("");
  assert.equal(text, whole.choices[0].text);
  assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
});

const flat = [{ type: "function", name: "get_weather", description, parameters: WEATHER, strict: true }];

await check("a response answers, is stored, retrieved and deleted", async () => {
  const response = await openai.responses.create({ model, input: "Hello!", temperature: 0 });
  assert.equal(response.status, "completed");
  assert.ok(response.output_text);
  const { input_tokens, output_tokens, total_tokens } = response.usage;
  assert.equal(total_tokens, input_tokens + output_tokens);
  assert.deepEqual((await openai.responses.retrieve(response.id)).output, response.output);
  await openai.responses.delete(response.id);
  await assert.rejects(openai.responses.retrieve(response.id), OpenAI.NotFoundError);
});

await check("responses.stream ends in the object that its events made", async () => {
  const stream = openai.responses.stream({
    model,
    input: TWO_CITIES,
    tools: flat,
    temperature: 0,
    reasoning: { effort: "medium" },
  });
  const events = await collect(stream);
  const final = await stream.finalResponse();
  assert.deepEqual(final.output.map(({ type }) => type), [
    "reasoning",
    "function_call",
    "function_call",
  ]);
  assert.deepEqual(
    events.map((event) => event.sequence_number),
    events.map((_, place) => place),
  );
  const done = events.filter(({ type }) => type === "response.output_item.done");
  assert.deepEqual(
    done.map(({ item }) => [item.id, item.type]),
    final.output.map((item) => [item.id, item.type]),
  );
  assert.ok(final.usage.output_tokens_details.reasoning_tokens > 0);
  const kept = await openai.responses.retrieve(final.id);
  assert.deepEqual(kept.output.map(({ id }) => id), final.output.map(({ id }) => id));
});

await check("a response's tool loop goes on from the previous response", async () => {
  const ask = { model, tools: flat, temperature: 0 };
  const first = await openai.responses.create({ ...ask, input: TWO_CITIES });
  const calls = first.output.filter(({ type }) => type === "function_call");
  assert.deepEqual(calls.map((call) => [call.name, JSON.parse(call.arguments)]), BOTH);
  const input = calls.map((call) => ({
    type: "function_call_output",
    call_id: call.call_id,
    output: JSON.stringify({ temperature: DEGREES[JSON.parse(call.arguments).city] }),
  }));
  const second = await openai.responses.create({ ...ask, input, previous_response_id: first.id });
  assert.ok(second.output_text.includes("18") && second.output_text.includes("11"));
});

await check("responses.parse gives an object of the schema", async () => {
  const text = { format: { type: "json_schema", name: "person", strict: true, schema: PERSON } };
  const ask = { model, input: "Invent a person.", text, max_output_tokens: 300 };
  isPerson((await openai.responses.parse({ ...ask, temperature: 0 })).output_parsed);
});

await check("text, then calls, stay apart in a response's items", async () => {
  const stream = scripted.responses.stream({ model: "scripted", input: "LOOK-UP", tools: flat });
  const events = await collect(stream);
  const final = await stream.finalResponse();
  assert.deepEqual(final.output.map(({ type }) => type), [
    "message",
    "function_call",
    "function_call",
  ]);
  assert.equal(final.output_text, "I look it up.");
  const deltas = events.filter(({ type }) => type === "response.output_text.delta");
  assert.equal(deltas.map(({ delta }) => delta).join(""), "I look it up.");
});

for (const encoding_format of [undefined, "float", "base64"]) {
  await check(`embeddings are the same vectors: ${encoding_format ?? "default"}`, async () => {
    const ask = { model, input: ["a cat", "a kitten", "你好"] };
    const { data, usage } = await openai.embeddings.create({ ...ask, encoding_format });
    const plain = await openai.embeddings.create({ ...ask, encoding_format: "float" });
    assert.deepEqual(data.map(({ index }) => index), [0, 1, 2]);
    assert.ok(usage.prompt_tokens > 0);
    const vectors =
      encoding_format === "base64"
        ? data.map(({ embedding }) => {
            const bytes = Buffer.from(embedding, "base64");
            return [...new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)];
          })
        : data.map(({ embedding }) => embedding);
    for (const [place, vector] of vectors.entries()) {
      const expected = plain.data[place].embedding;
      assert.equal(vector.length, expected.length);
      vector.forEach((value, at) => assert.ok(Math.abs(value - expected[at]) < 1e-6));
    }
  });
}

await check("errors are the SDK's own, with status, code and param", async () => {
  await assert.rejects(openai.chat.completions.create({ ...HELLO, model: "gpt-9" }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.deepEqual([error.status, error.code], [404, "model_not_found"]);
    return true;
  });
  await assert.rejects(openai.chat.completions.create({ ...HELLO, top_p: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.deepEqual([error.status, error.param], [400, "top_p"]);
    assert.ok(error.requestID);
    return true;
  });
  await assert.rejects(openai.responses.create({ model, input: "x", top_p: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "top_p");
    return true;
  });
  await assert.rejects(
    openai.chat.completions.create({ ...HELLO, stream: true, response_format: { type: "odd" } }),
    OpenAI.BadRequestError,
  );
});

await check("leaving a chat stream frees the server", () =>
  leavingFreesTheServer(async () => {
    const ask = { model: "scripted", messages: says("FOR-EVER"), stream: true };
    const stream = await scripted.chat.completions.create(ask);
    await stream[Symbol.asyncIterator]().next();
    return () => stream.controller.abort();
  }),
);

await check("leaving a whole answer frees the server", () =>
  leavingFreesTheServer(async () => {
    const leaver = new AbortController();
    const ask = { model: "scripted", messages: says("FOR-EVER") };
    const answer = scripted.chat.completions.create(ask, { signal: leaver.signal });
    const refused = assert.rejects(answer, OpenAI.APIUserAbortError);
    return async () => {
      leaver.abort();
      await refused;
    };
  }),
);

await check("leaving a response that is not stored frees the server", () =>
  leavingFreesTheServer(async () => {
    const ask = { model: "scripted", input: "FOR-EVER", stream: true, store: false };
    const stream = await scripted.responses.create(ask);
    await stream[Symbol.asyncIterator]().next();
    return () => stream.controller.abort();
  }),
);

end();
