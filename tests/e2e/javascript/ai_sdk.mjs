// Vercel's AI SDK through its three providers that speak to Quire: `openai` (Responses by default,
// Chat by `.chat`), `openai-compatible` (Chat, with reasoning) and `anthropic` (Messages).

import assert from "node:assert/strict";

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  Output,
  cosineSimilarity,
  embedMany,
  generateObject,
  generateText,
  isStepCount,
  jsonSchema,
  streamObject,
  streamText,
  tool,
} from "ai";

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

globalThis.AI_SDK_LOG_WARNINGS = false;

// Each provider's requests go through here: which route a model asks is part of what is checked.
const routes = [];
const watched = (url, init) => {
  routes.push(new URL(url).pathname);
  return fetch(url, init);
};

function providers(server) {
  const baseURL = `${server}/v1`;
  const settings = { baseURL, apiKey: "unused", fetch: watched };
  return {
    openai: createOpenAI(settings),
    anthropic: createAnthropic(settings),
    compatible: createOpenAICompatible({
      ...settings,
      name: "quire",
      includeUsage: true,
      supportsStructuredOutputs: true,
    }),
  };
}

const pocket = providers(POCKET);
const scripted = providers(SCRIPTED);

const KINDS = {
  responses: {
    route: "/v1/responses",
    model: ({ openai }, id) => openai(id),
  },
  chat: { route: "/v1/chat/completions", model: ({ openai }, id) => openai.chat(id) },
  compatible: {
    route: "/v1/chat/completions",
    model: ({ compatible }, id) => compatible(id),
    thinking: { quire: { reasoningEffort: "medium" } },
  },
  anthropic: {
    route: "/v1/messages",
    model: ({ anthropic }, id) => anthropic(id),
    thinking: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
  },
};

const common = { maxRetries: 0, maxOutputTokens: 400 };
const description = "Get the current weather in a city.";
const offered = { get_weather: tool({ description, inputSchema: jsonSchema(WEATHER) }) };
const runnable = (asked) => ({
  get_weather: tool({
    description,
    inputSchema: jsonSchema(WEATHER),
    execute: ({ city }) => {
      asked.push(city);
      return { temperature: DEGREES[city] };
    },
  }),
  ping: tool({ description: "Pings.", inputSchema: jsonSchema({ type: "object", properties: {} }) }),
});
const BOTH = [{ city: "Paris" }, { city: "London" }];

