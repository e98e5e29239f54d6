/** Dialogs of one question: name the position, stop, redo, delete. */
import { useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { Link, useNavigate } from "react-router";
import { get } from "../../../api/client";
import type { Model, Page, Run } from "../../../api/types";
import { Command, quoted } from "../../../parts/command";
import { Dialog } from "../../../parts/dialog";
import { countText } from "../../../parts/format";
import { toCheckpoint } from "../../../parts/links";
import { ProblemNote } from "../../../parts/problem";
import { visitText } from "../../checkpoint/labels";
import { lineOf } from "../../checkpoint/state/tagged";
import { deleteRun, nameCheckpoint, redo, request, useChange } from "./requests";

interface Props {
  run: Run;
  onClose: () => void;
}

export function NameDialog({ run, onClose }: Props) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState("");
  const go = useChange(run.id, () => nameCheckpoint(run.id, name, description));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    go.mutate(undefined);
  };
  const made = go.data?.checkpoint;
  return (
    <Dialog title={`Name the position of ${run.id}`} onClose={onClose}>
      {made != null ? (
        <section role="status">
          <p className="note">
            The position is called <Link to={toCheckpoint(run.id, made.name)}>{made.name}</Link> now.
          </p>
          <button type="button" onClick={onClose}>
            Close
          </button>
        </section>
      ) : (
        <form className="stacked" onSubmit={submit}>
          <p>
            The run is at {run.head === null ? "its start" : visitText(run.head)}. A named checkpoint is kept for ever,
            and can be gone back to by its name.
          </p>
          <label className="stacked">
            Name <input value={name} required maxLength={200} onChange={(event) => setName(event.target.value)} />
          </label>
          <label className="stacked">
            Why (optional)
            <input value={description} onChange={(event) => setDescription(event.target.value)} />
          </label>
          {go.error !== null && <ProblemNote error={go.error} />}
          <div className="toolbar dialog-end">
            <button type="submit" className="primary" disabled={name.trim() === "" || go.isPending}>
              {go.isPending ? "Naming …" : "Name it"}
            </button>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
          </div>
          <Command
            text={`wtb checkpoint ${quoted(run.id)} ${name === "" ? "NAME" : quoted(name)}${description === "" ? "" : ` --description ${quoted(description)}`}`}
          />
        </form>
      )}
    </Dialog>
  );
}

export function StopDialog({ run, onClose }: Props) {
  const go = useChange(run.id, () => request(run.id, "stop"));
  return (
    <Dialog title={`Stop ${run.id}`} onClose={onClose}>
      <p>
        A stopped run cannot be resumed, only forked. It stops after its current step; what its tools did stays in
        effect.
      </p>
      {go.error !== null && <ProblemNote error={go.error} />}
      <div className="toolbar dialog-end">
        <button
          type="button"
          className="danger"
          disabled={go.isPending}
          onClick={() => go.mutate(undefined, { onSuccess: onClose })}
        >
          {go.isPending ? "Stopping …" : "Stop for good"}
        </button>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
      <Command text={`wtb stop ${quoted(run.id)}`} />
    </Dialog>
  );
}

export function RedoDialog({ run, etag, onClose }: Props & { etag: string | null }) {
  const go = useChange(run.id, () => redo(run.id, etag ?? `"${run.version}"`));
  const calls = useQuery({
    queryKey: ["run", run.id, "undone calls"],
    queryFn: ({ signal }) => get<Page<Model<"CallAnswer">>>(["executions", run.id, "calls"], { limit: 500 }, signal),
  });
  const undone = (calls.data?.items ?? []).filter((call) => call.status === "reversed");
  return (
    <Dialog title={`Redo in ${run.id}`} onClose={onClose}>
      {go.isSuccess ? (
        <section role="status">
          <p className="note">The run is where it was before the rollback.</p>
          <button type="button" onClick={onClose}>
            Close
          </button>
        </section>
      ) : (
        <>
          <p>
            The run goes forward to where its last rollback started. Calls that this rollback undid are made again; if
            one gives another result than before, they are undone once more and the run stays here.
          </p>
          {undone.length > 0 && (
            <details>
              <summary>{countText(undone.length, "call")} of this run are undone now</summary>
              <ul className="plan-calls">
                {undone.map((call) => (
                  <li key={`${call.call} ${call.started_at}`}>
                    <code>{call.tool}</code> <code className="quiet">{lineOf(call.arguments)}</code>
                  </li>
                ))}
              </ul>
            </details>
          )}
          {go.error !== null && <ProblemNote error={go.error} />}
          <div className="toolbar dialog-end">
            <button type="button" className="primary" disabled={go.isPending} onClick={() => go.mutate(undefined)}>
              {go.isPending ? "Going forward …" : "Redo"}
            </button>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
          </div>
          <Command text={`wtb redo ${quoted(run.id)}`} />
        </>
      )}
    </Dialog>
  );
}

export function DeleteDialog({ run, onClose }: Props) {
  const [typed, setTyped] = useState("");
  const navigate = useNavigate();
  const go = useChange(run.id, () => deleteRun(run.id));
  return (
    <Dialog title={`Delete ${run.id}`} onClose={onClose}>
      <p>
        This deletes the run with its {countText(run.checkpoints, "checkpoint")} and {countText(run.files, "file")}.
        Forks and events stay. The effects of its tools are not undone: restore its start first if they should be.
      </p>
      <label className="stacked">
        <span>
          Type <code>{run.id}</code> to delete it
        </span>
        <input value={typed} autoComplete="off" onChange={(event) => setTyped(event.target.value)} />
      </label>
      {go.error !== null && <ProblemNote error={go.error} />}
      <div className="toolbar dialog-end">
        <button
          type="button"
          className="danger"
          disabled={typed !== run.id || go.isPending}
          onClick={() => go.mutate(undefined, { onSuccess: () => void navigate("/runs") })}
        >
          {go.isPending ? "Deleting …" : "Delete the run"}
        </button>
        <button type="button" onClick={onClose}>
          Cancel
        </button>
      </div>
      <Command text={`wtb delete ${quoted(run.id)}`} />
    </Dialog>
  );
}
