import { useQuery } from "@tanstack/react-query";
import { useState, type ChangeEvent } from "react";
import { get } from "../../api/client";
import type { Model } from "../../api/types";
import type { Form } from "./request";

interface Props {
  form: Form;
  change: (changes: Partial<Form>) => void;
}

/** A batch that the server is configured with; its cases and evaluators are those of its file. */
export function ConfiguredFields({ form, change, batches }: Props & { batches: readonly string[] }) {
  return (
    <div className="card stack">
      <label>
        Batch
        <select value={form.batch} onChange={(event) => change({ batch: event.target.value })}>
          {batches.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label>
        <span>
          Only these combinations <span className="quiet">(one a line; all without any)</span>
        </span>
        <textarea
          rows={2}
          value={form.only}
          placeholder="answer=long, retrieve=bm25"
          onChange={(event) => change({ only: event.target.value })}
        />
      </label>
    </div>
  );
}

/** Cases that somebody pastes or opens, over a workflow that the server runs. */
export function InlineFields({ form, change, workflows }: Props & { workflows: readonly string[] }) {
  const set = (name: keyof Form) => (event: ChangeEvent<HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement>) =>
    change({ [name]: event.target.value });
  return (
    <div className="new-columns">
      <div className="card stack">
        <label>
          Workflow
          <select value={form.workflow} onChange={set("workflow")}>
            {workflows.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          <span>
            Name of the batch <span className="quiet">(a new name is a separate batch)</span>
          </span>
          <input value={form.name} placeholder={form.workflow} maxLength={200} onChange={set("name")} />
        </label>
        <label>
          <span>
            Cases{" "}
            <span className="quiet">(JSONL: an object a line with input, and expected, id and tags if you want)</span>
          </span>
          <textarea
            rows={10}
            spellCheck={false}
            value={form.cases}
            placeholder={'{"id": "c1", "input": {"question": "…"}, "expected": {"answer": "…"}}'}
            onChange={set("cases")}
          />
        </label>
        <CaseFile open={(cases) => change({ cases })} />
        <label>
          <span>
            Evaluators <span className="quiet">(by name, such as exact_match:answer token_f1:answer latency_s)</span>
          </span>
          <input value={form.evaluators} spellCheck={false} onChange={set("evaluators")} />
        </label>
      </div>
      <div className="card stack">
        <label>
          Combinations
          <select value={form.variants} onChange={set("variants")}>
            <option value="all">all: every variant with every other</option>
            <option value="one_at_a_time">one factor: each variant alone against the baseline</option>
            <option value="pairwise">pairwise: every two variants meet at least once</option>
            <option value="chosen">chosen ones</option>
          </select>
        </label>
        <Variants workflow={form.workflow} />
        {form.variants === "chosen" && (
          <label>
            Chosen combinations, one a line
            <textarea
              rows={3}
              spellCheck={false}
              value={form.chosen}
              placeholder="answer=long"
              onChange={set("chosen")}
            />
          </label>
        )}
        <label>
          Repeats of each case
          <input type="number" min={1} value={form.repeats} onChange={set("repeats")} />
        </label>
        <label>
          Runner
          <select value={form.runner} onChange={set("runner")}>
            <option value="">as the server is set</option>
            <option value="threads">threads</option>
            <option value="processes">processes, for nodes that compute</option>
          </select>
        </label>
        <label>
          Workers at a time
          <input type="number" min={1} max={64} value={form.workers} placeholder="default" onChange={set("workers")} />
        </label>
        <fieldset className="budget">
          <legend>Start no more jobs after</legend>
          <label>
            $
            <input inputMode="decimal" size={6} value={form.usd} aria-label="Budget in dollars" onChange={set("usd")} />
          </label>
          <label>
            <input
              inputMode="numeric"
              size={8}
              value={form.tokens}
              aria-label="Budget in tokens"
              onChange={set("tokens")}
            />
            tokens
          </label>
          <label>
            <input
              inputMode="decimal"
              size={6}
              value={form.seconds}
              aria-label="Budget in seconds"
              onChange={set("seconds")}
            />
            s
          </label>
        </fieldset>
      </div>
    </div>
  );
}

/** The nodes that have variants, so that nobody has to look them up. */
function Variants({ workflow }: { workflow: string }) {
  const graph = useQuery({
    queryKey: ["workflow", workflow, "graph"],
    queryFn: ({ signal }) => get<Model<"GraphAnswer">>(["workflows", workflow, "graph"], {}, signal),
    enabled: workflow !== "",
  });
  const nodes = graph.data?.nodes.filter((node) => node.variants.length > 0) ?? [];
  if (!graph.isSuccess) return null;
  if (nodes.length === 0)
    return <p className="quiet">No node of this workflow has variants: the batch scores it as it is.</p>;
  return (
    <p className="quiet">
      {nodes.map((node) => (
        <span key={node.name} className="variants">
          <code>{node.name}</code>: {node.variants.join(", ")}
        </span>
      ))}
    </p>
  );
}

/** Opens a file of cases in the browser; only its text is sent, with the batch. */
function CaseFile({ open }: { open: (text: string) => void }) {
  const [name, setName] = useState("");
  const read = async (event: ChangeEvent<HTMLInputElement>) => {
    const file = event.target.files?.[0];
    if (file === undefined) return;
    open(await file.text());
    setName(file.name);
  };
  return (
    <label className="file">
      <span>Or open a file {name !== "" && <span className="quiet">({name})</span>}</span>
      <input type="file" accept=".jsonl,.json,.ndjson,.txt" onChange={(event) => void read(event)} />
    </label>
  );
}
