// Forms that zod writes, asked for through the AI SDK's provider for local servers. It sends zod's
// JSON Schema as it is.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText } from "ai";
import { z } from "zod";

import { SCRIPTED, check, end } from "./checks.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const provider = createOpenAICompatible({
  baseURL: `${SCRIPTED}/v1`,
  apiKey: "unused",
  name: "quire",
  supportsStructuredOutputs: true,
});

const FORMS = {
  "a record": z.object({ v: z.record(z.string(), z.number()) }),
  "a record by an enum": z.object({ v: z.record(z.enum(["a", "b"]), z.number()) }),
  "a prefix": z.object({ v: z.string().startsWith("a") }),
  "an e-mail address": z.object({ v: z.email() }),
  "a host name": z.object({ v: z.hostname() }),
  "a duration": z.object({ v: z.iso.duration() }),
  "a network": z.object({ v: z.cidrv4() }),
  "a number in a range": z.object({ v: z.number().int().min(1).max(9) }),
  "one of two": z.object({ v: z.discriminatedUnion("kind", [
    z.object({ kind: z.literal("a"), x: z.number() }),
    z.object({ kind: z.literal("b"), y: z.string().max(9) }),
  ]) }),
};

for (const [name, schema] of Object.entries(FORMS)) {
  await check(`zod: the answer has the form of ${name}`, async () => {
    try {
      const { output } = await generateText({
        model: provider("scripted"),
        prompt: "Hello",
        maxOutputTokens: 300,
        output: Output.object({ schema }),
      });
      schema.parse(output);
    } catch (error) {
      // The simulated model does not know when a text of its own has been long enough.
      if (error.finishReason !== "length") throw error;
    }
  });
}

end();
