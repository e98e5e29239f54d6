/** What events change in the rows of runs, without reading the list again. */
import type { LiveEvent, RunList, RunRow, RunStatus } from "../../api/types";

const STATUS: Record<string, RunStatus> = {
  "execution.started": "running",
  "execution.resumed": "running",
  "execution.paused": "paused",
  "execution.completed": "completed",
  "execution.failed": "failed",
  "execution.cancelled": "cancelled",
  "rollback.started": "rolling_back",
};
/** After these a row holds more than the event tells: why a run waits, or where a rollback left it. */
const TO_READ = new Set(["execution.created", "execution.paused", "execution.abandoned", "rollback.completed"]);

export interface Patched {
  rows: readonly RunRow[];
  /** Runs that have to be read: new ones, and those of which an event does not tell everything. */
  toRead: readonly string[];
}

/** Apply events to rows. Rows that no event concerns stay the same objects, and so do rows without any change. */
export function patched(
  rows: readonly RunRow[],
  events: readonly LiveEvent[],
  statuses: readonly RunStatus[],
): Patched {
  const changed = new Map<string, RunRow | null>();
  const known = new Map(rows.map((row) => [row.id, row]));
  const toRead = new Set<string>();
  for (const event of events) {
    const row = changed.get(event.stream) ?? known.get(event.stream);
    const status = STATUS[event.type];
    if (event.type === "execution.deleted") changed.set(event.stream, null);
    else if (row === undefined) {
      if (event.type === "execution.created" || (status !== undefined && statuses.includes(status)))
        toRead.add(event.stream);
    } else if (status !== undefined) changed.set(event.stream, withStatus(row, status, event));
    if (row !== undefined && TO_READ.has(event.type)) toRead.add(event.stream);
  }
  if (changed.size === 0) return { rows, toRead: [...toRead] };
  const after = rows
    .map((row) => (changed.has(row.id) ? changed.get(row.id)! : row))
    .filter((row) => row !== null && (statuses.length === 0 || statuses.includes(row.status)));
  return { rows: after as RunRow[], toRead: [...toRead].filter((id) => changed.get(id) !== null) };
}

function withStatus(row: RunRow, status: RunStatus, event: LiveEvent): RunRow {
  return {
    ...row,
    status,
    neglect: null,
    updated_at: event.at,
    error: status === "failed" ? String(event.data["error"] ?? "") : null,
    waits_for: status === "paused" ? row.waits_for : null,
  };
}

/**
 * Tell which runs the answers hold, each read by the beginning of an id, and which do not fit any more. Null if a run
 * may stand further down than its answer goes, behind newer ones whose ids begin alike.
 */
export function foundIn(
  ids: readonly string[],
  answers: readonly Pick<RunList, "items" | "next">[],
): { found: readonly RunRow[]; gone: readonly string[] } | null {
  const rows = ids.map((id, at) => answers[at]?.items.find((row) => row.id === id));
  if (rows.some((row, at) => row === undefined && answers[at]?.next != null)) return null;
  return { found: rows.filter((row) => row !== undefined), gone: ids.filter((_, at) => rows[at] === undefined) };
}

/** Put rows that were read into the list, newest first; `gone` are those that were asked for and do not fit. */
export function inserted(
  rows: readonly RunRow[],
  read: readonly RunRow[],
  gone: readonly string[],
  isWhole: boolean,
): readonly RunRow[] {
  const left = new Set([...gone, ...read.map((row) => row.id)]);
  const kept = rows.filter((row) => !left.has(row.id));
  const oldest = kept.at(-1);
  const fitting = read.filter((row) => isWhole || oldest === undefined || isBefore(row, oldest));
  return [...kept, ...fitting].sort((a, b) => (isBefore(a, b) ? -1 : 1));
}

/** Whether a run stands before another one in the list: it is newer. */
function isBefore(a: RunRow, b: RunRow): boolean {
  return a.created_at === b.created_at ? a.id > b.id : a.created_at > b.created_at;
}
