import { Link } from "react-router";
import type { Run } from "../../api/types";
import { toCheckpoint } from "../../parts/links";

/** What a person should know before anything else: why the run failed, waits, or cannot go on. */
export function RunNotes({ run }: { run: Run }) {
  return (
    <>
      {run.neglect !== null && (
        <p className="note note-warn">
          {run.neglect === "gone"
            ? "The process that ran it has ended. Resume the run: finished nodes do not run again."
            : "It has given no sign of life for an hour. If its process is gone, resume the run."}
        </p>
      )}
      {run.failure !== null && <Failure run={run} failure={run.failure} />}
      {run.pause !== null && run.status === "paused" && run.pause.kind !== "question" && <Pause pause={run.pause} />}
      {run.degraded !== null && <p className="note note-warn">A checkpoint could not be written: {run.degraded}</p>}
      {run.notes.length > 0 && (
        <ul className="note run-notes">
          {run.notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </>
  );
}

function Failure({ run, failure }: { run: Run; failure: NonNullable<Run["failure"]> }) {
  const visit = failure.node === null ? null : `${failure.node}#${failure.visit ?? 1}`;
  return (
    <section className="note note-error" aria-label="Failure">
      <p>
        {visit !== null && (
          <>
            Node <strong>{visit}</strong> failed:{" "}
          </>
        )}
        <strong>{failure.type}</strong>: {failure.message}
      </p>
      {failure.checkpoint !== null && (
        <p>
          <Link to={toCheckpoint(run.id, failure.checkpoint)}>What it began with</Link>
        </p>
      )}
      {failure.traceback !== "" && (
        <details>
          <summary>Traceback</summary>
          <pre className="run-traceback">{failure.traceback}</pre>
        </details>
      )}
    </section>
  );
}

/** Why a run is paused, unless it asks something: then its question stands with the form that answers it. */
function Pause({ pause }: { pause: NonNullable<Run["pause"]> }) {
  return (
    <section className="note run-pause" aria-label="Why it is paused">
      <p>
        Paused: {pause.reason}
        {pause.node !== null && !pause.reason.includes(pause.node) && ` (node ${pause.node})`}
      </p>
    </section>
  );
}
