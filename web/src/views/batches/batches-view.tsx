import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useRef } from "react";
import { Link } from "react-router";
import { get } from "../../api/client";
import { useEvents } from "../../api/live";
import type { BatchRow, Page } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Command } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { countText } from "../../parts/format";
import { toBatch, toWorkflow } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { useMay } from "../../parts/session";
import { Status } from "../../parts/status";
import { When } from "../../parts/times";
import "./batches.css";

/** All batches, newest first. */
export default function BatchesView() {
  const [name, setName] = useChoice("name");
  const mayStart = useMay("operator");
  const pages = useInfiniteQuery({
    queryKey: ["batches", "list"],
    queryFn: ({ pageParam, signal }) => get<Page<BatchRow>>(["batches"], { cursor: pageParam, limit: 100 }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    staleTime: 0, // what happened while another view was shown is not in it
  });
  useLiveBatches();
  const rows = useMemo(() => pages.data?.pages.flatMap((page) => page.items) ?? [], [pages.data]);
  const wanted = name.trim().toLowerCase();
  const shown = rows.filter((row) => row.name.toLowerCase().includes(wanted) || row.workflow.includes(name.trim()));
  return (
    <>
      <div className="batches-head">
        <h1>Batches</h1>
        {mayStart && (
          <Link className="button primary-link" to="/batches/new">
            New batch
          </Link>
        )}
      </div>
      {pages.isPending && <Loading what="the batches" />}
      {pages.error !== null && <ProblemNote error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isSuccess && rows.length === 0 && <NoBatches mayStart={mayStart} />}
      {rows.length > 0 && (
        <>
          <div className="toolbar">
            <label>
              Find
              <input value={name} placeholder="name or workflow" onChange={(event) => setName(event.target.value)} />
            </label>
          </div>
          {shown.length === 0 ? (
            <Empty title="No batch fits">Write less of its name or of its workflow, or show older batches.</Empty>
          ) : (
            <BatchTable rows={shown} />
          )}
          {pages.hasNextPage && (
            <button type="button" disabled={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
              Show older batches
            </button>
          )}
        </>
      )}
      <Command text="wtb batch ls" />
    </>
  );
}

function NoBatches({ mayStart }: { mayStart: boolean }) {
  return (
    <Empty title="No batch has run yet">
      <p>
        A batch runs every combination of your variants over your cases, and says which one is better.{" "}
        {mayStart && (
          <>
            Start one here with <Link to="/batches/new">New batch</Link>, or on the command line:
          </>
        )}
      </p>
      <Command text="wtb batch run batch.py" label="Type" />
    </Empty>
  );
}

function BatchTable({ rows }: { rows: readonly BatchRow[] }) {
  return (
    <div className="scroll card batches-frame" tabIndex={0} role="region" aria-label="Batches">
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th>Status</th>
            <th>Workflow</th>
            <th>Size</th>
            <th>Metrics</th>
            <th>Changed</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td className="batch-name">
                <Link to={toBatch(row.id)}>{row.name}</Link>
              </td>
              <td>
                <Status status={row.status} />
              </td>
              <td className="batch-name">
                <Link to={toWorkflow(row.workflow)}>{row.workflow}</Link>
              </td>
              <td className="sizes">
                {countText(row.combinations, "combination")} × {countText(row.cases, "case")}
                {row.repeats > 1 && ` × ${row.repeats}`} <span className="quiet">= {countText(row.jobs, "job")}</span>
              </td>
              <td className="batch-name">{row.metrics.join(", ")}</td>
              <td>
                <When at={row.updated_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Read the list again when a batch starts, ends or is deleted; its jobs do not change the list. */
function useLiveBatches(): void {
  const client = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEvents((events) => {
    if (!events.some((event) => event.type.startsWith("batch."))) return;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => void client.invalidateQueries({ queryKey: ["batches"] }), 200);
  });
}
