/** The list of runs. */
import { useEffect, useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import type { RunRow } from "../../api/types";
import { Command } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { countText } from "../../parts/format";
import { toBatch } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { useMay } from "../../parts/session";
import { VirtualTable } from "../../parts/virtual-table";
import { BatchLines } from "./batch-lines";
import { FilterBar } from "./filter-bar";
import { commandOf, filtersOf, isFiltered, searchOf, type Filters } from "./filters";
import { HealthLine } from "./health-line";
import { COLUMNS, runCells } from "./run-cells";
import { useCounts, useRuns } from "./use-runs";
import "./runs.css";

const keyOf = (row: RunRow) => row.id;

export default function RunsView() {
  const [search] = useSearchParams();
  const text = search.toString();
  const filters = useMemo(() => filtersOf(new URLSearchParams(text)), [text]);
  const runs = useRuns(filters);
  const counts = useCounts(filters);
  const mayStart = useMay("operator");
  const total = Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);
  // A page of runs that need somebody may be empty although others follow: the server looks at some thousands at once.
  const isLooking = runs.items.length === 0 && runs.hasMore && runs.error === null;
  useEffect(() => {
    if (isLooking) runs.more();
  });
  const isBare = !isFiltered(filters) && runs.items.length === 0 && !runs.isPending && runs.error === null;
  return (
    <>
      <header className="runs-head">
        <h1>Runs</h1>
        {total > 0 && <span className="quiet">{countText(total, "run")}</span>}
        <HealthLine filters={filters} />
        {mayStart && !isBare && (
          <Link className="button runs-start" to="/workflows">
            Start a run
          </Link>
        )}
      </header>
      <BatchLines filters={filters} />
      {filters.batch !== "" && filters.batch !== "all" && <OfBatch filters={filters} />}
      {isBare ? (
        <NoRuns />
      ) : (
        <>
          <FilterBar filters={filters} counts={counts} />
          {runs.error !== null && <ProblemNote error={runs.error} retry={runs.retry} />}
          {runs.isPending || isLooking ? (
            <Loading what="the runs" />
          ) : runs.items.length === 0 && runs.error === null ? (
            <Empty title="No run fits these filters">
              <Link to="/runs">Show all runs</Link>
            </Empty>
          ) : (
            <VirtualTable
              label="Runs, newest first"
              columns={COLUMNS}
              items={runs.items}
              keyOf={keyOf}
              cells={runCells}
              hasMore={runs.hasMore}
              onEnd={runs.more}
              minWidth="58rem"
              place={`runs ${text}`}
            />
          )}
        </>
      )}
      <Command text={commandOf(filters)} />
    </>
  );
}

function OfBatch({ filters }: { filters: Filters }) {
  return (
    <p className="note">
      These are the runs of the batch <Link to={toBatch(filters.batch)}>{filters.batch}</Link>.{" "}
      <Link to={{ search: searchOf({ ...filters, batch: "" }).toString() }}>Show the other runs</Link>
    </p>
  );
}

function NoRuns() {
  const mayStart = useMay("operator");
  return (
    <Empty title="No single runs yet">
      {mayStart && (
        <p>
          Choose a <Link to="/workflows">workflow</Link> and start a run of it, or type:
        </p>
      )}
      <Command text="wtb run support.py --set question='Where is my invoice?'" />
      <p>The new run appears here by itself.</p>
    </Empty>
  );
}
