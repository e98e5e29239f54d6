import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Model, Page } from "../../api/types";
import { CALL_TONES, UNDO, type Call } from "../../parts/calls";
import { Empty } from "../../parts/empty";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Badge } from "../../parts/status";
import { Duration } from "../../parts/times";
import type { Detail } from "./checkpoint-view";
import { lineOf } from "./state/tagged";

/** The calls of the visit, or of the visits side by side, that ended with a checkpoint. */
export function CheckpointCalls({ id, at }: { id: string; at: Detail }) {
  const found = useQuery({
    queryKey: ["run", id, "calls of", at.id],
    queryFn: async ({ signal }) => {
      const pages = (await visitsOf(id, at, signal)).map(({ node, visit }) =>
        get<Page<Call>>(["executions", at.run, "calls"], { node, visit, limit: 500 }, signal),
      );
      return (await Promise.all(pages)).flatMap((page) => page.items);
    },
  });
  if (found.error !== null) return <ProblemNote error={found.error} retry={() => void found.refetch()} />;
  if (found.data === undefined) return <Loading what="the calls" />;
  if (found.data.length === 0)
    return <Empty title="No calls here">This visit called no tool and asked nobody. Calls go through ctx.tool.</Empty>;
  return <CallTable calls={found.data} />;
}

interface Visit {
  node: string;
  visit: number | null;
}

async function visitsOf(id: string, at: Detail, signal: AbortSignal): Promise<Visit[]> {
  if (at.node !== null) return [{ node: at.node, visit: at.visit }];
  if (at.trigger !== "node_end") return [];
  const query = { before: at.step + 1, limit: 1 };
  const line = await get<Model<"TimelineAnswer">>(["executions", id, "timeline"], query, signal);
  return line.items.filter((visit) => visit.step === at.step);
}

function CallTable({ calls }: { calls: readonly Call[] }) {
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Calls">
      <table>
        <thead>
          <tr>
            <th>Call</th>
            <th>Status</th>
            <th>Arguments</th>
            <th>Result</th>
            <th>Undo</th>
            <th className="number">Took</th>
          </tr>
        </thead>
        <tbody>
          {calls.map((call) => (
            <tr key={`${call.call} ${call.started_at}`}>
              <td>
                <code>{call.tool}</code>
              </td>
              <td>
                <Badge tone={CALL_TONES[call.status]}>{call.status}</Badge>
              </td>
              <td className="cell-value">{lineOf(call.arguments)}</td>
              <td className="cell-value">{call.error ?? lineOf(call.result)}</td>
              <td className={call.undo === "never" ? "call-never" : undefined} title={UNDO[call.undo].title}>
                {UNDO[call.undo].text}
              </td>
              <td className="number">
                <Duration seconds={call.duration_ms === null ? null : call.duration_ms / 1000} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
