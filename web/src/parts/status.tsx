import type { BatchStatus, Model, RunStatus } from "../api/types";

type NodeStatus = Model<"NodeStatus">;
type Known = RunStatus | BatchStatus | NodeStatus;

const TONES: Record<Known, string> = {
  pending: "idle",
  started: "busy",
  running: "busy",
  paused: "waiting",
  rolling_back: "waiting",
  completed: "good",
  completed_with_errors: "warn",
  failed: "bad",
  cancelled: "idle",
  skipped: "idle",
};

/** The status of a run, a batch or a visit, in words and in colour. */
export function Status({ status }: { status: Known }) {
  return <span className={`badge badge-${TONES[status]}`}>{status.replaceAll("_", " ")}</span>;
}

/** A short label with a tone of its own. */
export function Badge({ tone, children, title }: { tone: Tone; children: string; title?: string }) {
  return (
    <span className={`badge badge-${tone}`} title={title}>
      {children}
    </span>
  );
}

export type Tone = "idle" | "busy" | "waiting" | "good" | "warn" | "bad";
