import { expect, test } from "vitest";
import type { Model, Run } from "../src/api/types";
import { rowsOf } from "../src/views/run/branches/rows";
import { chosen, toggled } from "../src/views/run/choice";
import { commandOf, type Part } from "../src/views/run/commands";
import { visitText, type Checkpoint } from "../src/views/checkpoint/labels";
import { eventText } from "../src/views/run/event-text";
import { layered, loopOf } from "../src/views/run/graph/layered";
import { aggregated, derived, expanded, withRunning, type Graph } from "../src/views/run/graph/model";
import { withNew } from "../src/views/run/output";
import { blocksOf, instant, piecesOf, type StepBlock, type Visit } from "../src/views/run/timeline/blocks";
import { stripOf } from "../src/views/run/timeline/scale";

const at = (ms: number) => new Date(Date.UTC(2026, 0, 1) + ms).toISOString();
const visit = (node: string, nth: number, step: number | null, from: number, to: number | null, more = {}): Visit => ({
  node,
  visit: nth,
  run: "r",
  status: to === null ? "started" : "completed",
  attempts: 1,
  step,
  started_at: at(from),
  ended_at: to === null ? null : at(to),
  busy_ms: 1,
  is_shared: false,
  parallel: false,
  tool_calls: 0,
  error: null,
  waits: [],
  ...more,
});
const now = Date.parse(at(10_000));

test("parallel visits are lanes of one step, and pauses stand between the steps", () => {
  const visits = [visit("b", 1, 2, 500, 900), visit("a", 1, 1, 0, 100), visit("c", 1, 2, 510, 700)];
  const pauses = [{ reason: "breakpoint", started_at: at(200), ended_at: at(400) }];
  const blocks = blocksOf(visits, pauses, true, now);
  expect(
    blocks.map((block) => (block.kind === "step" ? block.visits.map((each) => each.node) : block.wait.reason)),
  ).toEqual([["a"], "breakpoint", ["b", "c"]]);
});

test("a question is a piece of its visit's bar of one width, however long it lasted", () => {
  const waits = [{ reason: "question", started_at: at(10), ended_at: at(9_000) }];
  const [block] = blocksOf([visit("a", 1, 1, 0, 9_010, { waits })], [{ ...waits[0]!, reason: "question" }], true, now);
  expect((block as StepBlock).lengthMs).toBeCloseTo(20);
  const pieces = piecesOf((block as StepBlock).visits[0]!, block as StepBlock, 20, now);
  expect(pieces.map((piece) => piece.kind)).toEqual(["work", "wait", "work"]);
});

test("microseconds of times count", () => {
  expect(instant("2026-01-01T00:00:00.000250Z") - instant("2026-01-01T00:00:00Z")).toBeCloseTo(0.25);
});

test("ten thousand visits become no more marks than there are pixels", () => {
  const visits = Array.from({ length: 10_000 }, (_, nth) => visit("a", nth + 1, nth + 1, nth, nth + 1));
  const strip = stripOf(blocksOf(visits, [], true, now), 1200, now);
  expect(strip.marks.length).toBeLessThanOrEqual(1201);
});

const graph: Graph = {
  nodes: ["a", "b", "c"].map((name) => ({ name, is_start: name === "a", variants: [], environment: null })),
  edges: [
    { sources: ["a"], target: "b", condition: "x", otherwise: false, priority: 0 },
    { sources: ["a", "b"], target: "c", condition: null, otherwise: false, priority: 0 },
    { sources: ["c"], target: "__end__", condition: null, otherwise: true, priority: 0 },
  ],
};
const paused = { status: "paused", current_nodes: ["c"] } as unknown as Run;

test("a node shows its last visit, how often it was visited, and which one comes next", () => {
  const usage = [{ node: "a", visits: 2 }] as Model<"NodeUsageAnswer">[];
  const drawing = aggregated(graph, usage, [visit("b", 1, null, 0, null)], paused);
  expect(drawing.shapes.map(({ id, tone, text }) => [id, tone, text])).toEqual([
    ["a", "good", "done, 2 visits"],
    ["b", "waiting", "waits"],
    ["c", "next", "next"],
    ["__end__", "none", ""],
  ]);
  expect(drawing.links.map(({ source, target, label, isJoin }) => [source, target, label, isJoin])).toEqual([
    ["a", "b", "x", false],
    ["a", "c", "", true],
    ["b", "c", "", true],
    ["c", "__end__", "otherwise", false],
  ]);
});

test("a node in which a live run is now runs, unless it has ended before those beside it", () => {
  const visits = [visit("a", 1, 1, 0, 1), visit("b", 1, null, 1, 2)];
  const live = { id: "r", status: "running", neglect: null, current_nodes: ["b", "a"] } as unknown as Run;
  const drawn = (run: Run) => aggregated(graph, [], withRunning(visits, [], run), run).shapes.map(({ text }) => text);
  expect(drawn(live)).toEqual(["runs, 2 visits", "done", "", ""]);
  expect(drawn({ ...live, neglect: "gone" })).toEqual(["done", "done", "", ""]);
  expect(expanded(graph, withRunning(visits, [], live), live).shapes.map(({ id }) => id)).toEqual([
    "a#1",
    "b#1",
    "a#2",
  ]);
});

