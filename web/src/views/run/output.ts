/** Lines of output: events of a run that were read, or that came through the feed. */
import type { LiveEvent } from "../../api/types";

export interface Line {
  sequence: number;
  type: string;
  at: string;
  data: Record<string, unknown>;
}

/** Whether an event is output; `type` narrows it. */
export function isOutput(event: { type: string }, type: string): boolean {
  return type === "" ? event.type === "node.logged" || event.type === "node.emitted" : event.type === type;
}

/** Put events before the lines, newest first; those that are known already are left out. */
export function withNew(lines: readonly Line[], events: readonly LiveEvent[]): readonly Line[] {
  const newest = lines[0]?.sequence ?? 0;
  const fresh = events.filter((event) => event.sequence > newest).sort((a, b) => b.sequence - a.sequence);
  return fresh.length === 0 ? lines : [...fresh, ...lines];
}
