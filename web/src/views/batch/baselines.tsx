import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { get, send } from "../../api/client";
import type { Batch, Model, Page } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { countText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { useMay } from "../../parts/session";
import { When } from "../../parts/times";
import { Gate } from "./gate";
import type { Matrix } from "./verdicts";

type Baseline = Model<"BaselineAnswer">;

/** Saved scores to compare with: list them, save those of this batch, and judge this batch against one. */
export default function Baselines({ batch, matrix }: { batch: Batch; matrix: Matrix }) {
  const found = useQuery({
    queryKey: ["baselines"],
    queryFn: ({ signal }) => get<Page<Baseline>>(["baselines"], {}, signal),
  });
  const mayAct = useMay("operator");
  if (found.isPending) return <Loading what="the baselines" />;
  if (found.error !== null) return <ProblemNote error={found.error} retry={() => void found.refetch()} />;
  const own = found.data.items.filter((each) => each.workflow === batch.workflow);
  return (
    <div className="two-columns">
      <section className="card">
        <h2>Gate</h2>
        <p className="quiet">Has a combination become worse than a baseline?</p>
        {own.length === 0 ? (
          <p>There is no baseline of workflow {batch.workflow} yet. Save one first.</p>
        ) : (
          <Gate batch={batch} matrix={matrix} baselines={own} />
        )}
      </section>
      <section className="card">
        <h2>Baselines</h2>
        {own.length === 0 ? <p className="quiet">None of this workflow yet.</p> : <BaselineList baselines={own} />}
        {mayAct && <SaveForm batch={batch} matrix={matrix} taken={own.map((each) => each.name)} />}
        <Command text="wtb baseline ls" />
      </section>
    </div>
  );
}

function BaselineList({ baselines }: { baselines: readonly Baseline[] }) {
  return (
    <ul className="baseline-list">
      {baselines.map((each) => (
        <li key={each.name}>
          <strong>{each.name}</strong>: {each.combination} of {each.batches.join(", ")}, {countText(each.cases, "case")}
          , <When at={each.created_at} />
        </li>
      ))}
    </ul>
  );
}

function SaveForm({ batch, matrix, taken }: { batch: Batch; matrix: Matrix; taken: readonly string[] }) {
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [combination, setCombination] = useState(matrix.baseline);
  const saving = useMutation({
    mutationFn: () =>
      send<Baseline>("POST", ["baselines"], { body: { name: name.trim(), batches: [batch.id], combination } }),
    onSuccess: () => client.invalidateQueries({ queryKey: ["baselines"] }),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    saving.mutate();
  };
  const source = combination === matrix.baseline ? batch.name : `${batch.name}:${combination}`;
  return (
    <form className="stack" onSubmit={submit}>
      <h3>Save scores of this batch</h3>
      <label>
        As baseline
        <input value={name} placeholder="main" maxLength={200} onChange={(event) => setName(event.target.value)} />
      </label>
      <label>
        Combination
        <select value={combination} onChange={(event) => setCombination(event.target.value)}>
          {matrix.matrix.map((row) => (
            <option key={row.combination}>{row.combination}</option>
          ))}
        </select>
      </label>
      <button type="submit" disabled={name.trim() === "" || saving.isPending}>
        {taken.includes(name.trim()) ? "Replace the baseline" : "Save the baseline"}
      </button>
      {saving.error !== null && <ProblemNote error={saving.error} />}
      {saving.isSuccess && (
        <p role="status">
          Saved {countText(saving.data.data.results, "result")} as baseline {saving.data.data.name}.
        </p>
      )}
      <Command text={`wtb baseline set ${quoted(name.trim() || "NAME")} ${quoted(source)}`} />
    </form>
  );
}
