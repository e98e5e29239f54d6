import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../../api/client";
import type { Model, Page, Run } from "../../../api/types";
import { toCheckpoint, toRun } from "../../../parts/links";
import { Status } from "../../../parts/status";
import { visitText, type Checkpoint } from "../../checkpoint/labels";
import type { RunChange } from "./requests";

interface Props {
  run: Run;
  target: Checkpoint;
  changed: RunChange;
  onClose: () => void;
}

/** How a rollback ended: where the run is now, and the safety copy of where it was. */
export function Restored({ run, target, changed, onClose }: Props) {
  const saved = useQuery({
    queryKey: ["run", run.id, "safety copies"],
    queryFn: ({ signal }) =>
      get<Page<Model<"CheckpointRowAnswer">>>(
        ["executions", run.id, "checkpoints"],
        { every: true, limit: 500 },
        signal,
      ),
  });
  const copies = (saved.data?.items ?? []).filter((row) => row.mark === "safety");
  const safety = copies.sort((one, other) => other.created_at.localeCompare(one.created_at))[0];
  return (
    <section role="status">
      <p className="note">
        Run <Link to={toRun(run.id)}>{run.id}</Link> is at {visitText(target)} again, and{" "}
        <Status status={changed.run?.status ?? "paused"} />. Nothing was deleted: Redo goes forward again.
      </p>
      {safety !== undefined && (
        <p>
          Where it was before is kept as the <Link to={toCheckpoint(run.id, safety.id)}>safety checkpoint</Link>.
        </p>
      )}
      <div className="toolbar dialog-end">
        <button type="button" className="primary" onClick={onClose}>
          Close
        </button>
      </div>
    </section>
  );
}
