/** When each node ran: steps in the order of time, parallel nodes as lanes of a step, waiting where it happened. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { get } from "../../../api/client";
import type { Model, Run } from "../../../api/types";
import { durationText } from "../../../parts/format";
import { Loading } from "../../../parts/loading";
import { usePages } from "../../../parts/pages";
import { ProblemNote } from "../../../parts/problem";
import { useNow } from "../../../parts/times";
import { VirtualTable, type Column } from "../../../parts/virtual-table";
import { NoVisits } from "../no-visits";
import { blocksOf, visitKey, type Block, type Visit } from "./blocks";
import { blockCells } from "./cells";
import { Overview } from "./overview";
import "./timeline.css";

const COLUMNS: readonly Column[] = [
  { label: "Step", width: "3.2rem", isNumber: true },
  { label: "Node", width: "minmax(8rem, 13rem)" },
  { label: "Time", width: "minmax(10rem, 1fr)" },
  { label: "Took", width: "5.5rem", isNumber: true },
  { label: "Remarks", width: "minmax(7rem, 15rem)" },
];
const STEPS = 200;
const keyOf = (block: Block) => block.key;

type Timeline = Model<"TimelineAnswer">;

export default function TimelineTab({ run }: { run: Run }) {
  const read = useCallback(
    async (cursor: string | null, signal?: AbortSignal) => {
      const found = await get<Timeline>(["executions", run.id, "timeline"], { before: cursor, limit: STEPS }, signal);
      return { items: [...found.items].reverse(), next: found.before === null ? null : String(found.before) };
    },
    [run.id],
  );
  const pages = usePages<Visit>(["run", run.id, "timeline"], read, visitKey);
  const pauses = useQuery({
    queryKey: ["run", run.id, "pauses"],
    queryFn: ({ signal }) => get<Timeline>(["executions", run.id, "timeline"], { limit: 1 }, signal),
    select: (found) => found.pauses,
  });
  const isOpen = run.status === "running" || run.status === "paused";
  const nowMs = useNow(isOpen ? 1_000 : 3_600_000).getTime();
  const isWhole = !pages.hasMore;
  const blocks = useMemo(
    () => blocksOf(pages.items, pauses.data ?? [], isWhole, nowMs),
    [pages.items, pauses.data, isWhole, nowMs],
  );
  // A run that fits on one page is read from its beginning, a long one from its end.
  const isShort = isWhole && pages.items.length <= 2 * STEPS;
  const shown = useMemo(() => (isShort ? blocks : [...blocks].reverse()), [blocks, isShort]);
  const longestMs = Math.max(0.001, ...blocks.map((block) => (block.kind === "step" ? block.lengthMs : 0)));
  if (pages.error !== null && blocks.length === 0) return <ProblemNote error={pages.error} retry={pages.retry} />;
  if (pages.isPending) return <Loading what="the timeline" />;
  if (blocks.length === 0)
    return (
      <NoVisits run={run} title="No node has run yet">
        The first one appears here when it ends, or calls a tool.
      </NoVisits>
    );
  return (
    <section aria-label="Timeline">
      {pages.error !== null && <ProblemNote error={pages.error} retry={pages.retry} />}
      <Overview blocks={blocks} nowMs={nowMs} />
      <p className="quiet timeline-scale">
        {isShort ? "In the order of time" : "The latest first"}. The full width of a bar is{" "}
        {durationText(longestMs / 1000)}; a wait for a person is striped and has one width, however long it lasted.
      </p>
      <VirtualTable
        label="Steps of the run"
        columns={COLUMNS}
        items={shown}
        keyOf={keyOf}
        cells={(block) => blockCells(run.id, block, longestMs, nowMs)}
        rowClass={(block) => `timeline-${block.kind}`}
        hasMore={pages.hasMore}
        onEnd={pages.more}
        minWidth="44rem"
        place={`timeline ${run.id}`}
      />
    </section>
  );
}
