// What the scripts share: named checks, each of which prints one line of JSON, and what the servers
// say of themselves.

import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";

const PATIENCE_MS = 30_000;

// Two real servers: one with the embedded model, one that answers by the script of the test module.
export const POCKET = process.env.POCKET_URL;
export const SCRIPTED = process.env.SCRIPTED_URL;

export const WEATHER = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
export const PERSON = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
export const TWO_CITIES = "What's the weather in Paris and London?";
export const DEGREES = { Paris: 18, London: 11 };

let unhandled = [];
process.on("unhandledRejection", (reason) => unhandled.push(reason));

export async function check(name, run) {
  unhandled = [];
  const over = new AbortController();
  const late = pause(PATIENCE_MS, null, { signal: over.signal }).then(() => {
    throw new Error(`not within ${PATIENCE_MS} ms`);
  });
  let error = null;
  try {
    await Promise.race([run(), late]);
    if (unhandled.length) throw unhandled[0];
  } catch (raised) {
    error = `${raised?.stack ?? raised}`;
  }
  late.catch(() => {});
  over.abort();
  console.log(JSON.stringify({ name, error }));
}

// A stream that could not be left must not be waited for.
export function end() {
  process.exit();
}

export function isPerson(value) {
  assert.deepEqual(Object.keys(value).sort(), ["age", "name"]);
  assert.equal(typeof value.name, "string");
  assert.ok(Number.isInteger(value.age));
}

export async function collect(iterable) {
  const found = [];
  for await (const each of iterable) found.push(each);
  return found;
}

async function until(condition, what) {
  const end = Date.now() + PATIENCE_MS / 2;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`never came: ${what}`);
    await pause(20);
  }
}

// The sum of a metric's samples that bear these labels.
async function total(name, ...labels) {
  const page = await (await fetch(`${SCRIPTED}/metrics`)).text();
  return page
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`) && labels.every((label) => line.includes(label)))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" ") + 1)), 0);
}

const running = () => total("quire_sequences_running");
const gone = () => total("quire_requests_total", 'outcome="client_gone"');

// `begin` starts an answer without an end on the scripted server and reads some of it; what it
// returns leaves it.
export async function leavingFreesTheServer(begin) {
  const before = await gone();
  const leave = await begin();
  await until(async () => (await running()) === 1, "the answer to run");
  await leave();
  await until(async () => (await running()) === 0, "the sequence to be ended");
  await until(
    async () => (await total("quire_kv_blocks", 'state="active"')) === 0,
    "its blocks to be freed",
  );
  await until(async () => (await gone()) === before + 1, "it to be counted as left");
}
