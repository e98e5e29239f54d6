/** The whole run on one axis: time in which it worked is drawn to scale, waiting is cut to a gap of fixed width. */
import { instant, lengthOf, worked, type Block, type Visit } from "./blocks";

export interface Mark {
  kind: "visit" | "pause";
  lane: number;
  left: number;
  width: number;
  tone: Visit["status"] | "shared" | "pause";
  title: string;
}

export interface Strip {
  lanes: number;
  marks: readonly Mark[];
}

const GAP = 14;

/** Lay the blocks out over a width, in the order of time. Marks that would share a pixel are merged. */
export function stripOf(blocks: readonly Block[], width: number, nowMs: number): Strip {
  const pauses = blocks.filter((block) => block.kind === "pause").length;
  const gap = Math.min(GAP, (0.3 * width) / Math.max(1, pauses));
  const busyMs = blocks.reduce((sum, block) => sum + (block.kind === "step" ? block.lengthMs : 0), 0);
  const scale = (width - pauses * gap) / Math.max(0.001, busyMs);
  const marks: Mark[] = [];
  let left = 0;
  let lanes = 1;
  for (const block of blocks) {
    if (block.kind === "pause") {
      marks.push({ kind: "pause", lane: 0, left, width: gap, tone: "pause", title: pauseTitle(block, nowMs) });
      left += gap;
      continue;
    }
    lanes = Math.max(lanes, block.visits.length);
    block.visits.forEach((visit, lane) => {
      const begin = left + (instant(visit.started_at) - block.startedMs) * scale;
      add(marks, {
        kind: "visit",
        lane,
        left: begin,
        width: Math.max(1, worked(visit, nowMs) * scale),
        tone: visit.is_shared ? "shared" : visit.status,
        title: `${visit.node}#${visit.visit}`,
      });
    });
    left += block.lengthMs * scale;
  }
  return { lanes, marks };
}

/** Add a mark; one that begins and ends within the pixel of the mark before it in its lane is left out. */
function add(marks: Mark[], mark: Mark): void {
  const before = marks.findLast((each) => each.lane === mark.lane);
  const isHidden =
    before !== undefined &&
    before.tone === mark.tone &&
    Math.floor(before.left) === Math.floor(mark.left) &&
    mark.width <= Math.max(1, before.width);
  if (!isHidden) marks.push(mark);
}

function pauseTitle(block: Extract<Block, { kind: "pause" }>, nowMs: number): string {
  return `${block.wait.reason}: ${Math.round(lengthOf(block.wait, nowMs) / 1000)} s`;
}
