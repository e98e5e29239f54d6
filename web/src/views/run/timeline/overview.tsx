import { useMemo } from "react";
import { stripOf } from "./scale";
import type { Block } from "./blocks";

const WIDTH = 1200;
const LANE = 14;
const MOST_LANES = 12;

/** All that has been read, at a glance: what ran beside what, and where the run waited. */
export function Overview({ blocks, nowMs }: { blocks: readonly Block[]; nowMs: number }) {
  const strip = useMemo(() => stripOf(blocks, WIDTH, nowMs), [blocks, nowMs]);
  const height = Math.min(strip.lanes, MOST_LANES) * LANE;
  return (
    <svg
      className="timeline-overview"
      viewBox={`0 0 ${WIDTH} ${height}`}
      preserveAspectRatio="none"
      height={height}
      role="img"
      aria-label="The run at a glance; the steps below say the same in words"
    >
      {strip.marks
        .filter((mark) => mark.lane < MOST_LANES)
        .map((mark, at) => (
          <rect
            key={at}
            className={`timeline-mark timeline-mark-${mark.tone}`}
            x={mark.left}
            y={mark.kind === "pause" ? 0 : mark.lane * LANE + 2}
            width={Math.max(1, mark.width - 0.5)}
            height={mark.kind === "pause" ? height : LANE - 4}
          >
            <title>{mark.title}</title>
          </rect>
        ))}
    </svg>
  );
}
