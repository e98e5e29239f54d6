// What programs and chat front ends do with LangGraph's JavaScript SDK, against a bench: WTB_URL and WTB_TOKEN name it.
import assert from "node:assert/strict";
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.env.WTB_URL, apiKey: process.env.WTB_TOKEN });
const hello = (topic) => ({ messages: [{ type: "human", content: "hello" }], topic });
// As useStream sends it: several modes, subgraphs, and a run that goes on when the page is left.
const asChat = {
  streamMode: ["values", "messages-tuple", "updates", "custom"],
  streamSubgraphs: true,
  streamResumable: true,
  onDisconnect: "continue",
};

async function told(stream) {
  const found = {};
  for await (const { event, data } of stream) (found[event] ??= []).push(data);
  return found;
}

async function streams() {
  const { thread_id: thread } = await client.threads.create({ metadata: { user: "ada" } });
  let created;
  const onRunCreated = (run) => (created = run);
  const said = await told(client.runs.stream(thread, "agent", { input: hello("sea"), ...asChat, onRunCreated }));
  assert.deepEqual(Object.keys(said).sort(), ["custom", "end", "messages", "metadata", "updates", "values"]);
  assert.equal(said.messages.map(([chunk]) => chunk.content).join(""), "one two three four");
  assert.ok(said.messages.length > 3);
  assert.deepEqual(said.custom, [{ planning: "sea" }]);
  assert.deepEqual(said.values.at(-1).steps, ["plan", "talk", "review unasked"]);
  assert.deepEqual(created, { run_id: said.metadata[0].run_id, thread_id: thread });
  assert.equal((await client.runs.get(thread, created.run_id)).status, "success");
  return thread;
}

async function forks(thread) {
  const history = await client.threads.getHistory(thread, { limit: 100 });
  assert.deepEqual(history.map((state) => state.next), [[], ["review"], ["talk"], ["plan"], ["__start__"]]);
  const { checkpoint } = history.find((state) => state.next[0] === "talk");
  assert.deepEqual((await client.threads.getState(thread, checkpoint)).values.steps, ["plan"]);
  assert.deepEqual((await client.threads.getState(thread, checkpoint.checkpoint_id)).values.steps, ["plan"]);
  const said = await told(client.runs.stream(thread, "agent", { input: null, checkpoint, streamMode: "updates" }));
  assert.deepEqual(said.updates.flatMap(Object.keys), ["talk", "review"]);
  assert.equal((await client.threads.getHistory(thread, { limit: 100 })).length, 8);
  await client.threads.updateState(thread, { values: { topic: "moon" } });
  assert.equal((await client.threads.getState(thread)).values.topic, "moon");
}

async function asks() {
  const { thread_id: thread } = await client.threads.create();
  const said = await told(client.runs.stream(thread, "agent", { input: hello("asked"), ...asChat }));
  const [question] = said.values.at(-1).__interrupt__;
  assert.deepEqual(question.value, { question: "good?" });
  const [shown] = await client.threads.getHistory(thread, { limit: 1 });
  assert.deepEqual(shown.tasks[0].interrupts, [question]);
  assert.equal((await client.threads.get(thread)).status, "interrupted");
  delete shown.checkpoint.thread_id; // as useStream does
  const command = { resume: "yes" };
  const more = await told(client.runs.stream(thread, "agent", { command, checkpoint: shown.checkpoint, ...asChat }));
  assert.deepEqual(more.values.at(-1).steps, ["plan", "talk", "review yes"]);
  assert.equal((await client.runs.list(thread)).length, 2);
}

async function finds() {
  const [found] = await client.threads.search({ metadata: { graph_id: "agent", user: "ada" }, limit: 100 });
  assert.equal(found.values.messages[0].content, "hello");
  assert.deepEqual((await client.assistants.search()).map((each) => each.graph_id), ["agent", "outer"]);
  assert.ok((await client.assistants.getGraph("agent")).nodes.some((node) => node.id === "talk"));
  const ended = await client.runs.wait(null, "agent", { input: hello("sky") });
  assert.equal(ended.topic, "sky");
  await assert.rejects(client.runs.wait(null, "agent", { input: hello("broken") }), /no such topic/);
  await assert.rejects(told(client.runs.stream(null, "agent", { streamMode: "debug" })), /is not offered/);
  await assert.rejects(client.crons.search(), /crons are not offered/);
}

await forks(await streams());
await asks();
await finds();
console.log("well");
