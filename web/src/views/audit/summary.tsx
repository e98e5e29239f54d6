import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Model } from "../../api/types";
import { Command } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { countText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { PeriodFields, useFilters } from "./filter-bar";
import { periodOf, periodWords } from "./filters";
import { useNewEvents } from "./new-events";

/** How often what happened in a period, and who caused how much. */
export function Summary() {
  const [filters] = useFilters();
  const period = periodOf(filters);
  const found = useQuery({
    queryKey: ["audit", "summary", period],
    queryFn: ({ signal }) => get<Model<"AuditSummaryAnswer">>(["audit", "summary"], period, signal),
    staleTime: 0,
  });
  useNewEvents(["audit", "summary"], true);
  return (
    <>
      <div className="toolbar">
        <PeriodFields />
      </div>
      {found.isPending && <Loading what="the summary" />}
      {found.error !== null && <ProblemNote error={found.error} retry={() => void found.refetch()} />}
      {found.data?.events === 0 && <Empty title="Nothing happened in this time">Choose another time above.</Empty>}
      {found.data !== undefined && found.data.events > 0 && (
        <>
          <p role="status">{countText(found.data.events, "event")}.</p>
          <div className="audit-counts">
            <Counts
              title="People"
              counts={found.data.people}
              note={isCut(found.data.people) ? "in the newest 20,000 events that name somebody" : undefined}
              to={(name) => ({ by: name })}
            />
            <Counts
              title="Severity"
              counts={found.data.severities}
              to={(name) => ({ severity: name, only: "everything" })}
            />
            <Counts title="Types" counts={found.data.types} to={(name) => ({ type: name, only: "everything" })} />
          </div>
        </>
      )}
      <Command text={["wtb audit summary", ...periodWords(filters)].join(" ")} />
    </>
  );
}

/** Whether there are more events that name somebody than the server reads for its summary. */
function isCut(people: Readonly<Record<string, number>>): boolean {
  return Object.values(people).reduce((sum, count) => sum + count, 0) >= 20_000;
}

interface CountsProps {
  title: string;
  counts: Readonly<Record<string, number>>;
  note?: string;
  to: (name: string) => Record<string, string>;
}

function Counts({ title, counts, note, to }: CountsProps) {
  const rows = Object.entries(counts);
  const most = Math.max(1, ...rows.map(([, count]) => count));
  return (
    <section className="card">
      <h2>{title}</h2>
      {rows.length === 0 && <p className="quiet">nobody</p>}
      {note !== undefined && <p className="quiet">{note}</p>}
      <ul className="bars">
        {rows.map(([name, count]) => (
          <li key={name}>
            <Link to={{ search: new URLSearchParams({ view: "trail", ...to(name) }).toString() }}>{name}</Link>
            <span className="number">{count.toLocaleString("en")}</span>
            <span className="bar-track" aria-hidden="true">
              <span style={{ width: `${(100 * count) / most}%` }} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}
