import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useId, useState, type FormEvent } from "react";
import { Link } from "react-router";
import { get } from "../../../api/client";
import type { Model, Page, RunList } from "../../../api/types";
import { toCheckpoint, toRun } from "../../../parts/links";
import { ProblemNote } from "../../../parts/problem";
import { rowText, type Checkpoint } from "../labels";

type Row = Model<"CheckpointRowAnswer">;

interface Props {
  label: string;
  run: string;
  /** The checkpoint that is compared; undefined while it is not known. */
  at: Checkpoint | undefined;
  onChoose: (checkpoint: string) => void;
  /** Called with another run; without it the run is fixed. */
  onRun?: (run: string) => void;
}

/** One end of a comparison: a run, and one of its checkpoints by node and visit. */
export function EndChoice({ label, run, at, onChoose, onRun }: Props) {
  const found = useInfiniteQuery({
    queryKey: ["run", run, "checkpoints of all lines"],
    queryFn: ({ pageParam, signal }) =>
      get<Page<Row>>(["executions", run, "checkpoints"], { every: true, cursor: pageParam, limit: 200 }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
  const rows = found.data?.pages.flatMap((page) => page.items) ?? [];
  const isListed = at === undefined || rows.some((row) => row.id === at.id);
  return (
    <section className="card end" aria-label={label}>
      <h2>
        {label}{" "}
        <span className="quiet">
          of run <Link to={toRun(run)}>{run}</Link>
        </span>
      </h2>
      {found.error !== null && <ProblemNote error={found.error} />}
      <div className="toolbar">
        <select
          aria-label={`${label} checkpoint`}
          value={at?.id ?? ""}
          onChange={(event) => onChoose(event.target.value)}
        >
          {at === undefined && <option value="">Choose a checkpoint</option>}
          {!isListed && <option value={at.id}>{rowText(at)}</option>}
          {rows
            .filter((row) => row.mark !== "deleted")
            .map((row) => (
              <option key={row.id} value={row.id}>
                {rowText(row)}
              </option>
            ))}
        </select>
        {found.hasNextPage && (
          <button type="button" className="plain" onClick={() => void found.fetchNextPage()}>
            Read earlier ones
          </button>
        )}
        {at !== undefined && <Link to={toCheckpoint(run, at.id)}>Open it</Link>}
      </div>
      {onRun !== undefined && <OtherRun run={run} onRun={onRun} />}
    </section>
  );
}

function OtherRun({ run, onRun }: { run: string; onRun: (run: string) => void }) {
  const [typed, setTyped] = useState("");
  const list = useId();
  const known = useQuery({
    queryKey: ["runs", "with prefix", typed],
    queryFn: ({ signal }) => get<RunList>(["executions"], { prefix: typed, limit: 10 }, signal),
    enabled: typed.length >= 2,
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typed.trim() !== "" && typed !== run) onRun(typed.trim());
    setTyped("");
  };
  return (
    <form className="toolbar" onSubmit={submit}>
      <label>
        Another run{" "}
        <input list={list} value={typed} placeholder="its id" onChange={(event) => setTyped(event.target.value)} />
      </label>
      <datalist id={list}>
        {known.data?.items.map((row) => (
          <option key={row.id} value={row.id}>
            {row.workflow}, {row.status}
          </option>
        ))}
      </datalist>
      <button type="submit" disabled={typed.trim() === ""}>
        Compare with it
      </button>
    </form>
  );
}
