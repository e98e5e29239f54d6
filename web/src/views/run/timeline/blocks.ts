/** The timeline as blocks: a step with the nodes that ran beside each other, or a time in which the run waited. */
import type { Model } from "../../../api/types";

export type Visit = Model<"VisitAnswer">;
export type Wait = Model<"WaitAnswer">;

export interface StepBlock {
  kind: "step";
  key: string;
  step: number | null;
  visits: readonly Visit[];
  startedMs: number;
  /** How long it took without waiting for people. */
  lengthMs: number;
}

export interface PauseBlock {
  kind: "pause";
  key: string;
  wait: Wait;
  startedMs: number;
}

export type Block = StepBlock | PauseBlock;

/** A piece of a bar in percent of the widest one: work, or a wait of any length, which has a fixed width. */
export interface Piece {
  kind: "work" | "wait";
  left: number;
  width: number;
}

/** The share of the width that a wait takes, however long it lasted. */
const WAIT_SHARE = 6;
const SMALLEST = 0.6;

export function visitKey(visit: Visit): string {
  return `${visit.run} ${visit.node}#${visit.visit} ${visit.started_at}`;
}

/** Return the blocks in the order of time. A pause that ended before the first visit that was read is left out. */
export function blocksOf(
  visits: readonly Visit[],
  pauses: readonly Wait[],
  isWhole: boolean,
  nowMs: number,
): readonly Block[] {
  const groups = new Map<string, Visit[]>();
  for (const visit of visits) {
    const key = visit.step === null ? "open" : `step ${visit.step}`;
    groups.set(key, [...(groups.get(key) ?? []), visit]);
  }
  const steps = [...groups]
    .map(([key, group]) => stepBlock(key, group, nowMs))
    .sort((a, b) => (a.step ?? Infinity) - (b.step ?? Infinity));
  const first = isWhole ? -Infinity : Math.min(...steps.map((block) => block.startedMs));
  const waits = pauses
    .filter((wait) => instant(wait.started_at) >= first && !isAsked(wait, visits))
    .map((wait): PauseBlock => ({
      kind: "pause",
      key: `pause ${wait.started_at}`,
      wait,
      startedMs: instant(wait.started_at),
    }))
    .sort((a, b) => a.startedMs - b.startedMs);
  return merged(steps, waits);
}

/** Put the pauses between the steps, whose own order stays: a step may begin before the one before it has ended. */
function merged(steps: readonly StepBlock[], pauses: readonly PauseBlock[]): readonly Block[] {
  const blocks: Block[] = [];
  let at = 0;
  for (const step of steps) {
    for (let pause = pauses[at]; pause !== undefined && pause.startedMs <= step.startedMs; pause = pauses[++at])
      blocks.push(pause);
    blocks.push(step);
  }
  return [...blocks, ...pauses.slice(at)];
}

/** The milliseconds of a time; `Date.parse` would drop the digits of microseconds. */
export function instant(text: string): number {
  const digits = /\.\d{3}(\d{1,3})/.exec(text)?.[1];
  return Date.parse(text) + (digits === undefined ? 0 : Number(digits) / 10 ** digits.length);
}

/** Whether a pause is the question of a visit, which is shown in its bar. */
function isAsked(pause: Wait, visits: readonly Visit[]): boolean {
  if (pause.reason !== "question") return false;
  const at = instant(pause.started_at);
  return visits.some((visit) => visit.waits.some((wait) => Math.abs(instant(wait.started_at) - at) < 60_000));
}

function stepBlock(key: string, group: readonly Visit[], nowMs: number): StepBlock {
  const visits = [...group].sort((a, b) => instant(a.started_at) - instant(b.started_at));
  const startedMs = instant(visits[0]!.started_at);
  const ends = visits.map((visit) => instant(visit.started_at) - startedMs + worked(visit, nowMs));
  return { kind: "step", key, step: visits[0]!.step, visits, startedMs, lengthMs: Math.max(...ends) };
}

/** How many milliseconds a visit took without its waits. */
export function worked(visit: Visit, nowMs: number): number {
  const end = visit.ended_at === null ? nowMs : instant(visit.ended_at);
  const waited = visit.waits.reduce((sum, wait) => sum + lengthOf(wait, end), 0);
  return Math.max(0, end - instant(visit.started_at) - waited);
}

export function lengthOf(wait: Wait, nowMs: number): number {
  return Math.max(0, (wait.ended_at === null ? nowMs : instant(wait.ended_at)) - instant(wait.started_at));
}

/** Return the bar of a visit on the scale of the longest step. */
export function piecesOf(visit: Visit, block: StepBlock, longestMs: number, nowMs: number): readonly Piece[] {
  const scale = (100 - WAIT_SHARE * Math.min(visit.waits.length, 4)) / Math.max(longestMs, 0.001);
  let left = (instant(visit.started_at) - block.startedMs) * scale;
  let at = instant(visit.started_at);
  const pieces: Piece[] = [];
  const add = (kind: Piece["kind"], width: number) => {
    pieces.push({ kind, left: Math.min(left, 100 - SMALLEST), width });
    left += width;
  };
  for (const wait of visit.waits.slice(0, 4)) {
    add("work", Math.max(SMALLEST, (instant(wait.started_at) - at) * scale));
    add("wait", WAIT_SHARE);
    at = wait.ended_at === null ? Infinity : instant(wait.ended_at);
  }
  const end = visit.ended_at === null ? nowMs : instant(visit.ended_at);
  if (at !== Infinity) add("work", Math.max(SMALLEST, (end - at) * scale));
  return pieces;
}
