/** All lines of a run: where it is, what rollbacks left behind, and which runs were forked from it. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";
import { get } from "../../../api/client";
import type { Model, Run } from "../../../api/types";
import { Empty } from "../../../parts/empty";
import { countText } from "../../../parts/format";
import { toCheckpoint, toRun } from "../../../parts/links";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { Badge } from "../../../parts/status";
import { VirtualTable, type Column } from "../../../parts/virtual-table";
import { useReadAfter } from "../../runs/use-runs";
import { Rails, widthOf } from "./rails";
import { rowsOf, type TreeRow, type TreeStep } from "./rows";
import "./branches.css";

const keyOf = (row: TreeRow) => row.key;

export default function BranchesTab({ run }: { run: Run }) {
  const key = ["tree", run.id];
  useReadAfter(key, (event) => event.stream === run.id);
  const query = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => get<Model<"TreeAnswer">>(["executions", run.id, "tree"], {}, signal),
  });
  const rows = useMemo(() => rowsOf(query.data?.lines ?? []), [query.data]);
  if (query.error !== null) return <ProblemNote error={query.error} retry={() => void query.refetch()} />;
  if (query.isPending) return <Loading what="the branches" />;
  if (rows.length === 0) return <Empty title="No checkpoints">The tree grows with the steps of the run.</Empty>;
  const columns: readonly Column[] = [
    { label: "Line", width: `${widthOf(rows)}px` },
    { label: "Step", width: "3.2rem", isNumber: true },
    { label: "What", width: "minmax(12rem, 1fr)" },
  ];
  const left = rows.filter((row) => row.kind === "step" && row.isLeft && row.enters).length;
  const forks = rows.filter((row) => row.kind === "fork").length;
  return (
    <section aria-label="Branches">
      <p className="quiet">
        {countText(run.branches.length, "branch", "branches")}, {countText(left, "line")} left behind by rollbacks,{" "}
        {countText(forks, "fork")} into other runs.
      </p>
      <VirtualTable
        label="Branches of the run"
        columns={columns}
        items={rows}
        keyOf={keyOf}
        cells={(row) => [
          <Rails key="line" row={row} />,
          stepCell(run.id, row),
          <What key="what" run={run.id} row={row} />,
        ]}
        rowClass={(row) => `branches-row ${row.isLeft ? "branches-left" : ""}`}
        minWidth="30rem"
        place={`branches ${run.id}`}
      />
    </section>
  );
}

function stepCell(run: string, row: TreeRow) {
  if (row.kind !== "step" || row.step.folded > 1) return "";
  return row.step.checkpoint === null ? (
    row.step.step
  ) : (
    <Link to={toCheckpoint(run, row.step.checkpoint)}>{row.step.step}</Link>
  );
}

function What({ run, row }: { run: string; row: TreeRow }) {
  if (row.kind === "fork")
    return (
      <span>
        <Badge tone="busy">fork</Badge> run <Link to={toRun(row.run)}>{row.run}</Link>
      </span>
    );
  if (row.kind === "safety")
    return (
      <span>
        <Badge tone="warn" title="A rollback copied its position before it went back">
          safety copy
        </Badge>{" "}
        <Link to={toCheckpoint(run, row.checkpoint)}>where the run was before the rollback</Link>
      </span>
    );
  return <Step run={run} row={row} step={row.step} />;
}

function Step({ run, row, step }: { run: string; row: TreeRow; step: TreeStep }) {
  if (step.folded > 1) {
    const text = `${countText(step.folded, "step")}, from ${step.step} to ${step.step + step.folded - 1}`;
    const every = row.isLeft ? "&every=true" : "";
    return (
      <Link className="branches-folded" to={`${toRun(run, "checkpoints")}${every}`}>
        {text}
      </Link>
    );
  }
  const name = step.visits.join(", ") || (step.step === 0 ? "start" : "checkpoint");
  return (
    <span className="branches-what">
      {step.checkpoint === null ? name : <Link to={toCheckpoint(run, step.checkpoint)}>{name}</Link>}
      {step.name !== null && <strong>{step.name}</strong>}
      {step.kind === "system" && (
        <Badge tone="warn" title="A rollback copied its position before it went back">
          safety copy
        </Badge>
      )}
      {step.heads.map((head) => (
        <Badge key={head} tone={step.is_active ? "good" : "busy"} title={`The branch ${head} ends here`}>
          {step.is_active ? `${head}: the run is here` : `head of ${head}`}
        </Badge>
      ))}
      {row.enters && row.isLeft && <Badge tone="idle">left behind by a rollback</Badge>}
    </span>
  );
}
