/** What can be done with a run now: go on, answer, go back, fork, and so on. Only what the role may do is shown. */
import { useState } from "react";
import type { Run } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { ProblemNote } from "../../parts/problem";
import { useMay } from "../../parts/session";
import { ForkDialog } from "./actions/fork-dialog";
import { offersOf, type Offer } from "./actions/offers";
import { Question } from "./actions/question";
import { request, resume, useChange } from "./actions/requests";
import { RestoreDialog } from "./actions/restore-dialog";
import { ResumeDialog } from "./actions/resume-dialog";
import { RollingBack } from "./actions/rolling-back";
import { DeleteDialog, NameDialog, RedoDialog, StopDialog } from "./actions/small-dialogs";
import "./actions/actions.css";

interface Props {
  run: Run;
  /** The version of the run that is shown, for changes that must not be blind. */
  etag: string | null;
}

const LABELS: Record<Offer, string> = {
  resume: "Resume",
  edit: "Resume with changes …",
  pause: "Pause",
  stop: "Stop …",
  restore: "Restore …",
  redo: "Redo …",
  fork: "Fork …",
  name: "Name this position …",
  delete: "Delete …",
};

export function RunActions({ run, etag }: Props) {
  const mayAct = useMay("operator");
  const mayDelete = useMay("admin");
  const [open, setOpen] = useState<Offer | null>(null);
  const go = useChange(run.id, async (verb: "resume" | "pause") => {
    if (verb === "pause") await request(run.id, "pause");
    else await resume(run.id, {});
  });
  const offers = offersOf(run).filter((offer) => (offer === "delete" ? mayDelete : mayAct));
  const choose = (offer: Offer) => (offer === "resume" || offer === "pause" ? go.mutate(offer) : setOpen(offer));
  const close = () => setOpen(null);
  const [first] = offers;
  return (
    <section className="run-actions" aria-label="Actions">
      {run.status === "rolling_back" || run.rollback !== null ? <RollingBack run={run} mayAct={mayAct} /> : null}
      {run.status === "paused" && <Question run={run} mayAct={mayAct} />}
      {offers.length > 0 && (
        <div className="toolbar">
          {offers.map((offer) => (
            <button
              key={offer}
              type="button"
              className={offer === first && offer === "resume" ? "primary" : undefined}
              disabled={go.isPending && go.variables === offer}
              onClick={() => choose(offer)}
            >
              {offer === "resume" && run.status === "failed" ? "Try again" : LABELS[offer]}
            </button>
          ))}
          {go.isPending && <span role="status">{go.variables === "pause" ? "Pausing …" : "Going on …"}</span>}
        </div>
      )}
      {go.error !== null && <ProblemNote error={go.error} />}
      {first === "resume" && <Command text={`wtb resume ${quoted(run.id)}`} />}
      {first === "pause" && <Command text={`wtb pause ${quoted(run.id)}`} />}
      {open === "edit" && <ResumeDialog run={run} etag={etag} onClose={close} />}
      {open === "stop" && <StopDialog run={run} onClose={close} />}
      {open === "restore" && <RestoreDialog run={run} target={null} onClose={close} />}
      {open === "redo" && <RedoDialog run={run} etag={etag} onClose={close} />}
      {open === "fork" && <ForkDialog run={run} target={null} onClose={close} />}
      {open === "name" && <NameDialog run={run} onClose={close} />}
      {open === "delete" && <DeleteDialog run={run} onClose={close} />}
    </section>
  );
}
