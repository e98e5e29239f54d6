/** One workflow: its graph, and a form that starts a run of it. */
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Model, RunList } from "../../api/types";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { useMay } from "../../parts/session";
import { Badge } from "../../parts/status";
import { Asked } from "../run/graph/asked";
import { aggregated } from "../run/graph/model";
import { StartForm } from "./start-form";
import "./workflows.css";

const Flow = lazy(() => import("../run/graph/flow").then((part) => ({ default: part.Flow })));

export default function WorkflowView({ name }: { name: string }) {
  const graph = useQuery({
    queryKey: ["workflow", name, "graph"],
    queryFn: ({ signal }) => get<Model<"GraphAnswer">>(["workflows", name, "graph"], {}, signal),
  });
  const last = useQuery({
    queryKey: ["workflow", name, "last run"],
    queryFn: ({ signal }) => get<RunList>(["executions"], { workflow: name, limit: 1 }, signal),
  });
  const mayStart = useMay("operator");
  const drawing = useMemo(() => (graph.data === undefined ? null : aggregated(graph.data, [], [])), [graph.data]);
  return (
    <>
      <header className="workflows-head">
        <h1>Workflow {name}</h1>
        {graph.data !== undefined && !graph.data.served && <Badge tone="idle">to look at</Badge>}
        <Link to={`/runs?${new URLSearchParams({ workflow: name })}`}>Its runs</Link>
      </header>
      {graph.error !== null && <ProblemNote error={graph.error} retry={() => void graph.refetch()} />}
      {graph.isPending && <Loading what="the workflow" />}
      {graph.data !== undefined && drawing !== null && (
        <div className="workflows-parts">
          <section aria-label="Graph">
            <Asked count={drawing.shapes.length}>
              <Suspense fallback={<Loading what="the graph" />}>
                <Flow drawing={drawing} chosen={null} isTall />
              </Suspense>
            </Asked>
            <p className="quiet">A dashed edge waits for all nodes that it comes from.</p>
          </section>
          {!graph.data.served ? (
            <p className="note">
              This server does not run this workflow; it shows it as its last run used it. To start runs here, name its
              file when you start the server: <code>wtb serve FILE.py</code>.
            </p>
          ) : (
            mayStart && <StartForm name={name} nodes={graph.data.nodes} last={last.data?.items[0] ?? null} />
          )}
        </div>
      )}
    </>
  );
}
