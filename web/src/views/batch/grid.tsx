import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { get } from "../../api/client";
import type { Batch } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { countText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { timed } from "./batch-queries";
import { CellDialog } from "./cell-dialog";
import { casesPerPage, chosenRows, countsOf, FILTERS, tagsOf, type Filter, type GridPage } from "./grid-data";
import { GridTable } from "./grid-table";
import { metricOf, type Matrix } from "./verdicts";

interface Props {
  batch: Batch;
  matrix: Matrix;
  id: string;
  isRunning: boolean;
}

const LABELS: Record<Filter, string> = {
  all: "All",
  different: "Different",
  flaky: "Flaky",
  failed: "Failed",
};
const HINTS: Record<Filter, string> = {
  all: "Every case, in the order of the batch",
  different: "Cases on which combinations disagree, widest spread first",
  flaky: "Cases on which repeats of one combination disagree",
  failed: "Cases with a failed run or a failed evaluator",
};

/** Cases × combinations: every result, with its repeats, filtered without asking the server. */
export default function Grid({ batch, matrix, id, isRunning }: Props) {
  const [metricName, setMetric] = useChoice("metric", matrix.primary);
  const [filterName, setFilter] = useChoice("show", "all");
  const [tag, setTag] = useChoice("tag");
  const [find, setFind] = useChoice("case");
  const [column, setColumn] = useChoice("combination");
  const filter = FILTERS.find((each) => each === filterName) ?? "all";
  const metric = metricOf(matrix, metricName);
  const pages = useGrid(id, metric.name, batch, isRunning);
  const rows = useMemo(() => pages.data?.pages.flatMap((page) => page.items) ?? [], [pages.data]);
  const shown = useMemo(() => chosenRows(rows, { filter, tag, find }), [rows, filter, tag, find]);
  const counts = useMemo(() => countsOf(rows), [rows]);
  const tags = useMemo(() => tagsOf(rows), [rows]);
  const first = pages.data?.pages[0];
  const columns = useMemo(() => columnsOf(first, column), [first, column]);
  if (pages.isPending) return <Loading what="all scores" />;
  if (first === undefined) return <ProblemNote error={pages.error as Error} retry={() => void pages.refetch()} />;
  return (
    <>
      <div className="toolbar">
        <label>
          Metric
          <select value={metric.name} onChange={(event) => setMetric(event.target.value)}>
            {matrix.metrics.map((each) => (
              <option key={each.name}>{each.name}</option>
            ))}
          </select>
        </label>
        <span className="choices" role="group" aria-label="Which cases">
          {FILTERS.map((each) => (
            <button
              key={each}
              type="button"
              aria-pressed={each === filter}
              title={HINTS[each]}
              onClick={() => setFilter(each)}
            >
              {LABELS[each]} <span className="count">{counts[each].toLocaleString("en")}</span>
            </button>
          ))}
        </span>
        {(tags.length > 0 || tag !== "") && (
          <label>
            Tag
            <select value={tag} onChange={(event) => setTag(event.target.value)}>
              <option value="">any</option>
              {[...new Set([...tags, ...(tag === "" ? [] : [tag])])].map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        <label>
          Case
          <input value={find} placeholder="find" size={12} onChange={(event) => setFind(event.target.value)} />
        </label>
        <label>
          Combination
          <input value={column} placeholder="find" size={12} onChange={(event) => setColumn(event.target.value)} />
        </label>
      </div>
      <p className="quiet grid-words" role="status">
        {countText(shown.length, "case")} × {countText(columns.length, "combination")}.{" "}
        {pages.hasNextPage && `Reading more of ${first.cases.toLocaleString("en")} cases … `}
        {batch.repeats > 1 ? "Each square is a repeat: stronger" : "Stronger"} is better, ✕ failed, ! the evaluator
        failed, ◌ not run yet. Arrow keys move, Enter opens.
      </p>
      {shown.length === 0 || columns.length === 0 ? (
        <Empty title="No case fits">
          <button type="button" onClick={() => (setFilter("all"), setTag(""), setFind(""), setColumn(""))}>
            Show all
          </button>
        </Empty>
      ) : (
        <GridTable page={first} rows={shown} columns={columns} baseline={matrix.baseline} />
      )}
      <CellDialog batch={batch} matrix={matrix} />
      <Command text={commandOf(batch.name, filter, metric.name, tag)} />
    </>
  );
}

/** Read the scores page by page; one page holds tens of thousands. */
function useGrid(id: string, metric: string, batch: Batch, isRunning: boolean) {
  const took = useRef(0);
  const limit = casesPerPage(batch.combinations, batch.repeats);
  const pages = useInfiniteQuery({
    queryKey: ["batch", id, "grid", metric, limit],
    queryFn: ({ pageParam, signal }) =>
      timed(took, get<GridPage>(["batches", id, "grid"], { metric, limit, cursor: pageParam }, signal)),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    refetchInterval: isRunning ? () => Math.max(5_000, 6 * took.current) : false,
  });
  const { hasNextPage, isFetchingNextPage, fetchNextPage, isError } = pages;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && !isError) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage, isError]);
  return pages;
}

function columnsOf(page: GridPage | undefined, find: string): number[] {
  const wanted = find.trim().toLowerCase();
  return (page?.combinations ?? []).flatMap((name, at) => (name.toLowerCase().includes(wanted) ? [at] : []));
}

function commandOf(name: string, filter: Filter, metric: string, tag: string): string {
  const words = [`wtb batch show ${quoted(name)}`];
  if (filter === "different") words.push(`--different ${quoted(metric)}`);
  else words.push(filter === "all" ? "--cases" : `--${filter}`);
  if (tag !== "") words.push(`--tag ${quoted(tag)}`);
  return words.join(" ");
}
