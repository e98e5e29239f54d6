import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { get } from "../../../api/client";
import type { Model, Page } from "../../../api/types";
import { countText } from "../../../parts/format";
import { lineOf } from "../../checkpoint/state/tagged";
import type { Plan, PlannedCall } from "./requests";

type Call = Model<"CallAnswer">;

/** Everything that a rollback would do, in the order in which it does it. */
export function PlanView({ run, plan }: { run: string; plan: Plan }) {
  const calls = useQuery({
    queryKey: ["run", run, "calls to undo"],
    queryFn: ({ signal }) => get<Page<Call>>(["executions", run, "calls"], { limit: 500 }, signal),
    enabled: plan.reverse.length + plan.irreversible.length + plan.kept.length > 0,
  });
  const known = new Map((calls.data?.items ?? []).map((call) => [keyOf(call.call, call.started_at), call]));
  const list = (planned: readonly PlannedCall[]) => <CallList calls={planned} known={known} />;
  const { put, removed } = plan.files;
  return (
    <div className="plan">
      <Part title={`${countText(plan.nodes.length, "visit")} undone`} isEmpty={plan.nodes.length === 0}>
        <p>
          {plan.nodes.map((node) => (
            <code key={node} className="node-name">
              {node}
            </code>
          ))}
        </p>
      </Part>
      <Part title={`${countText(plan.reverse.length, "call")} undone`} isEmpty={plan.reverse.length === 0}>
        {plan.reverse.length > 1 && <p className="quiet">The latest first.</p>}
        {list(plan.reverse)}
      </Part>
      <Part
        title={`${countText(plan.irreversible.length, "call")} that cannot be undone`}
        isEmpty={plan.irreversible.length === 0}
        isBad
      >
        {list(plan.irreversible)}
      </Part>
      <Part title={`${countText(plan.kept.length, "call")} kept in effect`} isEmpty={plan.kept.length === 0} isBad>
        {list(plan.kept)}
      </Part>
      <Part
        title={`${countText(put.length + removed.length, "file")} changed`}
        isEmpty={put.length + removed.length === 0}
      >
        <ul className="plan-files">
          {put.slice(0, MOST).map((path) => (
            <li key={path}>
              <span className="quiet">put back</span> <code>{path}</code>
            </li>
          ))}
          {removed.slice(0, MOST).map((path) => (
            <li key={path}>
              <span className="quiet">removed</span> <code>{path}</code>
            </li>
          ))}
        </ul>
        <More of={Math.max(put.length, removed.length)} />
      </Part>
    </div>
  );
}

const MOST = 100;

function More({ of }: { of: number }) {
  return of > MOST ? <p className="quiet">The first {MOST} are shown.</p> : null;
}

interface PartProps {
  title: string;
  isEmpty: boolean;
  isBad?: boolean;
  children: ReactNode;
}

function Part({ title, isEmpty, isBad = false, children }: PartProps) {
  if (isEmpty) return isBad ? null : <p className="quiet plan-none">No {title.replace(/^0 /, "")}.</p>;
  return (
    <section className={isBad ? "plan-part plan-bad" : "plan-part"}>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function CallList({ calls, known }: { calls: readonly PlannedCall[]; known: ReadonlyMap<string, Call> }) {
  return (
    <>
      <ol className="plan-calls">
        {calls.slice(0, MOST).map((call) => {
          const found = known.get(keyOf(call.call, call.at));
          return (
            <li key={`${call.call} ${call.at}`}>
              <code>{call.tool}</code>
              {found !== undefined && (
                <>
                  {" "}
                  <code className="quiet">{lineOf(found.arguments)}</code>
                  {found.node !== null && (
                    <span className="quiet">
                      {" "}
                      in {found.node}#{found.visit}
                    </span>
                  )}
                </>
              )}
              {call.status !== "succeeded" && <span className="quiet"> ({call.status})</span>}
            </li>
          );
        })}
      </ol>
      <More of={calls.length} />
    </>
  );
}

function keyOf(call: string, at: string): string {
  return `${call} ${new Date(at).getTime()}`;
}