test("visits are linked step by step, and a graph can be derived from them", () => {
  const visits = [visit("a", 1, 1, 0, 1), visit("b", 1, 2, 1, 2), visit("a", 2, 3, 2, 3)];
  expect(expanded(graph, visits, paused).links.map(({ id }) => id)).toEqual(["a#1 b#1", "b#1 a#2"]);
  expect(derived([], visits).edges.map(({ sources, target }) => [sources[0], target])).toEqual([
    ["a", "b"],
    ["b", "a"],
  ]);
});

test("the simple layout places every node, also on circles", () => {
  const boxes = ["a", "b", "c"].map((id) => ({ id, width: 10, height: 10 }));
  const links = [
    { id: "1", source: "a", target: "b", label: "" },
    { id: "2", source: "b", target: "a", label: "" },
  ];
  const { places } = layered({ boxes, links, direction: "TB" });
  expect(Object.keys(places).sort()).toEqual(["a", "b", "c"]);
  expect(new Set(Object.values(places).map((place) => `${place.x} ${place.y}`)).size).toBe(3);
});

const step = (number: number, more = {}): Model<"TreeStepAnswer"> => ({
  checkpoint: `c${number}`,
  step: number,
  kind: "auto",
  folded: 1,
  visits: [],
  name: null,
  heads: [],
  is_active: false,
  lines: [],
  forks: [],
  ...more,
});

test("lines leave their step in a column of their own, and the safety copy ends the line that was left", () => {
  const left = { abandoned: true, steps: [step(2)], safety_copy: "s" };
  const rows = rowsOf([
    {
      abandoned: false,
      steps: [step(0), step(1, { lines: [left], forks: ["other"] }), step(5, { heads: ["main"], is_active: true })],
      safety_copy: null,
    },
  ]);
  expect(rows.map(({ kind, column, isLeft, enters }) => [kind, column, isLeft, enters])).toEqual([
    ["step", 0, false, false],
    ["step", 0, false, false],
    ["step", 1, true, true],
    ["safety", 1, true, false],
    ["fork", 1, false, true],
    ["step", 0, false, false],
  ]);
  expect(rows[3]!.rails).toEqual([{ column: 0, top: true, bottom: true, isLeft: false }]);
  expect(rows.map(({ below }) => below)).toEqual([true, true, true, false, false, false]);
});

test("at most two checkpoints are chosen", () => {
  expect(toggled(toggled(chosen("a,b"), "c"), "b")).toEqual(["c"]);
});

test("a checkpoint of nodes beside each other is called by their names, at most four of them", () => {
  const at = { node: null, visit: null, step: 2, trigger: "node_end" } as Checkpoint;
  expect(visitText({ ...at, description: "search, history" })).toBe("search, history");
  expect(visitText({ ...at, description: "a, b, c, d, e" })).toBe("a, b, c and 2 more");
  expect(visitText({ ...at, description: "" })).toBe("the end of step 2");
});

test("lines that came through the feed are added once", () => {
  const lines = [{ sequence: 4, type: "node.logged", at: "", data: {} }];
  const events = [3, 4, 5, 6].map((sequence) => ({ sequence, type: "node.logged", at: "", data: {} })) as never[];
  expect(withNew(lines, events).map((line) => line.sequence)).toEqual([6, 5, 4]);
});

test("an event is told by its node and what happened, without ids", () => {
  expect(eventText({ by: "ann", checkpoint: "0198", node: "write", visit: 2, error: "E: no" })).toBe(
    "write#2 · E: no · by: ann",
  );
  expect(eventText({ by: "ann", error: null, reason: "" })).toBe("by: ann");
  expect(eventText({ node: "write", step: 5 })).toBe("write · step: 5"); // no visit is told, so none is claimed
  const calls = ["order:cea907af0fdb5788fb7d1e039d1b6045#1", "pay:cea907af0fdb5788fb7d1e039d1b6045#2"];
  expect(eventText({ calls, nodes: ["a#1"] })).toBe("calls: order#1, pay#2 · nodes: a#1");
});

test("an edge from a node to itself is at the bottom of its box, or beside it where the next nodes are below", () => {
  const [box, place] = [
    { id: "draft", width: 100, height: 40 },
    { x: 200, y: 10 },
  ];
  const [below, beside] = (["LR", "TB"] as const).map((direction) => loopOf(box, place, direction, "n < 2"));
  expect([below?.points[0], below?.points.at(-1), below?.label]).toEqual([
    { x: 275, y: 50 },
    { x: 225, y: 50 },
    { x: 250, y: 80 },
  ]);
  expect([beside?.points[0], beside?.points.at(-1)]).toEqual([
    { x: 300, y: 40 },
    { x: 300, y: 20 },
  ]);
  expect(beside?.label).toEqual({ x: 302.5, y: 62 }); // below the box, beside what leaves its middle
});

test("the command of a part has the choices of its view", () => {
  const of = (part: Part, search = "") => commandOf(part, "a b", new URLSearchParams(search));
  expect(of("checkpoints")).toBe("wtb history 'a b'");
  expect(of("checkpoints", "every=true")).toBe("wtb history 'a b' --all");
  expect(of("events", "noun=tool&severity=error")).toBe("wtb show 'a b' --events --type tool --severity error");
  expect(of("output")).toBe("wtb show 'a b' --events --type node.logged --type node.emitted");
  expect(of("output", "type=node.emitted")).toBe("wtb show 'a b' --events --type node.emitted");
});
