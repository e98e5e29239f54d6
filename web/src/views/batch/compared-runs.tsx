import { useQueries } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Model, Run } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { toDiff, toRun } from "../../parts/links";

interface Props {
  runs: readonly string[];
  results: readonly Model<"JobResultAnswer">[];
  clear: () => void;
}

/** Two chosen runs: open either, or see what differs between their ends. */
export function ComparedRuns({ runs, results, clear }: Props) {
  const found = useQueries({
    queries: runs.map((run) => ({
      queryKey: ["run", run, "head"],
      queryFn: ({ signal }: { signal: AbortSignal }) => get<Run>(["executions", run], {}, signal),
    })),
  });
  if (runs.length < 2)
    return <span className="quiet">Tick “compare” at two runs to see what differs between them.</span>;
  const [first, second] = runs as [string, string];
  const [from, to] = found.map((each) => each.data?.head?.id);
  const nameOf = (run: string) => {
    const result = results.find((each) => each.run === run);
    return result === undefined ? run : `${result.combination} (${result.repeat + 1})`;
  };
  return (
    <span className="compared" role="group" aria-label="Two runs">
      <Link to={toRun(first)}>{nameOf(first)}</Link> and <Link to={toRun(second)}>{nameOf(second)}</Link>
      {from !== undefined && to !== undefined ? (
        <Link className="button" to={toDiff(first, from, to, second)}>
          Compare the two runs
        </Link>
      ) : (
        <span className="quiet">{found.some((each) => each.isError) ? "One of them is gone." : "…"}</span>
      )}
      <button type="button" className="plain" onClick={clear}>
        Clear
      </button>
      {from !== undefined && to !== undefined && (
        <Command text={`wtb diff ${quoted(first)} ${quoted(from)} ${quoted(`${second}@`)}`} />
      )}
    </span>
  );
}
