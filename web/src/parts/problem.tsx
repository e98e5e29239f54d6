import { ProblemError } from "../api/problems";
import { Command } from "./command";

/** Why something did not work, what to do, and a way to try it again. */
export function ProblemNote({ error, retry }: { error: Error; retry?: () => void }) {
  const problem = error instanceof ProblemError ? error.problem : null;
  return (
    <section className="note note-error" role="alert">
      <p>
        <strong>{problem?.title ?? "Unexpected fault"}.</strong> {error.message}
      </p>
      {problem?.faults != null && (
        <ul>
          {problem.faults.map((fault) => (
            <li key={fault}>{fault}</li>
          ))}
        </ul>
      )}
      {problem?.command != null && <Command text={problem.command} />}
      {retry !== undefined && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </section>
  );
}
