/** Names of checkpoints, as people say them and as addresses and commands take them. */
import type { Model } from "../../api/types";

export type Checkpoint = Model<"CheckpointAnswer">;
type Trigger = Checkpoint["trigger"];
type Kind = Checkpoint["kind"];

export const TRIGGERS: Record<Trigger, string> = {
  start: "the run began",
  node_end: "a node ended",
  tool_start: "a tool was called",
  tool_end: "a tool returned",
  llm_call: "a model answered",
  decision: "a decision",
  handoff: "a handoff",
  pause: "the run paused",
  user_request: "somebody asked for it",
};

export const KINDS: Record<Kind, string> = {
  auto: "made by the run",
  manual: "named by a person",
  system: "safety copy",
  conflict: "a conflict",
};

/** `draft#2`, or what else a checkpoint is called. */
export function visitText(at: Checkpoint): string {
  if (at.node !== null) return at.visit === null ? at.node : `${at.node}#${at.visit}`;
  if (at.trigger === "start") return "the start";
  if (at.trigger === "pause") return at.description || TRIGGERS.pause; // what a person edited
  return at.trigger === "node_end" ? besideText(at) : TRIGGERS[at.trigger];
}

/** The nodes that ended beside each other with a checkpoint; its description names them. */
function besideText({ description, step }: Checkpoint): string {
  const nodes = description.split(", ");
  if (description === "") return `the end of step ${step}`;
  return nodes.length <= 4 ? nodes.join(", ") : `${nodes.slice(0, 3).join(", ")} and ${nodes.length - 3} more`;
}

/** One line that tells a checkpoint from all others of its run. */
export function rowText(row: Checkpoint & { mark?: string }): string {
  const name = row.name === null ? "" : ` “${row.name}”`;
  const mark = row.mark === undefined || row.mark === "" ? "" : `, ${MARKS[row.mark] ?? row.mark}`;
  return `step ${row.step}: ${visitText(row)}${name}${mark}`;
}

export const MARKS: Record<string, string> = {
  head: "current position",
  left: "left behind",
  safety: "safety copy",
  deleted: "deleted",
};

/** How a command names a checkpoint: as people say it where that is exact, otherwise by its id. */
export function commandName(at: Checkpoint & { mark?: string }): string {
  const isOnLine = at.mark === "" || at.mark === "head";
  if (isOnLine && at.name !== null && at.name !== "") return at.name;
  if (isOnLine && at.trigger === "node_end" && at.node !== null) return visitText(at);
  return isOnLine ? String(at.step) : at.id;
}
