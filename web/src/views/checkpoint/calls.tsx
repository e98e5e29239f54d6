import { useQuery } from "@tanstack/react-query";
import { get, type Query } from "../../api/client";
import type { Page } from "../../api/types";
import { CALL_TONES, UNDO, type Call } from "../../parts/calls";
import { Empty } from "../../parts/empty";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Badge } from "../../parts/status";
import { Duration } from "../../parts/times";
import type { Detail } from "./checkpoint-view";
import { lineOf } from "./state/tagged";

/** The calls of the visit, or of the visits side by side, that ended with a checkpoint. */
export function CheckpointCalls({ at }: { at: Detail }) {
  const found = useQuery({
    queryKey: ["run", at.run, "calls of", at.id],
    queryFn: async ({ signal }) => {
      const query = { ...wantedAt(at), limit: 500 };
      return (await get<Page<Call>>(["executions", at.run, "calls"], query, signal)).items;
    },
  });
  if (found.error !== null) return <ProblemNote error={found.error} retry={() => void found.refetch()} />;
  if (found.data === undefined) return <Loading what="the calls" />;
  if (found.data.length === 0)
    return <Empty title="No calls here">This visit called no tool and asked nobody. Calls go through ctx.tool.</Empty>;
  return <CallTable calls={found.data} />;
}

/** Visits that ended with the checkpoint; in the middle of a visit, that visit. */
function wantedAt(at: Detail): Query {
  const isEnd = at.trigger === "node_end" || at.node === null;
  return isEnd ? { ended_with: at.id } : { node: at.node, visit: at.visit };
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
