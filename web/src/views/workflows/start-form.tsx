import { useId, useState, type FormEvent } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { get } from "../../api/client";
import type { Model, RunRow } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { toRun } from "../../parts/links";
import { ProblemNote } from "../../parts/problem";
import { choiceOf, commandOf, parseInput, searchOf, type Choice } from "./input";
import { NodeChoices } from "./node-choices";
import { startRun } from "./start-run";

interface Props {
  name: string;
  nodes: readonly Model<"GraphNode">[];
  /** The newest run of the workflow, whose input can be taken. */
  last: RunRow | null;
}

/** Starts a run. The variants and breakpoints stand in the address, so that a way to start can be shared. */
export function StartForm({ name, nodes, last }: Props) {
  const [search, setSearch] = useSearchParams();
  const choice = choiceOf(search);
  const [text, setText] = useState("{}");
  const [isStarting, setStarting] = useState(false);
  const [problem, setProblem] = useState<Error | null>(null);
  const navigate = useNavigate();
  const id = useId();
  const parsed = parseInput(text);
  const choose = (changed: (now: Choice) => Choice) =>
    setSearch(() => searchOf(changed(choiceOf(new URLSearchParams(location.search)))), {
      replace: true,
      preventScrollReset: true,
    });
  const start = async (event: FormEvent) => {
    event.preventDefault();
    if (parsed.fault !== null) return;
    setStarting(true);
    setProblem(null);
    try {
      await navigate(toRun(await startRun(name, parsed.input, choice)));
    } catch (error) {
      setProblem(error as Error);
      setStarting(false);
    }
  };
  const takeLast = async () => {
    if (last === null) return;
    try {
      const state = await get<Model<"StateAnswer">>(["executions", last.id, "state"], { at: 0, whole: true });
      setText(JSON.stringify(state.value, null, 2));
    } catch (error) {
      setProblem(error as Error);
    }
  };
  return (
    <form className="card workflows-form" onSubmit={(event) => void start(event)} aria-label="Start a run">
      <h2>Start a run</h2>
      <div className="workflows-label">
        <label htmlFor={id}>Input, as a JSON object</label>
        {last !== null && (
          <button type="button" className="plain" onClick={() => void takeLast()}>
            Take the input of the last run
          </button>
        )}
      </div>
      <textarea
        id={id}
        rows={Math.min(16, Math.max(5, text.split("\n").length + 1))}
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
        aria-invalid={parsed.fault !== null}
        aria-describedby={`${id}-fault`}
      />
      <p id={`${id}-fault`} className="workflows-problem" role="status">
        {parsed.fault}
      </p>
      <NodeChoices nodes={nodes} choice={choice} onChange={choose} />
      {problem !== null && <ProblemNote error={problem} />}
      <button type="submit" className="primary" disabled={isStarting || parsed.fault !== null}>
        {isStarting ? "Starting …" : "Start the run"}
      </button>
      <Command text={commandOf(last?.source ?? "FILE.py", text, choice, quoted)} />
    </form>
  );
}
