import { expect, test } from "vitest";
import { commandOf, filtersOf } from "../src/views/audit/filters";

const commandFor = (search: string) => commandOf(filtersOf(new URLSearchParams(search)));

test("the command of the audit trail lists what the page lists", () => {
  expect(commandFor("")).toBe("wtb audit ls");
  expect(commandFor("by=ann&type=rollback, run.x&severity=warning&run=a b&only=everything")).toBe(
    "wtb audit ls --by ann --type rollback --type run.x --severity warning --run 'a b' --everything",
  );
  expect(commandFor("since=2026-11-18T09:30")).toBe(
    `wtb audit ls --since ${new Date("2026-11-18T09:30").toISOString()}`,
  );
});
