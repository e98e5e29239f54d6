/** The checkpoints of a run, newest first; two of them can be compared. */
import { useCallback, useMemo } from "react";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Model, Page, Run } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Empty } from "../../parts/empty";
import { sizeText } from "../../parts/format";
import { toCheckpoint, toDiff } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { usePages } from "../../parts/pages";
import { ProblemNote } from "../../parts/problem";
import { Badge, type Tone } from "../../parts/status";
import { When } from "../../parts/times";
import { VirtualTable, type Column } from "../../parts/virtual-table";
import { visitText } from "../checkpoint/labels";
import { chosen, toggled } from "./choice";

type Row = Model<"CheckpointRowAnswer">;

const COLUMNS: readonly Column[] = [
  { label: "Choose", width: "3.6rem" },
  { label: "Step", width: "3.5rem", isNumber: true },
  { label: "After", width: "minmax(8rem, 1.4fr)" },
  { label: "Name and kind", width: "minmax(9rem, 1.6fr)" },
  { label: "Size", width: "5rem", isNumber: true },
  { label: "Files", width: "4rem", isNumber: true },
  { label: "Made", width: "6.5rem", isNumber: true },
];
const MARKS: Partial<Record<Row["mark"], { tone: Tone; text: string; title: string }>> = {
  head: { tone: "good", text: "head", title: "The run is here" },
  left: { tone: "idle", text: "left behind", title: "A rollback left this line" },
  safety: { tone: "warn", text: "safety copy", title: "Made before a rollback; redo returns here" },
  deleted: { tone: "idle", text: "deleted", title: "Its content was deleted" },
};
const keyOf = (row: Row) => row.id;

export default function CheckpointsTab({ run }: { run: Run }) {
  const [every, setEvery] = useChoice("every");
  const [pick, setPick] = useChoice("pick");
  const isEvery = every === "true";
  const picked = useMemo(() => chosen(pick), [pick]);
  const read = useCallback(
    (cursor: string | null, signal?: AbortSignal) =>
      get<Page<Row>>(["executions", run.id, "checkpoints"], { every: isEvery, cursor, limit: 100 }, signal),
    [run.id, isEvery],
  );
  const pages = usePages(["run", run.id, "checkpoints", isEvery], read, keyOf);
  const cells = (row: Row) => [
    <input
      key="choose"
      type="checkbox"
      aria-label={`Choose step ${row.step} for a comparison`}
      checked={picked.includes(row.id)}
      onChange={() => setPick(toggled(picked, row.id).join(","))}
    />,
    <Link key="step" to={toCheckpoint(run.id, row.id)}>
      {row.step}
    </Link>,
    <Link key="after" to={toCheckpoint(run.id, row.id)} title={row.id}>
      {visitText(row)}
    </Link>,
    <Remarks key="remarks" row={row} />,
    sizeText(row.size_bytes),
    row.files ?? "–",
    <When key="made" at={row.created_at} />,
  ];
  return (
    <section aria-label="Checkpoints">
      <div className="toolbar">
        <label>
          <input type="checkbox" checked={isEvery} onChange={() => setEvery(isEvery ? "" : "true")} /> also what
          rollbacks left behind
        </label>
        {picked.length === 2 ? (
          <Link className="button" to={toDiff(run.id, picked[0]!, picked[1]!)}>
            Compare the two chosen checkpoints
          </Link>
        ) : (
          <span className="quiet">Choose two checkpoints to compare them.</span>
        )}
      </div>
      {pages.error !== null && <ProblemNote error={pages.error} retry={pages.retry} />}
      {pages.isPending ? (
        <Loading what="the checkpoints" />
      ) : pages.items.length === 0 ? (
        <Empty title="No checkpoints">They appear here as nodes end.</Empty>
      ) : (
        <VirtualTable
          label="Checkpoints, newest first"
          columns={COLUMNS}
          items={pages.items}
          keyOf={keyOf}
          cells={cells}
          rowClass={(row) => (row.mark === "left" || row.mark === "deleted" ? "run-left" : "")}
          hasMore={pages.hasMore}
          onEnd={pages.more}
          minWidth="44rem"
          place={`checkpoints ${run.id} ${isEvery}`}
        />
      )}
    </section>
  );
}

function Remarks({ row }: { row: Row }) {
  const mark = MARKS[row.mark];
  return (
    <span className="run-remarks" title={row.description || undefined}>
      {mark !== undefined && (
        <Badge tone={mark.tone} title={mark.title}>
          {mark.text}
        </Badge>
      )}
      {row.name !== null && <strong>{row.name}</strong>}
      {row.kind !== "auto" && row.mark !== "safety" && <span className="quiet">{row.kind}</span>}
      {!row.restore_point && <span className="quiet">no restore point</span>}
    </span>
  );
}
