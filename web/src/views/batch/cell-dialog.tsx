import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { Batch, Model, Page } from "../../api/types";
import { Dialog } from "../../parts/dialog";
import { durationText, figureText } from "../../parts/format";
import { toCase, toRun } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Status } from "../../parts/status";
import { useOpened } from "./opened";
import type { Matrix } from "./verdicts";

type Result = Model<"JobResultAnswer">;

/** The results behind one cell: each repeat with its scores, its answer and its run. */
export function CellDialog({ batch, matrix }: { batch: Batch; matrix: Matrix }) {
  const [opened, open] = useOpened();
  const found = useQuery({
    queryKey: ["batch", batch.id, "results", opened],
    queryFn: ({ signal }) =>
      get<Page<Result>>(
        ["batches", batch.id, "results"],
        { case: opened?.case, combination: opened?.combination, limit: 500 },
        signal,
      ),
    enabled: opened !== null,
  });
  if (opened === null) return null;
  return (
    <Dialog title={`${opened.case}: ${opened.combination}`} onClose={() => open(null)}>
      {found.isPending && <Loading what="the results" />}
      {found.error !== null && <ProblemNote error={found.error} />}
      {found.data?.items.length === 0 && <p>This combination has not run on this case yet.</p>}
      {found.data?.items.map((result) => (
        <RepeatCard key={result.repeat} result={result} matrix={matrix} isOnly={batch.repeats === 1} />
      ))}
      <p>
        <Link className="button" to={toCase(batch.id, opened.case)}>
          All combinations on this case
        </Link>
      </p>
    </Dialog>
  );
}

function RepeatCard({ result, matrix, isOnly }: { result: Result; matrix: Matrix; isOnly: boolean }) {
  return (
    <section className="card repeat-card">
      <h3>
        {isOnly ? "Result" : `Repeat ${result.repeat + 1}`} <Status status={result.status as "completed"} />{" "}
        {result.run !== null && (
          <Link to={toRun(result.run)} aria-label={`Open run of repeat ${result.repeat + 1}`}>
            Open run
          </Link>
        )}
      </h3>
      <p className="score-line">
        {matrix.metrics
          .filter((metric) => metric.name in result.scores)
          .map((metric) => (
            <span key={metric.name}>
              <span className="quiet">{metric.name}</span> <ScoreText score={result.scores[metric.name]} />
            </span>
          ))}
        {result.latency_s != null && (
          <span>
            <span className="quiet">took</span> {durationText(result.latency_s)}
          </span>
        )}
      </p>
      {result.error !== null && (
        <p className="errors">
          ✕ {String(result.error["type"])}: {String(result.error["message"])}
        </p>
      )}
      {result.output !== null && <pre className="output">{result.output}</pre>}
    </section>
  );
}

/** A score as text; an evaluator that failed says why. */
export function ScoreText({ score }: { score: unknown }) {
  if (typeof score === "number") return <span className="number">{figureText(score)}</span>;
  if (typeof score === "boolean") return <span className="number">{score ? "yes" : "no"}</span>;
  if (typeof score === "object" && score !== null && "error" in score)
    return <span className="errors">! {String(score.error)}</span>;
  return <span className="quiet">–</span>;
}
