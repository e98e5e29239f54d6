/** One checkpoint: what it is, its state, its files and the calls on the way to it. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import { useLiveQueries } from "../../api/live";
import type { Model, Run } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { toRun } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Tabs, useTab } from "../../parts/tabs";
import { CheckpointActions } from "./checkpoint-actions";
import { CheckpointFacts } from "./checkpoint-facts";
import { CheckpointCalls } from "./calls";
import { CheckpointFiles } from "./files";
import { commandName, visitText } from "./labels";
import { Neighbours } from "./neighbours";
import { StateView } from "./state/state-view";
import "./checkpoint.css";

export type Detail = Model<"CheckpointDetailAnswer">;

const TABS = ["state", "files", "calls"] as const;

export default function CheckpointView({ id, target }: { id: string; target: string }) {
  useLiveQueries(id, ["run", id]);
  const run = useQuery({
    queryKey: ["run", id, "answer"],
    queryFn: ({ signal }) => get<Run>(["executions", id], {}, signal),
  });
  const found = useQuery({
    queryKey: ["run", id, "checkpoint", target],
    queryFn: ({ signal }) => get<Detail>(["executions", id, "checkpoints", target], {}, signal),
  });
  if (found.data === undefined)
    return found.error === null ? <Loading what="the checkpoint" /> : <Missing id={id} error={found.error} />;
  return <Shown id={id} run={run.data} at={found.data} />;
}

function Missing({ id, error }: { id: string; error: Error }) {
  return (
    <>
      <h1>No such checkpoint</h1>
      <ProblemNote error={error} />
      <p>
        Choose one of <Link to={toRun(id, "checkpoints")}>the checkpoints of run {id}</Link>.
      </p>
    </>
  );
}

function Shown({ id, run, at }: { id: string; run: Run | undefined; at: Detail }) {
  const tab = useTab(TABS);
  const tabs = [
    { name: "state", label: "State", count: at.state.count ?? undefined },
    { name: "files", label: "Files", count: at.file_count },
    { name: "calls", label: "Calls" },
  ] as const;
  return (
    <article className="checkpoint">
      <Neighbours id={id} at={at} />
      <header>
        <h1>
          {visitText(at)} {at.name !== null && <span className="quiet">“{at.name}”</span>}
        </h1>
        <p className="quiet">
          Step {at.step} of run <Link to={toRun(id)}>{id}</Link>
        </p>
      </header>
      <CheckpointFacts id={id} at={at} />
      <CheckpointActions id={id} run={run} at={at} />
      <Tabs label="Contents of the checkpoint" tabs={tabs} chosen={tab} />
      {tab === "state" && <StateView run={id} at={at.id} answer={at.state} />}
      {tab === "files" && <CheckpointFiles id={id} at={at} />}
      {tab === "calls" && <CheckpointCalls at={at} />}
      {tab === "calls" ? (
        <Command text={`wtb show ${quoted(id)} --events --tools`} label="On the command line, with all other calls" />
      ) : (
        <Command text={`wtb show ${quoted(id)}${tab === "files" ? " --files" : ""} --at ${quoted(commandName(at))}`} />
      )}
    </article>
  );
}
