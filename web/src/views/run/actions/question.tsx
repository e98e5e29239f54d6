import { useState, type FormEvent } from "react";
import type { Run } from "../../../api/types";
import { Command, quoted } from "../../../parts/command";
import { ProblemNote } from "../../../parts/problem";
import { wholeText } from "../../checkpoint/state/tagged";
import { resume, useChange } from "./requests";
import { answerOf, fieldOf, startOf, type Raw } from "./schema-form";
import { SchemaField } from "./schema-field";

/** The question that a run asks, with a form for the answer. */
export function Question({ run, mayAct }: { run: Run; mayAct: boolean }) {
  const asked = run.pause?.question ?? null;
  if (asked === null) return null;
  const text = asked["question"];
  return (
    <section className="card question" aria-label="Question">
      <h2>{run.pause?.node ?? "The run"} asks</h2>
      <pre className="question-text">{wholeText(text)}</pre>
      {!mayAct && <p className="quiet">Somebody with the role operator can answer.</p>}
      {mayAct && run.pause?.kind === "in_doubt" && <InDoubt run={run} />}
      {mayAct && run.pause?.kind !== "in_doubt" && (
        <AnswerForm key={String(asked["identity"])} run={run} schema={asked["schema"]} />
      )}
    </section>
  );
}

function AnswerForm({ run, schema }: { run: Run; schema: unknown }) {
  const isFree = schema === null || schema === undefined;
  const [isJson, setJson] = useState(false);
  const field = isJson ? ({ kind: "json" } as const) : fieldOf(schema);
  const [raw, setRaw] = useState<Raw>(() => startOf(field));
  const [faults, setFaults] = useState<readonly string[]>([]);
  const answer = useChange(run.id, (value: unknown) => resume(run.id, { answer: value }));
  const change = (next: Raw) => {
    setRaw(next);
    setFaults([]);
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const found = answerOf(field, raw);
    setFaults("faults" in found ? found.faults : []);
    if ("value" in found) answer.mutate(found.value);
  };
  const filled = answerOf(field, raw);
  const typed = "value" in filled ? ` --answer ${quoted(commandText(filled.value))}` : " --answer …";
  return (
    <form onSubmit={submit} noValidate>
      <SchemaField field={field} raw={raw} label="Answer" onChange={change} />
      {isFree && (
        <label className="as-json">
          <input type="checkbox" checked={isJson} onChange={(event) => setJson(event.target.checked)} /> The answer is
          JSON
        </label>
      )}
      {faults.map((each) => (
        <p key={each} className="fault" role="alert">
          {each}
        </p>
      ))}
      <div className="toolbar">
        <button type="submit" className="primary" disabled={answer.isPending}>
          {answer.isPending ? "Going on …" : "Answer and go on"}
        </button>
      </div>
      {answer.error !== null && <ProblemNote error={answer.error} />}
      <Command text={`wtb resume ${quoted(run.id)}${typed}`} />
    </form>
  );
}

function commandText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Nobody knows whether an external call happened: call it again, or go on with its result. */
function InDoubt({ run }: { run: Run }) {
  const [result, setResult] = useState("");
  const answer = useChange(run.id, (value: unknown) => resume(run.id, { answer: value }));
  const done = () => {
    if (result.trim() === "") return answer.mutate("done");
    try {
      answer.mutate({ done: JSON.parse(result) as unknown });
    } catch {
      answer.mutate({ done: result });
    }
  };
  return (
    <>
      <div className="toolbar">
        <button type="button" disabled={answer.isPending} onClick={done}>
          It happened: go on
        </button>
        <label>
          with the result{" "}
          <input value={result} placeholder="JSON or text" onChange={(event) => setResult(event.target.value)} />
        </label>
        <button type="button" disabled={answer.isPending} onClick={() => answer.mutate("again")}>
          Call it again
        </button>
      </div>
      {answer.error !== null && <ProblemNote error={answer.error} />}
      <Command text={`wtb resume ${quoted(run.id)} --answer again`} />
    </>
  );
}
