import { useMutation, useQuery } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { act, get, send } from "../../api/client";
import { ProblemError } from "../../api/problems";
import type { BatchRow, CommandAnswer, Model, Page } from "../../api/types";
import { Command } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { toBatch } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { useMay } from "../../parts/session";
import "./batches.css";
import { ConfiguredFields, InlineFields } from "./fields";
import { Plan } from "./plan";
import { commandOf, EMPTY, FormFault, requestOf, type BatchRequest, type Form } from "./request";

/** Plan a batch, look at what would run, and start it. */
export default function NewBatchView() {
  const mayStart = useMay("operator");
  const tests = useQuery({
    queryKey: ["batch-tests"],
    queryFn: ({ signal }) => get<Page<Model<"BatchTestAnswer">>>(["batch-tests"], {}, signal),
    staleTime: 0,
  });
  const flows = useQuery({
    queryKey: ["workflows"],
    queryFn: ({ signal }) => get<Page<Model<"WorkflowAnswer">>>(["workflows"], {}, signal),
  });
  if (!mayStart) return <Empty title="New batch">Your role can look at batches, but not start one.</Empty>;
  const problem = tests.error ?? flows.error;
  if (problem !== null)
    return <ProblemNote error={problem} retry={() => (void tests.refetch(), void flows.refetch())} />;
  if (tests.data === undefined || flows.data === undefined)
    return (
      <>
        <h1>New batch</h1>
        <Loading what="what this server can run" />
      </>
    );
  const served = flows.data.items.filter((flow) => flow.served && flow.name !== null);
  return (
    <>
      <h1>New batch</h1>
      {tests.data.items.map(
        (test) => test.problem && <ProblemNote key={test.problem.detail} error={new ProblemError(test.problem)} />,
      )}
      {served.length === 0 && tests.data.items.length === 0 ? (
        <Empty title="This server can run nothing yet">
          <p>Start it with the file of a batch or of a workflow:</p>
          <Command text="wtb serve batch.py:batch" label="Type" />
        </Empty>
      ) : (
        <NewBatch
          batches={tests.data.items.flatMap((test) => test.name ?? [])}
          workflows={served.flatMap((flow) => flow.name ?? [])}
        />
      )}
    </>
  );
}

function NewBatch({ batches, workflows }: { batches: readonly string[]; workflows: readonly string[] }) {
  const [form, setForm] = useForm(batches, workflows);
  const [planned, setPlanned] = useState<string | null>(null);
  const [fault, setFault] = useState<string | null>(null);
  const navigate = useNavigate();
  const planning = useMutation({
    mutationFn: (body: BatchRequest) => act<Model<"PlanAnswer">>(["batches", "plan"], { body }),
    onSuccess: (_, body) => setPlanned(JSON.stringify(body)),
  });
  const starting = useMutation({
    mutationFn: startBatch,
    onSuccess: ({ id, command }) => navigate(`${toBatch(id)}?command=${encodeURIComponent(command)}`),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setFault(null);
    starting.reset();
    try {
      planning.mutate(requestOf(form));
    } catch (error) {
      planning.reset();
      if (!(error instanceof FormFault)) throw error;
      setFault(error.message);
    }
  };
  const isFresh = planned !== null && planned === textOf(form);
  return (
    <form className="new-batch" onSubmit={submit}>
      <fieldset className="choices">
        <legend>What to run</legend>
        {batches.length > 0 && (
          <label>
            <input
              type="radio"
              name="source"
              checked={form.source === "configured"}
              onChange={() => setForm({ source: "configured" })}
            />
            A batch that this server has
          </label>
        )}
        {workflows.length > 0 && (
          <label>
            <input
              type="radio"
              name="source"
              checked={form.source === "inline"}
              onChange={() => setForm({ source: "inline" })}
            />
            Cases of your own over a workflow
          </label>
        )}
      </fieldset>
      {form.source === "configured" ? (
        <ConfiguredFields form={form} change={setForm} batches={batches} />
      ) : (
        <InlineFields form={form} change={setForm} workflows={workflows} />
      )}
      <div className="toolbar">
        <button type="submit" className={isFresh ? "" : "primary"} disabled={planning.isPending}>
          {planning.isPending ? "Planning …" : "Plan"}
        </button>
        <span className="quiet">Planning runs nothing. You see what would run, and start it then.</span>
      </div>
      {fault !== null && (
        <p className="note note-error" role="alert">
          {fault}
        </p>
      )}
      {planning.error !== null && <ProblemNote error={planning.error} />}
      {planning.data?.data.plan != null && (
        <Plan
          plan={planning.data.data.plan}
          isFresh={isFresh}
          isStarting={starting.isPending}
          start={() => starting.mutate(requestOf(form))}
        />
      )}
      {starting.error !== null && <ProblemNote error={starting.error} />}
      <Command
        text={commandOf(form, isFresh ? "run" : "plan")}
        label="On the command line, with the file of the batch"
      />
    </form>
  );
}

/** The form; the source, the batch and the workflow stand in the address. */
function useForm(batches: readonly string[], workflows: readonly string[]): [Form, (changes: Partial<Form>) => void] {
  const [search, setSearch] = useSearchParams();
  const [typed, setTyped] = useState(EMPTY);
  const isInline = search.has("workflow") || batches.length === 0;
  const form: Form = {
    ...typed,
    source: isInline && workflows.length > 0 ? "inline" : "configured",
    batch: search.get("batch") ?? batches[0] ?? "",
    workflow: search.get("workflow") ?? workflows[0] ?? "",
  };
  const change = (changes: Partial<Form>) => {
    setTyped((before) => ({ ...before, ...changes }));
    if (changes.source === undefined && changes.batch === undefined && changes.workflow === undefined) return;
    const now = { ...form, ...changes };
    setSearch(now.source === "inline" ? { workflow: now.workflow } : { batch: now.batch }, { replace: true });
  };
  return [form, change];
}

function textOf(form: Form): string | null {
  try {
    return JSON.stringify(requestOf(form));
  } catch {
    return null;
  }
}

const LOOK_MS = 400;

/** Start a batch, and wait until it is there or could not begin. */
async function startBatch(body: BatchRequest): Promise<{ id: string; command: string }> {
  const accepted = await send<Model<"BatchChange">>("POST", ["batches"], { body, query: { wait_s: 0 } });
  let command: CommandAnswer = accepted.data.command;
  const name = body.batch ?? body.name ?? "";
  for (;;) {
    if (command.problem != null) throw new ProblemError(command.problem);
    const { items } = await get<Page<BatchRow>>(["batches"], { name, limit: 1 });
    const found = items[0];
    const isOver = command.status !== "pending" && command.status !== "running";
    if (found !== undefined && (isOver || found.status === "running" || found.updated_at > command.created_at))
      return { id: found.id, command: command.id };
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    command = await get<CommandAnswer>(["commands", command.id]);
  }
}
