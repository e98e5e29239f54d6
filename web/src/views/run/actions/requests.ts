/** The requests that change runs. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { act, send } from "../../../api/client";
import type { CommandAnswer, Model } from "../../../api/types";

export type RunChange = Model<"RunChange">;
export type StateEdit = Model<"StateEditRequest">;

/** What a rollback would do, newest first. */
export interface Plan {
  target: { checkpoint: string; step: number; node: string | null };
  nodes: string[];
  checkpoints: number;
  reverse: PlannedCall[];
  irreversible: PlannedCall[];
  kept: PlannedCall[];
  files: { put: string[]; removed: string[] };
}

export interface PlannedCall {
  tool: string;
  call: string;
  status: string;
  at: string;
}

export interface Scope {
  tools: boolean;
  files: boolean;
  shared: "keep" | "reverse";
}

const parts = (run: string, ...rest: string[]) => ["executions", run, ...rest];

export async function resume(run: string, body: object, ifMatch?: string): Promise<RunChange> {
  return (await act<RunChange>(parts(run, "resume"), { body, ifMatch })).data;
}

export async function request(run: string, verb: "pause" | "stop"): Promise<void> {
  await send("POST", parts(run, verb));
}

interface PlanAnswer {
  command: CommandAnswer;
  plan: Plan | null;
  version?: number;
  digest?: string;
}

/** Ask for the plan of a rollback, with the tag that a rollback of exactly this plan names. */
export async function planRollback(
  run: string,
  target: string,
  scope: Scope,
  signal: AbortSignal,
): Promise<{ plan: Plan; tag: string }> {
  const answer = await act<PlanAnswer>(parts(run, "rollback", "plan"), { body: { target, ...scope }, signal });
  const { plan, version, digest } = answer.data;
  if (plan === null) throw new Error("the server made no plan; try again");
  return { plan, tag: answer.etag ?? `"${version}-${digest}"` };
}

export async function rollback(
  run: string,
  target: string,
  scope: Scope,
  tag: string,
  allowIrreversible: boolean,
): Promise<RunChange> {
  const body = { target, ...scope, allow_irreversible: allowIrreversible };
  return (await act<RunChange>(parts(run, "rollback"), { body, ifMatch: tag })).data;
}

export async function settleRollback(
  run: string,
  verb: "continue" | "abandon",
  inDoubt: "done" | "again" | null,
): Promise<RunChange> {
  return (await act<RunChange>(parts(run, "rollback", verb), { body: { in_doubt: inDoubt } })).data;
}

export async function redo(run: string, version: string): Promise<RunChange> {
  return (await act<RunChange>(parts(run, "redo"), { ifMatch: version })).data;
}

export async function fork(run: string, body: object): Promise<RunChange> {
  return (await act<RunChange>(parts(run, "fork"), { body })).data;
}

export async function nameCheckpoint(run: string, name: string, description: string): Promise<RunChange> {
  return (await act<RunChange>(parts(run, "checkpoints"), { body: { name, description } })).data;
}

export async function deleteRun(run: string): Promise<void> {
  await send("DELETE", parts(run));
}

/** A change of a run: how far it is, its problem, its result. Everything of the run is read again afterwards. */
export function useChange<Given, Result>(run: string, change: (given: Given) => Promise<Result>) {
  const client = useQueryClient();
  return useMutation<Result, Error, Given>({
    mutationFn: change,
    retry: false,
    onSettled: () => void client.invalidateQueries({ queryKey: ["run", run] }),
  });
}
