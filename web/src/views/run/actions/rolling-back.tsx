import { useState } from "react";
import type { Model, Run } from "../../../api/types";
import { Command, quoted } from "../../../parts/command";
import { countText } from "../../../parts/format";
import { ProblemNote } from "../../../parts/problem";
import { Badge, type Tone } from "../../../parts/status";
import { settleRollback, useChange } from "./requests";

type Open = Model<"OpenRollbackAnswer">;
type InDoubt = "done" | "again";

const VERBS: Record<Open["direction"], string> = {
  rollback: "rollback",
  redo: "redo",
  take_back: "undoing of calls",
};

const WORDS: Record<string, string> = {
  succeeded: "in effect",
  intended: "in effect, perhaps",
  reversing: "in doubt",
  redoing: "in doubt",
  reversed: "undone",
  failed: "never happened",
};

const TONES: Record<string, Tone> = { succeeded: "warn", intended: "warn", reversing: "bad", redoing: "bad" };

/** A rollback that stopped half-way: what is done, what is left, and the two ways on. */
export function RollingBack({ run, mayAct }: { run: Run; mayAct: boolean }) {
  const open = run.rollback;
  const [inDoubt, setInDoubt] = useState<InDoubt | null>(null);
  const settle = useChange(run.id, (verb: "continue" | "abandon") => settleRollback(run.id, verb, inDoubt));
  if (open === null) return null;
  const isInDoubt = open.left.some((call) => call.status === "reversing" || call.status === "redoing");
  const what = VERBS[open.direction];
  return (
    <section className="note note-warn" aria-label={`Unfinished ${what}`}>
      <h2>
        The {what} to step {open.step} stopped half-way
      </h2>
      {open.error !== null && <p>{open.error}</p>}
      <div className="half-way">
        <Calls title={`${countText(open.done.length, "call")} done`} calls={open.done} />
        <Calls title={`${countText(open.left.length, "call")} left`} calls={open.left} />
      </div>
      {mayAct && (
        <>
          {isInDoubt && <Doubt chosen={inDoubt} onChoose={setInDoubt} />}
          <div className="toolbar">
            <button
              type="button"
              className="primary"
              disabled={settle.isPending || (isInDoubt && inDoubt === null)}
              onClick={() => settle.mutate("continue")}
            >
              Continue the {what}
            </button>
            <button
              type="button"
              disabled={settle.isPending || (isInDoubt && inDoubt === null)}
              onClick={() => settle.mutate("abandon")}
            >
              Give it up: the run stays where it was
            </button>
            {settle.isPending && <span role="status">Working …</span>}
          </div>
          {settle.error !== null && <ProblemNote error={settle.error} />}
          <Command
            text={`wtb rollback ${quoted(run.id)} --continue${inDoubt === null ? "" : ` --in-doubt ${inDoubt}`}`}
          />
        </>
      )}
    </section>
  );
}

function Calls({ title, calls }: { title: string; calls: Open["done"] }) {
  return (
    <div>
      <h3>{title}</h3>
      <ul className="plan-calls">
        {calls.map((call, at) => (
          <li key={`${call.call} ${at}`}>
            <code>{call.tool}</code>{" "}
            <Badge tone={TONES[call.status] ?? "idle"}>{WORDS[call.status] ?? call.status}</Badge>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Doubt({ chosen, onChoose }: { chosen: InDoubt | null; onChoose: (doubt: InDoubt) => void }) {
  return (
    <fieldset className="consequences">
      <legend>A call was being undone when its process ended. Did that happen?</legend>
      <label>
        <input type="radio" name="in-doubt" checked={chosen === "done"} onChange={() => onChoose("done")} />
        Yes, it is undone
      </label>
      <label>
        <input type="radio" name="in-doubt" checked={chosen === "again"} onChange={() => onChoose("again")} />
        No, or nobody knows: undo it again
      </label>
    </fieldset>
  );
}
