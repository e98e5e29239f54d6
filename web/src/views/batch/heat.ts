import type { CSSProperties } from "react";

/** Colours a cell between the worst (0) and the best (1); batch.css says how. */
export function heatStyle(quality: number | null): CSSProperties | undefined {
  return quality === null ? undefined : ({ "--quality": `${Math.round(quality * 100)}%` } as CSSProperties);
}
