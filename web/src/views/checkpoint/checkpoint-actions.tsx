import { useState } from "react";
import { Link } from "react-router";
import type { Run } from "../../api/types";
import { toDiff } from "../../parts/links";
import { useMay } from "../../parts/session";
import { ForkDialog } from "../run/actions/fork-dialog";
import { RestoreDialog } from "../run/actions/restore-dialog";
import type { Detail } from "./checkpoint-view";
import { visitText } from "./labels";

interface Props {
  id: string;
  run: Run | undefined;
  at: Detail;
}

/** What can be done from a checkpoint: go back to it, fork there, compare it. */
export function CheckpointActions({ id, run, at }: Props) {
  const mayAct = useMay("operator");
  const [open, setOpen] = useState<"restore" | "fork" | null>(null);
  const isOnLine = at.mark === "";
  const close = () => setOpen(null);
  return (
    <div className="toolbar">
      {mayAct && run !== undefined && isOnLine && at.restore_point && (
        <button type="button" onClick={() => setOpen("restore")}>
          Restore {visitText(at)} …
        </button>
      )}
      {mayAct && run !== undefined && at.restore_point && (
        <button type="button" onClick={() => setOpen("fork")}>
          Fork from here …
        </button>
      )}
      <span className="compare-links">
        Compare with {at.parent !== null && <Link to={toDiff(id, at.parent, at.id)}>the previous one</Link>}
        {isOnLine && <Link to={toDiff(id, at.id, at.step + 1)}>the next one</Link>}
        {at.mark !== "head" && <Link to={toDiff(id, at.id, "")}>the current position</Link>}
        <Link to={toDiff(id, at.id, at.id)}>another …</Link>
      </span>
      {open === "restore" && run !== undefined && <RestoreDialog run={run} target={at} onClose={close} />}
      {open === "fork" && run !== undefined && <ForkDialog run={run} target={at} onClose={close} />}
    </div>
  );
}
