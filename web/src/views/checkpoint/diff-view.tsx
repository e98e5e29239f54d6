/** What changed between two checkpoints, of one run or of two. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import { get, type Query } from "../../api/client";
import { useLiveQueries } from "../../api/live";
import { ProblemError } from "../../api/problems";
import type { Model } from "../../api/types";
import { useChange } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { toRun } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Tabs, useTab } from "../../parts/tabs";
import { CallChanges } from "./diff/call-changes";
import { EndChoice } from "./diff/end-choice";
import { FileChanges } from "./diff/file-changes";
import { LargeStateChanges } from "./diff/large-state-changes";
import { StateChanges } from "./diff/state-changes";
import { visitText } from "./labels";
import "./checkpoint.css";
import "./diff/diff.css";

type Diff = Model<"DiffAnswer">;

export default function DiffView({ id }: { id: string }) {
  const [search] = useSearchParams();
  const change = useChange();
  const from = search.get("from") || "0";
  const to = search.get("to") ?? "";
  const other = search.get("run") ?? id;
  useLiveQueries(id, ["run", id]);
  useLiveQueries(other, ["run", other]);
  const query = { from, to: to === "" ? null : to, run: other === id ? null : other };
  const found = useQuery({
    queryKey: ["run", other, "diff", id, query],
    queryFn: ({ signal }) => readDiff(id, query, signal),
    placeholderData: keepPreviousData,
  });
  const put = (changes: Record<string, string>) =>
    change((search) => {
      for (const [name, value] of Object.entries(changes)) search.set(name, value);
    });
  const swap = () => {
    const search = new URLSearchParams({ from: found.data?.new.id ?? to, to: found.data?.old.id ?? from });
    if (other !== id) search.set("run", id);
    return { pathname: `/runs/${encodeURIComponent(other)}/diff`, search: `?${search}` };
  };
  const { old, new: now } = found.data ?? {};
  const ofRun = (run: string) => (other === id ? "" : ` of ${run}`);
  const isShown = found.error === null && found.data !== undefined;
  return (
    <article className="diff">
      <p>
        <Link to={toRun(id)}>Run {id}</Link>
        {other !== id && (
          <>
            {" · "}
            <Link to={toRun(other)}>Run {other}</Link>
          </>
        )}
      </p>
      <h1>
        {old === undefined || now === undefined || !isShown
          ? "Differences"
          : `What changed from ${visitText(old)}${ofRun(id)} to ${visitText(now)}${ofRun(other)}`}
      </h1>
      <div className="ends">
        <EndChoice label="Old" run={id} at={isShown ? old : undefined} onChoose={(at) => put({ from: at })} />
        <Link className="button swap" to={swap()} title="Compare the other way round">
          Swap
        </Link>
        <EndChoice
          label="New"
          run={other}
          at={isShown ? now : undefined}
          onChoose={(at) => put({ to: at })}
          onRun={(run) => put({ run, to: "" })}
        />
      </div>
      {found.error !== null && <ProblemNote error={found.error} retry={() => void found.refetch()} />}
      {found.data === undefined && found.error === null && <Loading what="the differences" />}
      {isShown && <Changes id={id} ends={query} found={found.data} />}
      <Command
        text={`wtb diff ${quoted(id)} ${quoted(from)}${other !== id ? ` ${quoted(`${other}@${to}`)}` : to === "" ? "" : ` ${quoted(to)}`}`}
      />
    </article>
  );
}

/** Read the differences; those of states that are too large for one answer are read place by place. */
async function readDiff(id: string, query: Query, signal: AbortSignal): Promise<Diff & { isLarge: boolean }> {
  try {
    return { ...(await get<Diff>(["executions", id, "diff"], query, signal)), isLarge: false };
  } catch (error) {
    if (!(error instanceof ProblemError) || error.code !== "too-much-to-show") throw error;
    const rest = await get<Diff>(["executions", id, "diff"], { ...query, part: ["files", "calls"] }, signal);
    return { ...rest, isLarge: true };
  }
}

type Tab = "state" | "files" | "calls";

function Changes({ id, ends, found }: { id: string; ends: Query; found: Diff & { isLarge: boolean } }) {
  const sizes: Record<Tab, number> = {
    state: found.isLarge ? 1 : found.state.length,
    files: found.files.length,
    calls: found.calls.length,
  };
  const all = ["state", "files", "calls"] as const;
  const first = all.find((name) => sizes[name] > 0) ?? "state";
  const tab = useTab<Tab>([first, ...all]);
  const tabs = [
    { name: "state", label: "State", count: found.isLarge ? undefined : sizes.state },
    { name: "files", label: "Files", count: sizes.files },
    { name: "calls", label: "Calls", count: sizes.calls },
  ] as const;
  if (found.old.id === found.new.id)
    return <Empty title="This is one and the same checkpoint">Choose another one above.</Empty>;
  if (sizes.state + sizes.files + sizes.calls === 0)
    return <Empty title="Nothing differs">State, files and calls are the same at both checkpoints.</Empty>;
  return (
    <>
      <Tabs label="Kinds of changes" tabs={tabs} chosen={tab} />
      {tab === "state" &&
        (found.isLarge ? <LargeStateChanges run={id} ends={ends} /> : <StateChanges changes={found.state} />)}
      {tab === "files" && <FileChanges changes={found.files} />}
      {tab === "calls" && <CallChanges changes={found.calls} />}
    </>
  );
}
