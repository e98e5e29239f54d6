import { useInfiniteQuery } from "@tanstack/react-query";
import { Fragment, useEffect, useState } from "react";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Model } from "../../api/types";
import { Command } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { toBatch, toRun } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { shortId } from "../../parts/format";
import { Badge, type Tone } from "../../parts/status";
import { When } from "../../parts/times";
import { eventText } from "../run/event-text";
import { briefly } from "../run/json";
import { FilterBar, useFilters } from "./filter-bar";
import { commandOf, isFiltered, queryOf } from "./filters";
import { useNewEvents } from "./new-events";

type Entry = Model<"AuditEntryAnswer">;
type Answer = Model<"AuditListAnswer">;

const TONES: Record<string, Tone> = { info: "idle", warning: "warn", error: "bad" };

/** With fewer events in sight, the next page is read at once, up to so many pages. */
const [FEW, MOST_PAGES] = [20, 6];

/** The trail, newest first. Until a person asks for older events, it follows what happens. */
export function Entries() {
  const [filters, set] = useFilters();
  const query = queryOf(filters);
  const pages = useInfiniteQuery({
    queryKey: ["audit", "trail", query],
    queryFn: ({ pageParam, signal }) => get<Answer>(["audit"], { ...query, limit: 100, cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    staleTime: 0,
    placeholderData: (before) => before,
  });
  const [isOlder, setOlder] = useState(false);
  const unseen = useNewEvents(["audit", "trail"], !isOlder);
  const entries = pages.data?.pages.flatMap((page) => page.items) ?? [];
  // Of a batch, thousands of events in a row may be no decision: a page that ends among them is short.
  const isShort = entries.length < FEW && (pages.data?.pages.length ?? 0) < MOST_PAGES;
  const { hasNextPage, isFetching, isError, fetchNextPage } = pages;
  useEffect(() => {
    if (isShort && hasNextPage && !isFetching && !isError) void fetchNextPage();
  }, [isShort, hasNextPage, isFetching, isError, fetchNextPage]);
  const faults = [...new Set(pages.data?.pages.flatMap((page) => page.faults))];
  return (
    <>
      <FilterBar />
      {pages.isPending && <Loading what="the trail" />}
      {pages.error !== null && <ProblemNote error={pages.error} retry={() => void pages.refetch()} />}
      {faults.length > 0 && <Faults faults={faults} />}
      {unseen > 0 && (
        <p role="status">
          <button type="button" onClick={() => void pages.refetch()}>
            Show what is new
          </button>
        </p>
      )}
      {pages.isSuccess && entries.length === 0 && faults.length === 0 && <Nothing isFiltered={isFiltered(filters)} />}
      {entries.length > 0 && <EntryTable entries={entries} choose={(name) => set("by", name)} />}
      {pages.hasNextPage && (
        <button
          type="button"
          disabled={pages.isFetchingNextPage}
          onClick={() => (setOlder(true), void pages.fetchNextPage())}
        >
          Show older events
        </button>
      )}
      <Command text={commandOf(filters)} />
    </>
  );
}

export function Faults({ faults }: { faults: readonly string[] }) {
  return (
    <section className="note note-error" role="alert">
      <strong>The log has been changed, or is damaged:</strong>
      <ul>
        {faults.map((fault) => (
          <li key={fault}>{fault}</li>
        ))}
      </ul>
    </section>
  );
}

function Nothing({ isFiltered: has }: { isFiltered: boolean }) {
  if (has) return <Empty title="No event fits">Clear a filter, or show everything.</Empty>;
  return (
    <Empty title="Nobody has done anything yet">
      <p>Runs, batches, tokens and rollbacks are listed here with who caused them. Start a run first:</p>
      <Command text="wtb run workflow.py" label="Type" />
    </Empty>
  );
}

function EntryTable({ entries, choose }: { entries: readonly Entry[]; choose: (name: string) => void }) {
  const [opened, setOpened] = useState<number | null>(null);
  return (
    <div className="scroll card audit-frame" tabIndex={0} role="region" aria-label="Events">
      <table className="audit">
        <thead>
          <tr>
            <th>When</th>
            <th>Who</th>
            <th>What</th>
            <th>Where</th>
            <th>Facts</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <Fragment key={entry.position}>
              <tr>
                <td>
                  <When at={entry.at} />
                </td>
                <td className="audit-who">
                  {entry.by === null ? (
                    <span className="quiet">–</span>
                  ) : (
                    <button type="button" className="plain" onClick={() => choose(entry.by ?? "")}>
                      {entry.by}
                    </button>
                  )}
                </td>
                <td className="audit-what">
                  <Badge tone={TONES[entry.severity] ?? "idle"}>{entry.type}</Badge>
                  {entry.severity !== "info" && <span className="quiet"> {entry.severity}</span>}
                </td>
                <td>
                  <Place entry={entry} />
                </td>
                <td>
                  <button
                    type="button"
                    className="plain audit-facts"
                    aria-expanded={opened === entry.position}
                    onClick={() => setOpened(opened === entry.position ? null : entry.position)}
                  >
                    {briefly(eventText({ ...entry.data, by: null }), 160) || "Details"}
                  </button>
                </td>
              </tr>
              {opened === entry.position && (
                <tr>
                  <td colSpan={5}>
                    <Details entry={entry} />
                  </td>
                </tr>
              )}
            </Fragment>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The run or the batch that an event belongs to. */
function Place({ entry }: { entry: Entry }) {
  const short = <span title={entry.stream}>{shortId(entry.stream)}</span>;
  if (entry.stream === "system") return <span className="quiet">system</span>;
  if (isOfBatch(entry.type)) return <Link to={toBatch(entry.stream)}>batch {short}</Link>;
  return <Link to={toRun(entry.stream)}>run {short}</Link>;
}

const isOfBatch = (type: string) => /^(batch|worker|limit|breaker|baseline)\./.test(type);

function Details({ entry }: { entry: Entry }) {
  return (
    <dl className="facts">
      <dt>Number</dt>
      <dd>
        {entry.position.toLocaleString("en")} in the log, {entry.sequence} in {entry.stream}
      </dd>
      <dt>At</dt>
      <dd>{new Date(entry.at).toLocaleString()}</dd>
      <dt>Hash</dt>
      <dd>
        <code>{entry.hash}</code>
      </dd>
      <dt>Facts</dt>
      <dd>
        <pre>{JSON.stringify(entry.data, null, 2)}</pre>
      </dd>
    </dl>
  );
}
