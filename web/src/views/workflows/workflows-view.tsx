/** The list of workflows: those that this server runs, and those that have runs. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Model, Page } from "../../api/types";
import { Command } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { toWorkflow } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Badge } from "../../parts/status";
import { When } from "../../parts/times";
import { useReadAfter } from "../runs/use-runs";
import "./workflows.css";

type Workflow = Model<"WorkflowAnswer">;

export default function WorkflowsView() {
  const query = useQuery({
    queryKey: ["workflows"],
    queryFn: ({ signal }) => get<Page<Workflow>>(["workflows"], {}, signal),
  });
  useReadAfter(["workflows"], (event) => event.type === "execution.created", 3_000);
  return (
    <>
      <h1>Workflows</h1>
      {query.error !== null && <ProblemNote error={query.error} retry={() => void query.refetch()} />}
      {query.isPending && <Loading what="the workflows" />}
      {query.data !== undefined && <List workflows={query.data.items} />}
      <Command text="wtb workflows" />
    </>
  );
}

function List({ workflows }: { workflows: readonly Workflow[] }) {
  if (workflows.length === 0)
    return (
      <Empty title="No workflows yet">
        <p>Name the file of a workflow when you start the server:</p>
        <Command text="wtb serve support.py" />
        <p>
          <code>wtb init</code> makes a project to begin with.
        </p>
      </Empty>
    );
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Workflows">
      <table>
        <thead>
          <tr>
            <th>Workflow</th>
            <th>Here</th>
            <th>Versions</th>
            <th className="number">Runs</th>
            <th>Last run</th>
          </tr>
        </thead>
        <tbody>
          {workflows.map((workflow, at) => (
            <Row key={workflow.name ?? at} workflow={workflow} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ workflow }: { workflow: Workflow }) {
  const { name } = workflow;
  return (
    <tr>
      <td className="workflows-name">
        {name !== null && <Link to={toWorkflow(name)}>{name}</Link>}
        {workflow.problem != null && <p className="workflows-problem">{workflow.problem.detail}</p>}
      </td>
      <td>
        {workflow.problem != null ? (
          <Badge tone="bad">cannot be loaded</Badge>
        ) : workflow.served ? (
          <Badge tone="good" title="This server starts and resumes its runs">
            can be started
          </Badge>
        ) : (
          <Badge tone="idle" title="This server only shows its runs">
            to look at
          </Badge>
        )}
      </td>
      <td className="workflows-name">{workflow.versions.slice(-5).join(", ") || "–"}</td>
      <td className="number">
        {name === null || workflow.runs === 0 ? (
          workflow.runs
        ) : (
          <Link to={`/runs?${new URLSearchParams({ workflow: name, batch: "all" })}`}>
            {workflow.runs.toLocaleString("en")}
          </Link>
        )}
      </td>
      <td className="workflows-when">
        <When at={workflow.last_run_at} />
      </td>
    </tr>
  );
}
