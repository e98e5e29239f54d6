import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { BatchRow, Page } from "../../api/types";
import { countText } from "../../parts/format";
import { toBatch } from "../../parts/links";
import { Status } from "../../parts/status";
import { When } from "../../parts/times";
import { searchOf, type Filters } from "./filters";
import { useReadAfter } from "./use-runs";

const DAY_MS = 86_400_000;
const MOST_RECENT = 3;

/** Batches make thousands of runs: each is one line here, with a way to its runs. */
export function BatchLines({ filters }: { filters: Filters }) {
  const key = ["runs", "batches"];
  const query = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => get<Page<BatchRow>>(["batches"], { limit: 20 }, signal),
  });
  useReadAfter(key, (event) => event.type.startsWith("batch."), 500);
  const shown = current(query.data?.items ?? [], new Date());
  if (shown.length === 0) return null;
  return (
    <ul className="runs-batches" aria-label="Batches that run or ran lately">
      {shown.map((batch) => (
        <li key={batch.id}>
          <span className="runs-batch-name">
            Batch <Link to={toBatch(batch.id)}>{batch.name}</Link>
          </span>
          <Status status={batch.status} />
          <span className="quiet">
            {countText(batch.jobs, "job")} of {batch.workflow}, <When at={batch.updated_at} />
          </span>
          <Link to={{ search: searchOf({ ...filters, batch: batch.id }).toString() }}>its runs</Link>
        </li>
      ))}
    </ul>
  );
}

/** Return the batches that run, and the latest ones of the last day. */
export function current(batches: readonly BatchRow[], now: Date): readonly BatchRow[] {
  const isRecent = (batch: BatchRow) => now.getTime() - Date.parse(batch.updated_at) < DAY_MS;
  const running = batches.filter((batch) => batch.status === "running");
  const recent = batches.filter((batch) => batch.status !== "running" && isRecent(batch));
  return [...running, ...recent.slice(0, Math.max(0, MOST_RECENT - running.length))];
}
