import { expect, test } from "vitest";
import type { LiveEvent, RunRow } from "../src/api/types";
import { joined } from "../src/parts/pages";
import { commandOf, filtersOf, isFiltered, queryOf, searchOf } from "../src/views/runs/filters";
import { foundIn, inserted, patched } from "../src/views/runs/patches";

const row = (id: string, more: Partial<RunRow> = {}): RunRow =>
  ({ id, status: "running", created_at: `2026-01-01T00:00:0${id}Z`, error: null, waits_for: null, ...more }) as RunRow;
const event = (stream: string, type: string, data: Record<string, unknown> = {}): LiveEvent =>
  ({ stream, type, data, at: "2026-01-02T00:00:00Z" }) as unknown as LiveEvent;

test("filters survive the way into the address and back, and unknown ones are left out", () => {
  const search = new URLSearchParams("status=failed&status=nonsense&workflow=a b&since=7d&health=gone&batch=all");
  const filters = filtersOf(search);
  expect(filtersOf(searchOf(filters))).toEqual(filters);
  expect(filters.statuses).toEqual(["failed"]);
  expect(commandOf(filters)).toBe("wtb ls --status failed --workflow 'a b' --since 7d --health gone --batch all");
  const whose = filtersOf(new URLSearchParams("by=ann lee&prefix=7f&health=waiting"));
  expect(commandOf(whose)).toBe("wtb ls --by 'ann lee' --prefix 7f --health waiting");
  expect(isFiltered(filtersOf(new URLSearchParams("")))).toBe(false);
});

test("runs of batches are left out unless they are asked for", () => {
  const now = new Date("2026-01-02T00:00:00Z");
  expect(queryOf(filtersOf(new URLSearchParams("")), now)["batch"]).toBe("none");
  expect(queryOf(filtersOf(new URLSearchParams("batch=all")), now)["batch"]).toBeNull();
  expect(queryOf(filtersOf(new URLSearchParams("batch=qa&since=24h")), now)).toMatchObject({
    batch: "qa",
    since: "2026-01-01T00:00:00.000Z",
  });
});

test("events patch the rows that they concern, and leave the others as they are", () => {
  const rows = [row("2"), row("1")];
  const after = patched(rows, [event("1", "execution.failed", { error: "E: no" })], []);
  expect(after.rows[0]).toBe(rows[0]);
  expect(after.rows[1]).toMatchObject({ status: "failed", error: "E: no", updated_at: "2026-01-02T00:00:00Z" });
  expect(after.toRead).toEqual([]);
});

test("a new run is read, a deleted one goes, and one that does not fit any more goes as well", () => {
  const rows = [row("2"), row("1")];
  const events = [event("3", "execution.created"), event("2", "execution.deleted"), event("1", "execution.completed")];
  const after = patched(rows, events, ["running"]);
  expect([after.rows, after.toRead]).toEqual([[], ["3"]]);
});

test("events of steps change nothing, however many there are", () => {
  const rows = [row("1")];
  const after = patched(
    rows,
    Array.from({ length: 500 }, () => event("1", "node.completed")),
    [],
  );
  expect(after.rows).toBe(rows);
  expect(after.toRead).toEqual([]);
});

test("a run that was read takes its place by its age, unless it lies beyond what has been read", () => {
  const rows = [row("5"), row("3")];
  expect(inserted(rows, [row("4"), row("1")], [], false).map(({ id }) => id)).toEqual(["5", "4", "3"]);
  expect(inserted(rows, [row("1")], ["5"], true).map(({ id }) => id)).toEqual(["3", "1"]);
});

test("a first page that is read again is joined with what has been read before", () => {
  const idOf = (item: string) => item;
  const known = { items: ["c", "b", "a"], next: null };
  expect(joined(known, { items: ["d", "c"], next: "x" }, idOf)).toEqual({ items: ["d", "c", "b", "a"], next: null });
  expect(joined(known, { items: ["z", "y"], next: "x" }, idOf)).toEqual({ items: ["z", "y"], next: "x" });
});

test("a run behind newer ones whose ids begin alike is not taken for gone", () => {
  const [demo, newer] = [row("1"), row("12")];
  expect(foundIn(["1"], [{ items: [newer, demo], next: null }])).toEqual({ found: [demo], gone: [] });
  expect(foundIn(["1"], [{ items: [newer], next: null }])).toEqual({ found: [], gone: ["1"] });
  expect(foundIn(["1"], [{ items: [newer], next: "more" }])).toBeNull();
});
