import { expect, test } from "vitest";
import { address } from "../src/api/client";
import { quoted } from "../src/parts/command";
import { toDiff, toRun } from "../src/parts/links";
import { titleOf } from "../src/parts/place";

test("names in addresses are encoded, and repeated filters are repeated", () => {
  expect(
    address(["executions", "a/b #1", "state"], { at: "write#2", status: ["failed", "paused"], cursor: null }),
  ).toBe("/api/v1/executions/a%2Fb%20%231/state?at=write%232&status=failed&status=paused");
  expect(toRun("a/b", "calls")).toBe("/runs/a%2Fb?view=calls");
  expect(toDiff("r", 1, "write#2", "other")).toBe("/runs/r/diff?from=1&to=write%232&run=other");
});

test("words of commands are quoted as a shell needs them", () => {
  expect([quoted("nightly"), quoted("two words"), quoted("it's")]).toEqual(["nightly", "'two words'", "'it'\\''s'"]);
});

test("a tab is called after what it shows", () => {
  expect(["/runs", "/runs/a%2Fb", "/runs/a/diff", "/runs/a/checkpoints/write%232"].map(titleOf)).toEqual([
    "Runs · WTB",
    "Run a/b · WTB",
    "Differences · Run a · WTB",
    "Checkpoint write#2 · Run a · WTB",
  ]);
  expect(["/batches/new", "/batches/qa/cases/c%2F1", "/audit", "/", "/x/%"].map(titleOf)).toEqual([
    "New batch · WTB",
    "Case c/1 · Batch qa · WTB",
    "Audit · WTB",
    "WTB",
    "WTB",
  ]);
});
