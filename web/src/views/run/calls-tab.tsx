/** The calls of a run to tools, steps and people: what went in, what came out, and whether it can be undone. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Page, Run } from "../../api/types";
import { CALL_TONES, UNDO, type Call } from "../../parts/calls";
import { useChoice } from "../../parts/choice";
import { Empty } from "../../parts/empty";
import { durationText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Badge } from "../../parts/status";
import { VirtualTable, type Column } from "../../parts/virtual-table";
import { briefly, Json } from "./json";

const COLUMNS: readonly Column[] = [
  { label: "Call", width: "minmax(9rem, 1.2fr)" },
  { label: "In", width: "minmax(6rem, 0.8fr)" },
  { label: "Status", width: "7rem" },
  { label: "Undo", width: "minmax(9rem, 1fr)" },
  { label: "Arguments", width: "minmax(8rem, 1.6fr)" },
  { label: "Took", width: "5rem", isNumber: true },
];

/** One key for all calls of a run, which several parts of the page show. */
export function useCalls(run: string) {
  return useInfiniteQuery({
    queryKey: ["run", run, "calls"],
    queryFn: ({ pageParam, signal }) =>
      get<Page<Call>>(["executions", run, "calls"], { cursor: pageParam, limit: 200 }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
}

const keyOf = (call: Call) => `${call.node} ${call.visit} ${call.call} ${call.started_at}`;

export default function CallsTab({ run }: { run: Run }) {
  const [open, setOpen] = useChoice("call");
  const query = useCalls(run.id);
  const calls = query.data?.pages.flatMap((page) => page.items) ?? [];
  const toggle = (key: string) => setOpen(open === key ? "" : key);
  if (query.data === undefined && query.error !== null)
    return <ProblemNote error={query.error} retry={() => void query.refetch()} />;
  if (query.isPending) return <Loading what="the calls" />;
  if (calls.length === 0)
    return (
      <Empty title="No calls">
        Calls that nodes make with <code>ctx.tool</code>, <code>ctx.step</code> and <code>ctx.ask</code> are shown here.
      </Empty>
    );
  return (
    <>
      {query.error !== null && (
        <ProblemNote
          error={query.error}
          retry={() => void (query.isFetchNextPageError ? query.fetchNextPage() : query.refetch())}
        />
      )}
      <VirtualTable
        label="Calls in the order of their starts"
        columns={COLUMNS}
        items={calls}
        keyOf={keyOf}
        cells={(call) => callCells(call, open === keyOf(call), () => toggle(keyOf(call)))}
        below={(call) => (open === keyOf(call) ? <CallDetails call={call} /> : null)}
        hasMore={query.hasNextPage}
        onEnd={() => void (query.isError || query.isFetchingNextPage || query.fetchNextPage())}
        minWidth="52rem"
        place={`calls ${run.id}`}
      />
    </>
  );
}

function callCells(call: Call, isOpen: boolean, toggle: () => void) {
  const undo = UNDO[call.undo];
  return [
    <button key="call" type="button" className="plain run-open" aria-expanded={isOpen} onClick={toggle}>
      {call.tool}
    </button>,
    call.node === null ? "–" : `${call.node}#${call.visit ?? 1}`,
    <span key="status">
      <Badge tone={CALL_TONES[call.status]}>{call.status}</Badge>
      {call.failures > 0 && call.status !== "failed" && (
        <span className="quiet" title="How many tries failed">
          {" "}
          after {call.failures}
        </span>
      )}
    </span>,
    <span key="undo" className={call.undo === "never" ? "call-never" : "quiet"} title={undo.title}>
      {undo.text}
    </span>,
    <span key="arguments" className="mono quiet">
      {call.error ?? briefly(call.arguments)}
    </span>,
    call.duration_ms === null ? "–" : durationText(call.duration_ms / 1000),
  ];
}

export function CallDetails({ call }: { call: Call }) {
  return (
    <div className="run-call">
      <Json label={`Arguments of ${call.kind} ${call.tool}, effects: ${call.effects}`} value={call.arguments} />
      {call.error === null ? (
        <Json label="Result" value={call.result} />
      ) : (
        <p className="note note-error">{call.error}</p>
      )}
      <p className="quiet">
        Rollback: {UNDO[call.undo].title}. Started {new Date(call.started_at).toLocaleString()}.
      </p>
    </div>
  );
}
