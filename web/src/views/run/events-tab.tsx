/** The events of a run, newest first. */
import { useCallback, useState } from "react";
import { get } from "../../api/client";
import type { Model, Page, Run } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Empty } from "../../parts/empty";
import { clockText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { usePages } from "../../parts/pages";
import { ProblemNote } from "../../parts/problem";
import { Badge } from "../../parts/status";
import { VirtualTable, type Column } from "../../parts/virtual-table";
import { eventText } from "./event-text";
import { Json } from "./json";

type Event = Model<"RunEventAnswer">;

const COLUMNS: readonly Column[] = [
  { label: "No.", width: "4rem", isNumber: true },
  { label: "Event", width: "minmax(11rem, 1fr)" },
  { label: "What", width: "minmax(10rem, 3fr)" },
  { label: "At", width: "8.5rem", isNumber: true },
];
const NOUNS = ["execution", "node", "tool", "checkpoint", "rollback", "branch", "state", "question", "evaluation"];
const SEVERITIES = ["warning", "error"] as const;
const keyOf = (event: Event) => String(event.sequence);

export default function EventsTab({ run }: { run: Run }) {
  const [nounName, setNoun] = useChoice("noun");
  const [severityName, setSeverity] = useChoice("severity");
  const [open, setOpen] = useState<number | null>(null);
  const noun = NOUNS.find((each) => each === nounName) ?? "";
  const severity = SEVERITIES.find((each) => each === severityName) ?? "";
  const read = useCallback(
    (cursor: string | null, signal?: AbortSignal) =>
      get<Page<Event>>(
        ["executions", run.id, "events"],
        {
          type: noun === "" ? [] : [noun],
          severity: severity === "" ? [] : severity === "warning" ? ["warning", "error"] : ["error"],
          cursor,
          limit: 100,
        },
        signal,
      ),
    [run.id, noun, severity],
  );
  const pages = usePages(["run", run.id, "events", noun, severity], read, keyOf);
  return (
    <section aria-label="Events">
      <div className="toolbar">
        <label>
          About{" "}
          <select value={noun} onChange={(event) => setNoun(event.target.value)}>
            <option value="">everything</option>
            {NOUNS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
        <label>
          Severity{" "}
          <select value={severity} onChange={(event) => setSeverity(event.target.value)}>
            <option value="">any</option>
            <option value="warning">warnings and errors</option>
            <option value="error">errors</option>
          </select>
        </label>
      </div>
      {pages.error !== null && <ProblemNote error={pages.error} retry={pages.retry} />}
      {pages.isPending ? (
        <Loading what="the events" />
      ) : pages.items.length === 0 ? (
        <Empty title="No events fit">Choose everything and any severity to see all events of the run.</Empty>
      ) : (
        <VirtualTable
          label="Events, newest first"
          columns={COLUMNS}
          items={pages.items}
          keyOf={keyOf}
          cells={(event) =>
            cellsOf(event, open === event.sequence, () => setOpen(open === event.sequence ? null : event.sequence))
          }
          below={(event) => (open === event.sequence ? <Json label="Data" value={event.data} /> : null)}
          hasMore={pages.hasMore}
          onEnd={pages.more}
          minWidth="44rem"
          place={`events ${run.id} ${noun} ${severity}`}
        />
      )}
    </section>
  );
}

function cellsOf(event: Event, isOpen: boolean, toggle: () => void) {
  return [
    event.sequence,
    <span key="type">
      <button type="button" className="plain run-open" aria-expanded={isOpen} onClick={toggle}>
        {event.type}
      </button>{" "}
      {event.severity !== "info" && <Badge tone={event.severity === "error" ? "bad" : "warn"}>{event.severity}</Badge>}
    </span>,
    <span key="what" className="quiet">
      {eventText(event.data)}
    </span>,
    <time key="at" dateTime={event.at} title={new Date(event.at).toLocaleString()}>
      {clockText(new Date(event.at))}
    </time>,
  ];
}
