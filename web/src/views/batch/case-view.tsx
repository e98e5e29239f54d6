import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Model } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { toBatch } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { isMoving, useBatch } from "./batch-queries";
import "./batch.css";
import { answersOf, type CombinationAnswers } from "./case-answers";
import { CombinationCard } from "./combination-card";
import { ComparedRuns } from "./compared-runs";
import { LongText } from "./long-text";

type Case = Model<"CaseAnswer">;

/** One case side by side: its input, what was expected, and what every combination made of it. */
export default function CaseView({ id, caseId }: { id: string; caseId: string }) {
  const batch = useBatch(id);
  const found = useQuery({
    queryKey: ["batch", id, "case", caseId],
    queryFn: ({ signal }) => get<Case>(["batches", id, "cases", caseId], {}, signal),
    refetchInterval: isMoving(batch.data?.status) ? 5_000 : false,
  });
  return (
    <>
      <p className="crumbs">
        <Link to={toBatch(id)}>Batch {batch.data?.name ?? id}</Link> /{" "}
        <Link to={`${toBatch(id)}?view=cases`}>Cases</Link>
      </p>
      <h1>Case {caseId}</h1>
      {found.isPending && <Loading what="the case" />}
      {found.error !== null && <ProblemNote error={found.error} retry={() => void found.refetch()} />}
      {found.data !== undefined && <Sides found={found.data} baseline={batch.data?.baseline ?? ""} />}
      <Command text={`wtb batch show ${quoted(batch.data?.name ?? id)} --case ${quoted(caseId)}`} />
    </>
  );
}

function Sides({ found, baseline }: { found: Case; baseline: string }) {
  const [show, setShow] = useChoice("show", "all");
  const [chosen, setChosen] = useChoice("runs");
  const runs = chosen === "" ? [] : chosen.split(",");
  const combinations = answersOf(found.results, baseline);
  const base = combinations.find((each) => each.combination === baseline)?.answers[0]?.text ?? null;
  const shown = combinations.filter((each) => FITS[show]?.(each, base) ?? true);
  const toggle = (run: string) =>
    setChosen((runs.includes(run) ? runs.filter((each) => each !== run) : [...runs, run].slice(-2)).join(","));
  return (
    <>
      <section className="two-columns case-texts">
        <div className="card">
          <h2>Input</h2>
          <LongText text={found.input} />
        </div>
        <div className="card">
          <h2>Expected</h2>
          <LongText text={found.expected} />
        </div>
      </section>
      {(found.tags.length > 0 || found.cluster !== null) && (
        <p className="quiet">
          {found.tags.length > 0 && `Tagged ${found.tags.join(", ")}. `}
          {found.cluster !== null && `Cluster ${found.cluster}.`}
        </p>
      )}
      <div className="toolbar">
        <label>
          Show
          <select value={show} onChange={(event) => setShow(event.target.value)}>
            <option value="all">all combinations</option>
            <option value="different">those that differ from the baseline</option>
            <option value="failed">those that failed</option>
          </select>
        </label>
        <ComparedRuns runs={runs} results={found.results} clear={() => setChosen("")} />
      </div>
      {shown.length === 0 && (
        <Empty title="No combination fits">
          <button type="button" onClick={() => setShow("all")}>
            Show all
          </button>
        </Empty>
      )}
      <div className="sides">
        {shown.map((each) => (
          <CombinationCard
            key={each.combination}
            found={each}
            base={each.combination === baseline ? null : base}
            isBaseline={each.combination === baseline}
            chosen={runs}
            toggle={toggle}
          />
        ))}
      </div>
    </>
  );
}

const FITS: Record<string, (each: CombinationAnswers, base: string | null) => boolean> = {
  different: (each, base) => each.isBaseline || each.failed > 0 || each.answers.some((answer) => answer.text !== base),
  failed: (each) => each.failed > 0,
};
