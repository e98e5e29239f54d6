/** The graph of a run: each node with what happened in it, or each visit on its own. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { get } from "../../../api/client";
import type { Model, Run } from "../../../api/types";
import { useChoice } from "../../../parts/choice";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { useUsage } from "../usage-tab";
import { Asked } from "./asked";
import { Flow } from "./flow";
import { NoVisits } from "../no-visits";
import { aggregated, derived, expanded, withRunning, type Drawing, type Graph, type Shape } from "./model";
import { NodePanel } from "./node-panel";

const LAST_STEPS = 100;
const EXPANDED_STEPS = 500;

export default function GraphTab({ run }: { run: Run }) {
  const [visitsName, setVisits] = useChoice("visits");
  const [node, setNode] = useChoice("node");
  const isExpanded = visitsName === "each";
  const chosen = node === "" ? null : node;
  const graph = useQuery({
    queryKey: ["workflow", run.workflow, "graph"],
    queryFn: ({ signal }) => get<Model<"GraphAnswer">>(["workflows", run.workflow, "graph"], {}, signal),
  });
  const usage = useUsage(run.id);
  const steps = isExpanded ? EXPANDED_STEPS : LAST_STEPS;
  const timeline = useQuery({
    queryKey: ["run", run.id, "last visits", steps],
    queryFn: ({ signal }) => get<Model<"TimelineAnswer">>(["executions", run.id, "timeline"], { limit: steps }, signal),
    placeholderData: (before) => before,
  });
  const visits = timeline.data?.items;
  const nodes = usage.data?.items;
  const drawing = useMemo((): Drawing | null => {
    if (graph.isPending || visits === undefined || nodes === undefined) return null;
    const known: Graph = graph.data !== undefined && hasAll(graph.data, nodes) ? graph.data : derived(nodes, visits);
    const all = withRunning(visits, nodes, run);
    return isExpanded ? expanded(known, all, run) : aggregated(known, nodes, all, run);
  }, [graph.isPending, graph.data, visits, nodes, isExpanded, run]);
  const choose = useCallback((shape: Shape) => shape.node !== "" && setNode(shape.node), [setNode]);
  const error = timeline.error ?? usage.error;
  if (error !== null && drawing === null) return <ProblemNote error={error} retry={() => void timeline.refetch()} />;
  if (drawing === null) return <Loading what="the graph" />;
  const isDerived = graph.data === undefined || (nodes !== undefined && !hasAll(graph.data, nodes));
  return (
    <section aria-label="Graph">
      <div className="toolbar">
        <label>
          <input type="checkbox" checked={isExpanded} onChange={() => setVisits(isExpanded ? "" : "each")} /> show each
          visit
        </label>
        {isExpanded && timeline.data?.before != null && (
          <span className="quiet">The last {EXPANDED_STEPS} steps are shown; the timeline has all of them.</span>
        )}
        {isDerived && (
          <span className="quiet">Drawn from what the run did, since its workflow cannot be read as it was.</span>
        )}
      </div>
      {drawing.shapes.length === 0 ? (
        <NoVisits run={run} title="Nothing to draw yet">
          The nodes appear here when the run begins.
        </NoVisits>
      ) : (
        <div className="graph-and-panel">
          <Asked count={drawing.shapes.length}>
            <Flow drawing={drawing} chosen={isExpanded ? null : chosen} onChoose={choose} />
          </Asked>
          {chosen !== null && (
            <NodePanel
              run={run}
              node={chosen}
              visits={visits ?? []}
              usage={nodes?.find((each) => each.node === chosen)}
              onClose={() => setNode("")}
            />
          )}
        </div>
      )}
    </section>
  );
}

function hasAll(graph: Graph, usage: readonly Model<"NodeUsageAnswer">[]): boolean {
  const names = new Set(graph.nodes.map((node) => node.name));
  return usage.every((each) => names.has(each.node));
}
