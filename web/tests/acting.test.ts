import { expect, test } from "vitest";
import { consequencesOf } from "../src/views/run/actions/consequences";
import {
  bodyOf,
  editAbove,
  lockOf,
  optionsOf,
  readTyped,
  typedText,
  typeOf,
  withEdit,
  withoutEdit,
} from "../src/views/run/actions/edits";
import { offersOf } from "../src/views/run/actions/offers";
import { answerOf, fieldOf, startOf } from "../src/views/run/actions/schema-form";
import { linesOf } from "../src/views/checkpoint/diff/unified";
import { wordDiff } from "../src/views/checkpoint/diff/words";

const edit = (path: (string | number)[], value: unknown) => ({ path, sent: path, value, before: null });

test("only changed paths are sent, and an edit replaces those of its parts", () => {
  let edits = withEdit([], edit(["docs", 0, "title"], "a"));
  edits = withEdit(edits, edit(["n"], undefined));
  expect(bodyOf(edits)).toEqual({ set: [{ path: ["docs", 0, "title"], value: "a" }], delete: [["n"]] });
  expect(editAbove(withEdit([], edit(["docs"], [])), ["docs", 0])?.path).toEqual(["docs"]);
  edits = withEdit(edits, edit(["docs"], []));
  expect(edits.map((each) => each.path)).toEqual([["n"], ["docs"]]);
  expect(bodyOf(withoutEdit(withoutEdit(edits, ["n"]), ["docs"]))).toBeUndefined();
  expect(optionsOf([edit(["k"], "it's")])).toBe(` --set 'k="it'\\''s"'`);
  expect(optionsOf([edit(["k", "deep"], 1)])).toBeNull();
});

test("what is typed is read by its type, and long integers stay exact", () => {
  expect(readTyped("number", "12345678901234567890")).toEqual({
    value: { $type: "int", value: "12345678901234567890" },
  });
  expect(readTyped("number", "0.5")).toEqual({ value: 0.5 });
  expect(readTyped("number", "")).toHaveProperty("fault");
  expect(readTyped("json", "[1,")).toHaveProperty("fault");
  expect(readTyped("text", "12")).toEqual({ value: "12" });
  const price = { $type: "decimal", value: "1.10" };
  expect([typeOf(price), typedText("decimal", price), readTyped("decimal", "2.20")]).toEqual([
    "decimal",
    "1.10",
    { value: { $type: "decimal", value: "2.20" } },
  ]);
  expect(lockOf({ $type: "masked", value: "***" })).not.toBeNull();
  expect(lockOf("x")).toBeNull();
});

test("a schema becomes a form, and the form an answer or its faults", () => {
  const field = fieldOf({
    type: "object",
    required: ["verdict", "score"],
    properties: {
      note: { type: "string" },
      score: { type: "integer", minimum: 1, maximum: 5 },
      verdict: { enum: ["accept", "reject"] },
    },
  });
  expect(answerOf(field, startOf(field))).toEqual({ faults: ["Choose verdict.", "Write a number for score."] });
  expect(answerOf(field, { verdict: 1, score: "9", note: "" })).toEqual({ faults: ["score is at most 5."] });
  expect(answerOf(field, { verdict: 1, score: "4", note: "" })).toEqual({ value: { verdict: "reject", score: 4 } });
  expect(fieldOf(["yes", "no"])).toEqual({ kind: "choice", options: ["yes", "no"] });
  expect(fieldOf({ type: "array", items: { enum: [1, 2] } })).toEqual({ kind: "choices", options: [1, 2] });
  expect(fieldOf({ type: "object", $ref: "#/x", properties: {} })).toEqual({ kind: "json" });
  expect(answerOf({ kind: "bool" }, false)).toEqual({ value: false });
});

test("every tool whose calls stay in effect is a consequence of its own", () => {
  const call = (tool: string) => ({ tool, call: tool, status: "succeeded", at: "2026-01-01T00:00:00Z" });
  const plan = {
    target: { checkpoint: "c", step: 1, node: "plan" },
    nodes: ["a#1"],
    checkpoints: 1,
    reverse: [],
    irreversible: [call("publish"), call("publish"), call("pay")],
    kept: [call("send")],
    files: { put: [], removed: [] },
  };
  expect(consequencesOf(plan, { tools: true, files: true, shared: "keep" }).map((each) => each.key)).toEqual([
    "stays publish",
    "stays pay",
    "kept",
  ]);
});

test("what is offered follows the status", () => {
  const run = { status: "paused", neglect: null, waits_for: null, rollback: null } as const;
  expect(offersOf(run)[0]).toBe("resume");
  expect(offersOf({ ...run, waits_for: "question" })).not.toContain("resume");
  expect(offersOf({ ...run, waits_for: "moved" })).toContain("redo");
  expect(offersOf({ ...run, status: "running" })).toEqual(["pause", "stop", "fork"]);
  expect(offersOf({ ...run, status: "running", neglect: "gone" })).toContain("resume");
  expect(offersOf({ ...run, status: "rolling_back" })).toEqual(["fork"]);
});

test("changed words are found, and lines of files keep their numbers", () => {
  const { old, now } = wordDiff("a long draft about bees", "a short draft about bees");
  expect(old.filter((piece) => piece.isChanged)).toEqual([{ text: "long", isChanged: true }]);
  expect(now.map((piece) => piece.text).join("")).toBe("a short draft about bees");
  expect(wordDiff("", "x").now).toEqual([{ text: "x", isChanged: true }]);
  expect(linesOf("--- a\n+++ b\n@@ -1,2 +1,2 @@\n same\n--- was\n+++ is")).toEqual([
    { kind: "place", text: "@@ -1,2 +1,2 @@", old: null, now: null },
    { kind: "same", text: "same", old: 1, now: 1 },
    { kind: "removed", text: "-- was", old: 2, now: null },
    { kind: "added", text: "++ is", old: null, now: 2 },
  ]);
});
