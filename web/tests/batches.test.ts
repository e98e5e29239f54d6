import { expect, test } from "vitest";
import { filtersOf, queryOf } from "../src/views/audit/filters";
import { chosenRows, countsOf, meanOf, repeatsOf, type GridRow } from "../src/views/batch/grid-data";
import { piecesOf } from "../src/views/batch/words";
import { casesOf, chosenOf, EMPTY, requestOf } from "../src/views/batches/request";

const row = (changes: Partial<GridRow>): GridRow => ({
  case: "c",
  tags: [],
  scores: [1, 0, null, null],
  failed: [],
  unscored: [],
  flaky: [],
  spread: 0,
  ...changes,
});

test("repeats are told apart, and a failed one has no score", () => {
  const found = repeatsOf(row({ failed: [2] }), 1, 2);
  expect(found.map((each) => each.kind)).toEqual(["failed", "missing"]);
  expect(meanOf(found)).toBeNull();
  expect(meanOf(repeatsOf(row({}), 0, 2))).toBe(0.5);
});

test("cases are filtered, and those that differ come widest first", () => {
  const rows = [row({ case: "a", spread: 0.1 }), row({ case: "b", spread: 1, failed: [0] }), row({ case: "c" })];
  expect(chosenRows(rows, { filter: "different", tag: "", find: "" }).map((each) => each.case)).toEqual(["b", "a"]);
  expect(countsOf(rows)).toEqual({ all: 3, different: 2, flaky: 0, failed: 1 });
});

test("only words that the other text lacks are marked", () => {
  expect(piecesOf("the reply is no", "the answer is no")).toEqual([
    { text: "the ", isNew: false },
    { text: "reply", isNew: true },
    { text: " is no", isNew: false },
  ]);
});

test("a form becomes a request, or a sentence that says what to mend", () => {
  expect(casesOf('{"question": 1}\n\n{"input": {}, "id": "x"}')).toEqual([
    { input: { question: 1 } },
    { input: {}, id: "x" },
  ]);
  expect(() => casesOf("{}\n[1]")).toThrow("Line 2");
  expect(chosenOf("a=b, c=d")).toEqual([{ a: "b", c: "d" }]);
  expect(() => chosenOf("nonsense")).toThrow("no combination");
  const form = { ...EMPTY, source: "inline" as const, workflow: "w", cases: "{}", usd: "-1" };
  expect(() => requestOf(form)).toThrow("dollars");
});

test("filters of the audit become a query", () => {
  const query = queryOf(filtersOf(new URLSearchParams("by=ann&type=token&only=errors")));
  expect(query).toMatchObject({ by: "ann", type: ["token"], errors: true });
});
