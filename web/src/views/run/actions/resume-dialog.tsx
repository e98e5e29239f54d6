import { useEffect, useRef, useState } from "react";
import type { Run } from "../../../api/types";
import { Command, quoted } from "../../../parts/command";
import { Dialog } from "../../../parts/dialog";
import { countText } from "../../../parts/format";
import { ProblemNote } from "../../../parts/problem";
import { bodyOf, optionsOf as editOptions, type Edits } from "./edits";
import { resume, useChange } from "./requests";
import { Breakpoints, changedOptions, optionsOf, optionWords, Variants } from "./run-options";
import { StateEditor } from "./state-editor";

interface Props {
  run: Run;
  etag: string | null;
  onClose: () => void;
}

/** Goes on with a run after changes: its state, its breakpoints, its variants. */
export function ResumeDialog({ run, etag, onClose }: Props) {
  const [edits, setEdits] = useState<Edits>([]);
  const [options, setOptions] = useState(() => optionsOf(run));
  const [isRerun, setRerun] = useState(run.pause?.kind === "calls_differ");
  // The version that the person has seen: an edit of a state that has changed since is refused.
  const seen = useRef({ etag, version: run.version, head: run.head });
  const go = useChange(run.id, () =>
    resume(
      run.id,
      { update: bodyOf(edits), options: changedOptions(run, options), rerun_node: isRerun },
      edits.length > 0 ? (seen.current.etag ?? `"${seen.current.version}"`) : undefined,
    ),
  );
  const isUnderWay = go.isPending && run.version !== seen.current.version;
  useEffect(() => {
    if (go.isSuccess || isUnderWay) onClose();
  }, [go.isSuccess, isUnderWay]); // eslint-disable-line
  const words = editOptions(edits);
  const head = seen.current.head;
  return (
    <Dialog title={`Resume ${run.id} with changes`} onClose={onClose}>
      <div className="wide-dialog">
        <details open>
          <summary>State: {edits.length === 0 ? "as it is" : countText(edits.length, "change")}</summary>
          {head === null ? (
            <p>The run has no checkpoint yet.</p>
          ) : (
            <StateEditor run={run.id} at={head.id} edits={edits} onChange={setEdits} />
          )}
        </details>
        <Breakpoints run={run} options={options} onChange={setOptions} />
        <Variants run={run} variants={options.variants} onChange={(variants) => setOptions({ ...options, variants })} />
        <label className="as-json">
          <input type="checkbox" checked={isRerun} onChange={(event) => setRerun(event.target.checked)} /> Start the
          unfinished node over: undo what can be undone of it first
        </label>
        {go.error !== null && <ProblemNote error={go.error} />}
        <div className="toolbar dialog-end">
          <button type="button" className="primary" disabled={go.isPending} onClick={() => go.mutate(undefined)}>
            {go.isPending ? "Going on …" : "Resume"}
          </button>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
        </div>
        {words === null ? (
          <p className="quiet">The command line sets whole keys only, so no command makes these changes.</p>
        ) : (
          <Command
            text={`wtb resume ${quoted(run.id)}${words}${optionWords(run, options)}${isRerun ? " --rerun-node" : ""}`}
          />
        )}
      </div>
    </Dialog>
  );
}
