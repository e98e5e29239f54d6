import { useInfiniteQuery } from "@tanstack/react-query";
import { get } from "../../../api/client";
import type { Model, Page } from "../../../api/types";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { rowText, type Checkpoint } from "../../checkpoint/labels";

type Row = Model<"CheckpointRowAnswer">;

interface Props {
  /** What is done at the checkpoint. */
  label: string;
  run: string;
  chosen: Checkpoint | null;
  onChoose: (checkpoint: Checkpoint) => void;
}

/** Chooses a restore point by node and visit. */
export function CheckpointChoice({ label, run, chosen, onChoose }: Props) {
  const found = useInfiniteQuery({
    queryKey: ["run", run, "restore points"],
    queryFn: ({ pageParam, signal }) =>
      get<Page<Row>>(["executions", run, "restore-points"], { cursor: pageParam, limit: 200 }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
  if (found.error !== null) return <ProblemNote error={found.error} retry={() => void found.refetch()} />;
  if (found.data === undefined) return <Loading what="the restore points" />;
  const rows = found.data.pages.flatMap((page) => page.items);
  if (rows.length === 0 && !found.hasNextPage) return <p>There is no earlier checkpoint to go back to.</p>;
  return (
    <div className="toolbar">
      <label>
        {label}{" "}
        <select
          value={chosen?.id ?? ""}
          onChange={(event) => {
            const row = rows.find((each) => each.id === event.target.value);
            if (row !== undefined) onChoose(row);
          }}
        >
          <option value="" disabled>
            Choose a node and visit
          </option>
          {rows.map((row) => (
            <option key={row.id} value={row.id}>
              {rowText(row)}
            </option>
          ))}
        </select>
      </label>
      {found.hasNextPage && (
        <button type="button" className="plain" onClick={() => void found.fetchNextPage()}>
          Read earlier ones
        </button>
      )}
    </div>
  );
}
