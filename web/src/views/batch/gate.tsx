import { useMutation } from "@tanstack/react-query";
import type { FormEvent } from "react";
import { send } from "../../api/client";
import type { Batch, Model } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { ProblemNote } from "../../parts/problem";
import { Badge, type Tone } from "../../parts/status";
import { MetricSelect } from "./metric-choice";
import { metricOf, type Matrix } from "./verdicts";

type Answer = Model<"GateAnswer">;

const OUTCOMES: Record<string, { tone: Tone; label: string }> = {
  fine: { tone: "good", label: "✓ fine" },
  regression: { tone: "bad", label: "▼ regression" },
  inconclusive: { tone: "warn", label: "? inconclusive" },
};

interface Props {
  batch: Batch;
  matrix: Matrix;
  baselines: readonly Model<"BaselineAnswer">[];
}

/** Judge a combination against a baseline, with the words of `wtb gate`. */
export function Gate({ batch, matrix, baselines }: Props) {
  const [baseline, setBaseline] = useChoice("baseline", baselines[0]?.name ?? "");
  const [metricName, setMetric] = useChoice("metric", matrix.primary);
  const [combination, setCombination] = useChoice("of", matrix.baseline);
  const [drop, setDrop] = useChoice("drop", "0");
  const [errors, setErrors] = useChoice("errors", "0");
  const [proof, setProof] = useChoice("proof", "no");
  const metric = metricOf(matrix, metricName);
  const asked = {
    batch: batch.id,
    baseline,
    metric: metric.name,
    combination,
    max_drop: drop.trim().endsWith("%") ? drop.trim() : Number(drop),
    max_errors: Number(errors),
    non_inferior: proof === "yes",
  };
  const judging = useMutation({ mutationFn: (body: typeof asked) => send<Answer>("POST", ["gates"], { body }) });
  const isJudged = JSON.stringify(judging.variables) === JSON.stringify(asked);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    judging.mutate(asked);
  };
  return (
    <form className="stack" onSubmit={submit}>
      <label>
        Against baseline
        <select value={baseline} onChange={(event) => setBaseline(event.target.value)}>
          {baselines.map((each) => (
            <option key={each.name}>{each.name}</option>
          ))}
        </select>
      </label>
      <label>
        Combination
        <select value={combination} onChange={(event) => setCombination(event.target.value)}>
          {matrix.matrix.map((row) => (
            <option key={row.combination}>{row.combination}</option>
          ))}
        </select>
      </label>
      <label>
        Metric
        <MetricSelect matrix={matrix} chosen={metric} choose={setMetric} />
      </label>
      <label>
        Allowed drop <span className="quiet">in units of the metric, or as 10%</span>
        <input value={drop} onChange={(event) => setDrop(event.target.value)} />
      </label>
      <label>
        Cases that may newly fail
        <input type="number" min={0} value={errors} onChange={(event) => setErrors(event.target.value)} />
      </label>
      <label className="check">
        <input
          type="checkbox"
          checked={proof === "yes"}
          onChange={(event) => setProof(event.target.checked ? "yes" : "no")}
        />
        Pass only with proof that the drop is smaller
      </label>
      <button type="submit" className="primary" disabled={judging.isPending}>
        Judge
      </button>
      {judging.error !== null && <ProblemNote error={judging.error} />}
      {judging.isSuccess && isJudged && <Outcome answer={judging.data.data} />}
      <Command text={commandOf(batch, matrix, asked, drop)} />
    </form>
  );
}

function Outcome({ answer }: { answer: Answer }) {
  const found = OUTCOMES[answer.outcome] ?? { tone: "idle" as Tone, label: answer.outcome };
  return (
    <section className={`gate-outcome gate-${found.tone}`} role="status" aria-label="Outcome of the gate">
      <Badge tone={found.tone}>{found.label}</Badge>
      <pre>{answer.text}</pre>
    </section>
  );
}

interface Asked {
  baseline: string;
  metric: string;
  combination: string;
  max_errors: number;
  non_inferior: boolean;
}

function commandOf(batch: Batch, matrix: Matrix, asked: Asked, drop: string): string {
  const what = asked.combination === matrix.baseline ? batch.name : `${batch.name}:${asked.combination}`;
  const words = [
    `wtb gate ${quoted(what)}`,
    `--baseline ${quoted(asked.baseline)}`,
    `--metric ${quoted(asked.metric)}`,
  ];
  if (drop !== "0") words.push(`--max-drop ${quoted(drop)}`);
  if (asked.max_errors > 0) words.push(`--max-errors ${asked.max_errors}`);
  if (asked.non_inferior) words.push("--non-inferior");
  return words.join(" ");
}
