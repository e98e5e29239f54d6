/** What is drawn: the nodes of a workflow with what a run did in them, or each visit as a node of its own. */
import type { Model, Run } from "../../../api/types";
import type { Visit } from "../timeline/blocks";

export type Graph = Pick<Model<"GraphAnswer">, "nodes" | "edges">;
export type NodeUsage = Model<"NodeUsageAnswer">;
export type Tone = "none" | "busy" | "waiting" | "good" | "bad" | "idle" | "next";

export interface Shape {
  id: string;
  /** The node of the workflow; empty for the end. */
  node: string;
  title: string;
  text: string;
  tone: Tone;
  visits: number;
}

export interface Link {
  id: string;
  source: string;
  target: string;
  label: string;
  /** Whether the target waits for several nodes. */
  isJoin: boolean;
}

export interface Drawing {
  shapes: readonly Shape[];
  links: readonly Link[];
}

export const END = "__end__";

/**
 * Put the nodes that run now behind the visits. The server tells of a visit when it ends or calls a tool; until then,
 * a live run is known to be in the nodes that come after its last checkpoint, except those that have ended before others.
 */
export function withRunning(visits: readonly Visit[], usage: readonly NodeUsage[], run: Run): readonly Visit[] {
  if (run.status !== "running" || run.neglect !== null) return visits;
  const told = new Set(visits.filter((visit) => visit.step === null).map((visit) => visit.node));
  const before = (node: string) => [
    ...visits.filter((visit) => visit.node === node).map((visit) => visit.visit),
    ...usage.filter((each) => each.node === node).map((each) => each.visits),
  ];
  const running = run.current_nodes
    .filter((node) => !told.has(node))
    .map((node): Visit => ({ ...BEGUN, node, run: run.id, visit: Math.max(0, ...before(node)) + 1 }));
  return [...visits, ...running];
}

const BEGUN: Omit<Visit, "node" | "run" | "visit"> = {
  status: "started",
  attempts: 1,
  step: null,
  started_at: "",
  ended_at: null,
  busy_ms: 0,
  is_shared: false,
  parallel: false,
  tool_calls: 0,
  error: null,
  waits: [],
};

/** Each node once, with its last visit and how often it was visited. */
export function aggregated(graph: Graph, usage: readonly NodeUsage[], visits: readonly Visit[], run?: Run): Drawing {
  const used = new Map(usage.map((each) => [each.node, each]));
  const last = new Map(visits.map((visit) => [visit.node, visit]));
  const shapes = graph.nodes.map((node): Shape => {
    const visit = last.get(node.name);
    const count = Math.max(used.get(node.name)?.visits ?? 0, visit?.visit ?? 0);
    const tone = visit === undefined ? (count > 0 ? "good" : toneOfIdle(node.name, run)) : toneOf(visit, run);
    return { id: node.name, node: node.name, title: node.name, text: textOf(tone, count), tone, visits: count };
  });
  const hasEnd = graph.edges.some((edge) => edge.target === END);
  const end: Shape = {
    id: END,
    node: "",
    title: "end",
    text: "",
    tone: run?.status === "completed" ? "good" : "none",
    visits: 0,
  };
  return { shapes: hasEnd ? [...shapes, end] : shapes, links: graph.edges.flatMap(linksOf) };
}

function linksOf(edge: Graph["edges"][number], at: number): Link[] {
  const isJoin = edge.sources.length > 1;
  const label = edge.otherwise ? "otherwise" : (edge.condition ?? "");
  return edge.sources.map((source) => ({ id: `${at} ${source}`, source, target: edge.target, label, isJoin }));
}

/** Each visit as a node: those of a step after those of the step before, along the edges of the workflow. */
export function expanded(graph: Graph, visits: readonly Visit[], run: Run): Drawing {
  const shapes = visits.map((visit): Shape => {
    const tone = toneOf(visit, run);
    return {
      id: idOf(visit),
      node: visit.node,
      title: `${visit.node}#${visit.visit}`,
      text: textOf(tone, 0),
      tone,
      visits: 1,
    };
  });
  return { shapes, links: linksBetween(stepsOf(visits), graph) };
}

/** A graph from what a run did, for workflows whose definition cannot be read. */
export function derived(usage: readonly NodeUsage[], visits: readonly Visit[]): Graph {
  const names = [...new Set([...usage.map((each) => each.node), ...visits.map((visit) => visit.node)])];
  const found = linksBetween(stepsOf(visits), { nodes: [], edges: [] });
  const pairs = new Set(found.map((link) => JSON.stringify([nodeOf(link.source), nodeOf(link.target)])));
  const edges = [...pairs].map((pair) => {
    const [source, target] = JSON.parse(pair) as [string, string];
    return { sources: [source], target, condition: null, otherwise: false, priority: 0 };
  });
  const first = visits[0]?.node;
  return { nodes: names.map((name) => ({ name, is_start: name === first, variants: [], environment: null })), edges };
}

const idOf = (visit: Visit) => `${visit.node}#${visit.visit}`;
const nodeOf = (id: string) => id.slice(0, id.lastIndexOf("#"));

function stepsOf(visits: readonly Visit[]): readonly (readonly Visit[])[] {
  const steps = new Map<number, Visit[]>();
  for (const visit of visits) {
    const step = visit.step ?? Infinity;
    steps.set(step, [...(steps.get(step) ?? []), visit]);
  }
  return [...steps].sort(([a], [b]) => a - b).map(([, group]) => group);
}

function linksBetween(steps: readonly (readonly Visit[])[], graph: Graph): readonly Link[] {
  const known = new Set(
    graph.edges.flatMap((edge) => edge.sources.map((source) => JSON.stringify([source, edge.target]))),
  );
  const isKnown = (from: Visit, to: Visit) => known.has(JSON.stringify([from.node, to.node]));
  return steps.slice(1).flatMap((step, at) => {
    const before = steps[at] ?? [];
    return step.flatMap((visit) => {
      const along = before.filter((each) => isKnown(each, visit));
      const sources = along.length > 0 ? along : before;
      return sources.map((from) => ({
        id: `${idOf(from)} ${idOf(visit)}`,
        source: idOf(from),
        target: idOf(visit),
        label: "",
        isJoin: sources.length > 1,
      }));
    });
  });
}

function toneOf(visit: Visit, run: Run | undefined): Tone {
  if (visit.status === "completed") return "good";
  if (visit.status === "failed") return "bad";
  if (visit.status === "skipped") return "idle";
  return run?.status === "running" ? "busy" : run?.status === "paused" ? "waiting" : "idle";
}

function toneOfIdle(node: string, run: Run | undefined): Tone {
  return run !== undefined && run.status !== "completed" && run.current_nodes.includes(node) ? "next" : "none";
}

function textOf(tone: Tone, visits: number): string {
  const words: Record<Tone, string> = {
    none: "",
    busy: "runs",
    waiting: "waits",
    good: "done",
    bad: "failed",
    idle: "not finished",
    next: "next",
  };
  return [words[tone], visits > 1 ? `${visits.toLocaleString("en")} visits` : ""]
    .filter((word) => word !== "")
    .join(", ");
}
