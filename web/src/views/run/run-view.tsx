/** One run: what it is and needs at the top, and everything it did below. */
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { useSearchParams } from "react-router";
import { getWithVersion } from "../../api/client";
import { useLiveQueries } from "../../api/live";
import type { Run } from "../../api/types";
import { Command } from "../../parts/command";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Tabs, useTab } from "../../parts/tabs";
import { RunActions } from "./actions";
import BranchesTab from "./branches/branches-tab";
import CallsTab from "./calls-tab";
import CheckpointsTab from "./checkpoints-tab";
import { commandOf, type Part } from "./commands";
import EventsTab from "./events-tab";
import { RunHeader } from "./header";
import { RunNotes } from "./notes";
import OutputTab from "./output-tab";
import { StateSummary } from "./state-summary";
import TimelineTab from "./timeline/timeline-tab";
import UsageTab from "./usage-tab";
import "./run.css";

/** The only part that is large enough to be loaded on its own. */
const GraphTab = lazy(() => import("./graph/graph-tab"));

const NAMES = [
  "graph",
  "timeline",
  "branches",
  "checkpoints",
  "calls",
  "events",
  "output",
  "usage",
] as const satisfies Part[];

const PANELS: Record<Part, React.ComponentType<{ run: Run }>> = {
  graph: GraphTab,
  timeline: TimelineTab,
  branches: BranchesTab,
  checkpoints: CheckpointsTab,
  calls: CallsTab,
  events: EventsTab,
  output: OutputTab,
  usage: UsageTab,
};

export default function RunView({ id }: { id: string }) {
  const query = useQuery({
    queryKey: ["run", id, "whole"],
    queryFn: ({ signal }) => getWithVersion<Run>(["executions", id], {}, signal),
  });
  useLiveQueries(id, ["run", id]);
  const name = useTab(NAMES);
  const [search] = useSearchParams();
  if (query.data === undefined) {
    return (
      <>
        <h1>Run {id}</h1>
        {query.error === null ? (
          <Loading what="the run" />
        ) : (
          <ProblemNote error={query.error} retry={() => void query.refetch()} />
        )}
      </>
    );
  }
  const { data: run, etag } = query.data;
  const Panel = PANELS[name];
  return (
    <>
      <RunHeader run={run} />
      {query.error !== null && <ProblemNote error={query.error} retry={() => void query.refetch()} />}
      <RunNotes run={run} />
      <RunActions run={run} etag={etag} />
      <StateSummary run={run} />
      <Tabs
        label="Parts of the run"
        chosen={name}
        tabs={NAMES.map((each) => ({
          name: each,
          label: each[0]!.toUpperCase() + each.slice(1),
          count: each === "checkpoints" ? run.checkpoints : undefined,
        }))}
      />
      <Suspense fallback={<Loading what={`the ${name}`} />}>
        <Panel run={run} />
      </Suspense>
      <Command text={commandOf(name, id, search)} />
    </>
  );
}