for (const [kind, { route, model: choose, thinking }] of Object.entries(KINDS)) {
  const greedy = { ...common, model: choose(pocket, "pocket"), temperature: 0 };
  const byScript = { ...common, model: choose(scripted, "scripted") };

  await check(`${kind}: generateText asks its route and answers, with usage`, async () => {
    routes.length = 0;
    const { text, finishReason, usage } = await generateText({ ...greedy, prompt: "Hello!" });
    assert.deepEqual(routes, [route]);
    assert.ok(text);
    assert.equal(finishReason, "stop");
    assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0);
    assert.equal(usage.totalTokens, usage.inputTokens + usage.outputTokens);
  });

  await check(`${kind}: streamText says what generateText says`, async () => {
    const whole = await generateText({ ...greedy, prompt: "Hello!" });
    const result = streamText({ ...greedy, prompt: "Hello!" });
    assert.equal((await collect(result.textStream)).join(""), whole.text);
    assert.equal(await result.finishReason, whole.finishReason);
    assert.equal((await result.usage).outputTokens, whole.usage.outputTokens);
  });

  await check(`${kind}: parallel calls come back whole and streamed`, async () => {
    const ask = { ...greedy, prompt: TWO_CITIES, tools: offered };
    const whole = await generateText(ask);
    assert.deepEqual(whole.toolCalls.map(({ input }) => input), BOTH);
    assert.equal(whole.finishReason, "tool-calls");
    const result = streamText(ask);
    const parts = await collect(result.fullStream);
    assert.deepEqual(parts.filter(({ type }) => type === "error"), []);
    assert.deepEqual((await result.toolCalls).map(({ input }) => input), BOTH);
    const calls = parts.filter(({ type }) => type === "tool-call");
    const begun = parts.filter(({ type }) => type === "tool-input-start");
    assert.deepEqual(begun.map(({ id }) => id), calls.map(({ toolCallId }) => toolCallId));
  });

  await check(`${kind}: a tool loop ends in an answer`, async () => {
    const asked = [];
    const ask = { ...greedy, prompt: TWO_CITIES, tools: runnable(asked), stopWhen: isStepCount(4) };
    const { text, steps } = await generateText(ask);
    assert.deepEqual(asked, ["Paris", "London"]);
    assert.equal(steps.length, 2);
    assert.ok(text.includes("18") && text.includes("11"), text);
  });

  await check(`${kind}: a streamed tool loop keeps text and calls apart`, async () => {
    const asked = [];
    const tools = runnable(asked);
    const ask = { ...byScript, prompt: "LOOK-UP", tools, stopWhen: isStepCount(4) };
    const result = streamText(ask);
    const steps = await result.steps;
    assert.deepEqual(asked, ["Paris", "London"]);
    assert.deepEqual(
      steps.map(({ text }) => text),
      ["I look it up.", "Paris has 18, London has 11."],
    );
    assert.deepEqual(steps.map(({ finishReason }) => finishReason), ["tool-calls", "stop"]);
  });

  await check(`${kind}: a call without arguments is followed by the next one whole`, async () => {
    const result = streamText({ ...byScript, prompt: "PING-THEN-NOTE", tools: runnable([]) });
    const calls = (await result.toolCalls).map(({ toolName, input }) => [toolName, input]);
    assert.deepEqual(calls, [
      ["ping", {}],
      ["get_weather", { city: "Zürich 🚀" }],
    ]);
  });

  await check(`${kind}: a call cut by the token limit is no call`, async () => {
    const ask = { ...byScript, maxOutputTokens: 30, prompt: "LOOK-UP", tools: offered };
    const result = streamText(ask);
    assert.equal(await result.finishReason, "length");
  });

  if (kind === "responses") {
    // This provider shows summaries of reasoning and nothing else; Quire writes none.
    await check(`${kind}: reasoning is counted and never in the text`, async () => {
      const providerOptions = { openai: { reasoningEffort: "medium", forceReasoning: true } };
      const { temperature: _, ...ask } = { ...greedy, prompt: "Hello!", providerOptions };
      const whole = await generateText(ask);
      const { text } = await generateText({ ...greedy, prompt: "Hello!" });
      assert.ok(whole.usage.outputTokenDetails.reasoningTokens > 0);
      assert.ok(whole.text && !whole.text.includes("greet"), whole.text);
      assert.ok(text);
      const result = streamText(ask);
      assert.ok(!(await result.text).includes("The user"));
      assert.ok((await result.usage).outputTokenDetails.reasoningTokens > 0);
    });
  }

  if (thinking) {
    await check(`${kind}: reasoning is apart from the text, whole and streamed`, async () => {
      const ask = { ...greedy, maxOutputTokens: 1500, prompt: "Hello!", providerOptions: thinking };
      if (kind === "anthropic") delete ask.temperature;
      const result = streamText({ ...ask, seed: 1 });
      const parts = await collect(result.fullStream);
      const streamed = parts
        .filter(({ type }) => type === "reasoning-delta")
        .map(({ text }) => text)
        .join("");
      assert.ok(streamed);
      assert.ok(await result.text);
      assert.equal((await result.finalStep).reasoningText, streamed);
      const whole = await generateText(ask);
      assert.ok(whole.finalStep.reasoningText);
      assert.ok(whole.text);
    });
  }

  await check(`${kind}: generateObject and streamObject follow the schema`, async () => {
    const ask = { ...greedy, schema: jsonSchema(PERSON), prompt: "Invent a person." };
    const { object } = await generateObject(ask);
    isPerson(object);
    const stream = streamObject(ask);
    await collect(stream.partialObjectStream);
    assert.deepEqual(await stream.object, object);
  });

  await check(`${kind}: an answer's output follows the schema`, async () => {
    const output = Output.object({ schema: jsonSchema(PERSON) });
    isPerson((await generateText({ ...greedy, prompt: "Invent a person.", output })).output);
  });

  await check(`${kind}: errors carry status and the server's words`, async () => {
    const ask = { ...common, model: choose(pocket, "gpt-9"), prompt: "Hello!" };
    await assert.rejects(generateText(ask), (error) => {
      assert.ok(APICallError.isInstance(error));
      assert.equal(error.statusCode, 404);
      assert.equal(error.isRetryable, false);
      assert.match(error.message, /gpt-9/);
      return true;
    });
    const errors = [];
    const result = streamText({ ...ask, onError: ({ error }) => errors.push(error) });
    const parts = await collect(result.fullStream);
    assert.ok(parts.some(({ type }) => type === "error"));
    assert.equal(errors[0].statusCode, 404);
  });

  await check(`${kind}: leaving frees the server`, () =>
    leavingFreesTheServer(async () => {
      const leaver = new AbortController();
      const result = streamText({
        ...byScript,
        maxOutputTokens: 100_000,
        prompt: "FOR-EVER",
        abortSignal: leaver.signal,
        providerOptions: { openai: { store: false } },
      });
      const reader = result.textStream[Symbol.asyncIterator]();
      await reader.next();
      return () => leaver.abort();
    }),
  );
}

for (const [kind, model] of Object.entries({
  openai: pocket.openai.embedding("pocket"),
  compatible: pocket.compatible.embeddingModel("pocket"),
})) {
  await check(`${kind}: embedMany gives a vector for each text`, async () => {
    const { embeddings, usage } = await embedMany({ model, values: ["a", "b", "a"], maxRetries: 0 });
    assert.equal(embeddings.length, 3);
    assert.ok(usage.tokens > 0);
    assert.ok(cosineSimilarity(embeddings[0], embeddings[2]) > 0.9999);
    assert.ok(cosineSimilarity(embeddings[0], embeddings[1]) < 0.9999);
  });
}

end();
