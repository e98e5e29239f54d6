/** What can be done with a run in its present status. The server has the last word. */
import type { Run } from "../../../api/types";

export type Offer = "resume" | "edit" | "pause" | "stop" | "restore" | "redo" | "fork" | "name" | "delete";

type Facts = Pick<Run, "status" | "neglect" | "waits_for" | "rollback">;

export function offersOf(run: Facts): Offer[] {
  if (run.status === "rolling_back" || run.rollback !== null) return ["fork"];
  if ((run.status === "running" || run.status === "pending") && run.neglect === null)
    return run.status === "running" ? ["pause", "stop", "fork"] : ["resume", "stop", "delete"];
  const asks = run.waits_for === "question" || run.waits_for === "in_doubt";
  const goesOn: Offer[] = run.status === "completed" || run.status === "cancelled" ? [] : ["resume", "edit"];
  const on = asks ? goesOn.filter((offer) => offer !== "resume") : goesOn;
  const back: Offer[] = run.waits_for === "moved" ? ["restore", "redo"] : ["restore"];
  const end: Offer[] = goesOn.length === 0 ? [] : ["stop"];
  return [...on, ...back, "fork", "name", ...end, "delete"];
}
