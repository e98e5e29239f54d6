import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Run } from "../../../api/types";
import { ProblemError } from "../../../api/problems";
import { Command, quoted } from "../../../parts/command";
import { Dialog } from "../../../parts/dialog";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { commandName, visitText, type Checkpoint } from "../../checkpoint/labels";
import { CheckpointChoice } from "./checkpoint-choice";
import { consequencesOf, summaryOf } from "./consequences";
import { PlanView } from "./plan-view";
import { planRollback, rollback, useChange, type Plan, type Scope } from "./requests";
import { Restored } from "./restored";
import "./actions.css";

interface Props {
  run: Run;
  /** Where to go back to; without one, the person chooses. */
  target: Checkpoint | null;
  onClose: () => void;
}

type Shown = { plan: Plan; tag: string };

/** Takes a run back to a checkpoint. It cannot be confirmed before its plan has been seen. */
export function RestoreDialog({ run, target: given, onClose }: Props) {
  const [target, setTarget] = useState(given);
  const [scope, setScope] = useState<Scope>({ tools: true, files: true, shared: "keep" });
  const title = target === null ? `Restore a checkpoint of ${run.id}` : `Restore ${visitText(target)}`;
  return (
    <Dialog title={title} onClose={onClose}>
      {given === null && <CheckpointChoice label="Go back to" run={run.id} chosen={target} onChoose={setTarget} />}
      {target === null ? (
        <Command text={`wtb rollback ${quoted(run.id)} TARGET`} />
      ) : (
        <Planned key={`${target.id} ${JSON.stringify(scope)}`} {...{ run, target, scope, setScope, onClose }} />
      )}
    </Dialog>
  );
}

interface PlannedProps {
  run: Run;
  target: Checkpoint;
  scope: Scope;
  setScope: (scope: Scope) => void;
  onClose: () => void;
}

function Planned({ run, target, scope, setScope, onClose }: PlannedProps) {
  const found = useQuery({
    queryKey: ["plan", run.id, target.id, scope],
    queryFn: ({ signal }) => planRollback(run.id, target.id, scope, signal),
    staleTime: Infinity, // a plan changes only before the eyes of the person who asked for it
    gcTime: 0,
    retry: false,
  });
  const [isStale, setStale] = useState(false);
  const go = useChange(run.id, ({ tag, allow }: { tag: string; allow: boolean }) =>
    rollback(run.id, target.id, scope, tag, allow),
  );
  const confirm = (tag: string, allow: boolean) => {
    setStale(false);
    go.mutate(
      { tag, allow },
      {
        onError: (error) => {
          if (!(error instanceof ProblemError) || error.status !== 412) return;
          setStale(true);
          go.reset();
          void found.refetch();
        },
      },
    );
  };
  if (go.isSuccess) return <Restored run={run} target={target} changed={go.data} onClose={onClose} />;
  if (found.error !== null) return <ProblemNote error={found.error} retry={() => void found.refetch()} />;
  if (found.data === undefined || found.isFetching) return <Loading what="the plan" />;
  return (
    <>
      {isStale && (
        <p className="note note-warn" role="alert">
          The run has changed meanwhile, so nothing was done. This is the new plan: look at it, and confirm again.
        </p>
      )}
      <PlanView run={run.id} plan={found.data.plan} />
      <Options scope={scope} setScope={setScope} />
      <Confirm
        key={found.data.tag}
        shown={found.data}
        {...{ target, scope, onClose }}
        isBusy={go.isPending}
        onConfirm={confirm}
      />
      {go.error !== null && <ProblemNote error={go.error} />}
      <Command text={commandOf(run, target, scope, found.data.plan)} />
    </>
  );
}

/** The command that carries out a plan: like the dialog, it says that calls which cannot be undone are accepted. */
function commandOf(run: Run, target: Checkpoint, scope: Scope, plan: Plan): string {
  const words = [`wtb rollback ${quoted(run.id)} ${quoted(commandName(target))}`];
  if (!scope.tools) words.push("--no-tools");
  if (!scope.files) words.push("--no-files");
  if (scope.shared === "reverse") words.push("--shared reverse");
  if (plan.irreversible.length > 0) words.push("--allow-irreversible");
  return words.join(" ");
}

function Options({ scope, setScope }: { scope: Scope; setScope: (scope: Scope) => void }) {
  return (
    <details>
      <summary>Change what goes back</summary>
      <div className="toolbar">
        <label>
          <input
            type="checkbox"
            checked={scope.tools}
            onChange={(event) => setScope({ ...scope, tools: event.target.checked })}
          />
          Undo the calls of tools
        </label>
        <label>
          <input
            type="checkbox"
            checked={scope.files}
            onChange={(event) => setScope({ ...scope, files: event.target.checked })}
          />
          Put the files back
        </label>
        <label>
          <input
            type="checkbox"
            checked={scope.shared === "reverse"}
            onChange={(event) => setScope({ ...scope, shared: event.target.checked ? "reverse" : "keep" })}
          />
          Also undo calls that a fork builds on
        </label>
      </div>
    </details>
  );
}

interface ConfirmProps {
  shown: Shown;
  target: Checkpoint;
  scope: Scope;
  isBusy: boolean;
  onConfirm: (tag: string, allowIrreversible: boolean) => void;
  onClose: () => void;
}

/** The button, and what has to be accepted first. Another plan begins with nothing accepted. */
function Confirm({ shown, target, scope, isBusy, onConfirm, onClose }: ConfirmProps) {
  const consequences = consequencesOf(shown.plan, scope);
  const [accepted, setAccepted] = useState<readonly string[]>([]);
  const isReady = consequences.every(({ key }) => accepted.includes(key));
  const accept = (key: string, isOn: boolean) =>
    setAccepted(isOn ? [...accepted, key] : accepted.filter((each) => each !== key));
  return (
    <>
      {consequences.length > 0 && (
        <fieldset className="consequences">
          <legend>What you accept</legend>
          {consequences.map(({ key, text }) => (
            <label key={key}>
              <input
                type="checkbox"
                checked={accepted.includes(key)}
                onChange={(event) => accept(key, event.target.checked)}
              />
              {text}
            </label>
          ))}
        </fieldset>
      )}
      <div className="toolbar dialog-end">
        <button
          type="button"
          className="danger"
          disabled={!isReady || isBusy}
          onClick={() => onConfirm(shown.tag, shown.plan.irreversible.length > 0)}
        >
          {isBusy ? "Restoring …" : `Restore ${visitText(target)}: ${summaryOf(shown.plan)}`}
        </button>
        <button type="button" onClick={onClose} disabled={isBusy}>
          Cancel
        </button>
        {!isReady && <span className="quiet">Accept every consequence first.</span>}
      </div>
    </>
  );
}
