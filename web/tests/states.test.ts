import { expect, test } from "vitest";
import { hasParts, partEntries, rootEntry, rowsOf } from "../src/views/checkpoint/state/entries";
import { messageOf, messagesOf } from "../src/views/checkpoint/state/messages";
import { lineOf, partsOf, pathText, wholeText } from "../src/views/checkpoint/state/tagged";

const whole = (value: unknown) =>
  rootEntry({ path: [], kind: "dict", count: 1, is_whole: true, value, preview: null, children: [], next: null });

test("values of every type are one readable line", () => {
  expect(
    [
      null,
      true,
      0.5,
      "two\nlines",
      { $type: "int", value: "1180591620717411303424" },
      { $type: "bytes", value: "AP8Q" },
      { $type: "timedelta", value: [1, 300, 0] },
      { $type: "datetime", value: "2026-01-01T12:00:00+00:00", zone: "UTC" },
      { $type: "masked", value: "***" },
      { $type: "opaque", name: "x.Y", text: "<Y object>" },
      { $type: "tuple", value: [1, "a"] },
      { $type: "set", value: ["a"] },
      { $type: "dict", value: [[1, "one"]] },
      { $type: "class", name: "agent:Place", value: { street: "Main" } },
    ].map(lineOf),
  ).toEqual([
    "null",
    "true",
    "0.5",
    "two ⏎ lines",
    "1180591620717411303424",
    "3 bytes: 00 ff 10",
    "1 d 00:05:00",
    "2026-01-01T12:00:00+00:00 UTC",
    "***",
    "<Y object>",
    '(1, "a")',
    'set {"a"}',
    '{"one"}',
    'Place(street: "Main")',
  ]);
});

test("a long text is cut in a line and whole in full", () => {
  const text = "x".repeat(1_000);
  expect(lineOf(text)).toHaveLength(301);
  expect(wholeText(text)).toBe(text);
  expect(wholeText({ a: [1, { $type: "tuple", value: [2] }], b: {} })).toBe(
    "{\n  a: [\n    1,\n    (\n      2\n    )\n  ],\n  b: {}\n}",
  );
});

test("only parts that a path can name have a key", () => {
  expect(partsOf({ $type: "set", value: ["a"] })?.map((part) => part.key)).toEqual([null]);
  expect(
    partsOf({
      $type: "dict",
      value: [
        [{ $type: "date", value: "2026-01-01" }, 1],
        ["x", 2],
      ],
    })?.map((part) => part.key),
  ).toEqual([null, "x"]);
  expect(partsOf("text")).toBeNull();
  expect(pathText(["docs", 3, "a title", { id: "m1" }])).toBe('docs[3]["a title"][id m1]');
});

test("a tree has a row for every open place, and messages are named by their ids", () => {
  const message = {
    $type: "foreign",
    name: "langchain_core.messages.ai.AIMessage",
    value: { content: "hi", type: "ai", id: "m1" },
  };
  const root = whole({ messages: [message], n: 1 });
  const [messages] = partEntries(root);
  expect(rowsOf(root, new Set(), new Map())).toHaveLength(2);
  const rows = rowsOf(root, new Set([messages!.id]), new Map());
  expect(rows.map((row) => row.type === "entry" && row.entry.label)).toEqual(["messages", "0", "n"]);
  const item = partEntries(messages!)[0]!;
  expect(partEntries(item)[0]!.sent).toEqual(["messages", { id: "m1" }, "content"]);
  expect(partEntries(item)[0]!.path).toEqual(["messages", 0, "content"]);
  expect(hasParts(item)).toBe(true);
});

test("messages of libraries and of mappings are recognised, and nothing else is", () => {
  expect(messageOf({ role: "user", content: [{ type: "text", text: "hi" }, { type: "image_url" }] })).toMatchObject({
    role: "human",
    text: "hi\n[image_url]",
  });
  expect(messageOf({ content: "no role" })).toBeNull();
  expect(messagesOf([{ role: "user", content: "a" }, 1])).toBeNull();
  expect(messagesOf([])).toBeNull();
});
