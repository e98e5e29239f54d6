import type { ReactNode } from "react";
import { Link } from "react-router";
import type { Model, RunRow } from "../../api/types";
import { shortId } from "../../parts/format";
import { toBatch, toRun, toWorkflow } from "../../parts/links";
import { Badge, Status } from "../../parts/status";
import { When } from "../../parts/times";
import type { Column } from "../../parts/virtual-table";

export const COLUMNS: readonly Column[] = [
  { label: "Run", width: "minmax(9rem, 1.2fr)" },
  { label: "Status", width: "8rem" },
  { label: "What to know", width: "minmax(10rem, 2fr)" },
  { label: "Workflow", width: "minmax(7rem, 1fr)" },
  { label: "By", width: "minmax(4rem, 0.6fr)" },
  { label: "Created", width: "6.5rem", isNumber: true },
  { label: "Changed", width: "6.5rem", isNumber: true },
];

/** The cells of a run in the list. */
export function runCells(row: RunRow): readonly ReactNode[] {
  return [
    <Link key="run" to={toRun(row.id)} title={row.id} className="mono">
      {shortId(row.id)}
    </Link>,
    <Status key="status" status={row.status} />,
    <WhatToKnow key="know" row={row} />,
    <Link key="workflow" to={toWorkflow(row.workflow)} className="runs-plain" title={row.workflow}>
      {row.workflow}
    </Link>,
    row.created_by ?? "–",
    <When key="created" at={row.created_at} />,
    <When key="updated" at={row.updated_at} />,
  ];
}

const WAITS: Record<Model<"PauseKind">, string | null> = {
  question: "waits for an answer",
  in_doubt: "a call is in doubt",
  calls_differ: "calls differ from the record",
  break_before: "at a breakpoint",
  break_after: "at a breakpoint",
  requested: "paused on request",
  moved: "rolled back",
  process_gone: "its process ended",
  thread: null,
  other: null,
};
const ASKS = new Set(["question", "in_doubt", "calls_differ"]);

function WhatToKnow({ row }: { row: RunRow }) {
  if (row.neglect === "gone")
    return (
      <Badge tone="bad" title="It is recorded as running, but its process has ended. Resume it.">
        process gone
      </Badge>
    );
  if (row.neglect === "abandoned")
    return (
      <Badge tone="warn" title="It has given no sign of life for an hour.">
        abandoned
      </Badge>
    );
  if (row.error !== null)
    return (
      <span className="runs-error" title={row.error}>
        {row.error}
      </span>
    );
  const waits = row.waits_for === null ? null : WAITS[row.waits_for];
  if (waits !== null && row.waits_for !== null && ASKS.has(row.waits_for)) return <Badge tone="waiting">{waits}</Badge>;
  if (row.job !== null)
    return (
      <span className="quiet">
        <Link to={toBatch(row.job.batch)}>batch</Link> case {row.job.case}, {row.job.combination || "as it is"}
        {row.job.repeat > 0 && `, repeat ${row.job.repeat + 1}`}
      </span>
    );
  return <span className="quiet">{waits}</span>;
}
