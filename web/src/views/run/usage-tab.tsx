/** What each node of a run used: time, tokens and money. */
import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Model, Page, Run } from "../../api/types";
import { durationText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { useReadAfter } from "../runs/use-runs";
import { dollars } from "./header";
import { NoVisits } from "./no-visits";

export type NodeUsage = Model<"NodeUsageAnswer">;

/** What each node used. It is summed over all visits, so a run that goes on is asked for it only now and then. */
export function useUsage(run: string) {
  const key = ["usage", run];
  useReadAfter(key, (event) => event.stream === run);
  return useQuery({
    queryKey: key,
    queryFn: ({ signal }) => get<Page<NodeUsage>>(["executions", run, "usage"], {}, signal),
  });
}

export default function UsageTab({ run }: { run: Run }) {
  const query = useUsage(run.id);
  if (query.error !== null) return <ProblemNote error={query.error} retry={() => void query.refetch()} />;
  if (query.isPending) return <Loading what="the usage" />;
  const nodes = query.data.items;
  if (nodes.length === 0)
    return (
      <NoVisits run={run} title="Nothing used yet">
        No node of this run has finished.
      </NoVisits>
    );
  const busiest = Math.max(...nodes.map((node) => node.busy_ms ?? 0));
  const dearest = Math.max(...nodes.map((node) => node.spent.cost_usd ?? 0));
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Usage by node">
      <table>
        <thead>
          <tr>
            <th>Node</th>
            <th className="number">Visits</th>
            <th className="number">Worked</th>
            <th className="number">Tokens in</th>
            <th className="number">Tokens out</th>
            <th className="number">Cost</th>
            <th className="number" title="With attempts that failed, and what rollbacks left behind">
              Spent in all
            </th>
            <th>Models</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((node) => (
            <tr key={node.node}>
              <td className="run-name">{node.node}</td>
              <td className="number">{node.visits.toLocaleString("en")}</td>
              <td className="number">
                <Share part={node.busy_ms ?? 0} of={busiest}>
                  {node.busy_ms === null ? "–" : durationText(node.busy_ms / 1000)}
                </Share>
              </td>
              <td className="number">{node.usage.input_tokens.toLocaleString("en")}</td>
              <td className="number">{node.usage.output_tokens.toLocaleString("en")}</td>
              <td className="number">{money(node.usage)}</td>
              <td className="number">
                <Share part={node.spent.cost_usd ?? 0} of={dearest}>
                  {money(node.spent)}
                </Share>
              </td>
              <td className="run-name quiet">{node.spent.models.join(", ")}</td>
            </tr>
          ))}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row">All nodes</th>
            <td className="number">{nodes.reduce((sum, node) => sum + node.visits, 0).toLocaleString("en")}</td>
            <td className="number">{durationText(nodes.reduce((sum, node) => sum + (node.busy_ms ?? 0), 0) / 1000)}</td>
            <td className="number">{run.usage.input_tokens.toLocaleString("en")}</td>
            <td className="number">{run.usage.output_tokens.toLocaleString("en")}</td>
            <td className="number">{money(run.usage)}</td>
            <td className="number">{money(run.spent)}</td>
            <td />
          </tr>
        </tfoot>
      </table>
    </div>
  );
}

function money(usage: Model<"UsageAnswer">): string {
  return usage.cost_usd === null ? "unknown" : dollars(usage.cost_usd);
}

/** A figure over a bar that shows its share of the largest one. */
function Share({ part, of, children }: { part: number; of: number; children: string }) {
  return (
    <span className="run-share">
      {children}
      <span className="run-share-bar" style={{ width: of > 0 ? `${(100 * part) / of}%` : 0 }} />
    </span>
  );
}
