import type { ReactNode } from "react";
import { Link } from "react-router";
import type { Run } from "../../api/types";
import { countText, figureText, sizeText } from "../../parts/format";
import { toBatch, toCase, toCheckpoint, toWorkflow } from "../../parts/links";
import { Badge, Status } from "../../parts/status";
import { Duration, When } from "../../parts/times";

/** What a run is: its status, and the facts that people look for first. */
export function RunHeader({ run }: { run: Run }) {
  const tokens = run.usage.input_tokens + run.usage.output_tokens;
  return (
    <header className="run-head">
      <div className="run-title">
        <h1>Run {run.id}</h1>
        <Status status={run.status} />
        {run.neglect !== null && (
          <Badge tone={run.neglect === "gone" ? "bad" : "warn"}>
            {run.neglect === "gone" ? "process gone" : "abandoned"}
          </Badge>
        )}
        {run.waits_for === "question" && <Badge tone="waiting">waits for an answer</Badge>}
      </div>
      <dl className="run-facts">
        <Fact name="Workflow">
          <Link to={toWorkflow(run.workflow)}>{run.workflow}</Link>
        </Fact>
        {run.job !== null && (
          <Fact name="Batch">
            <Link to={toBatch(run.job.batch)}>{run.batch_name ?? run.job.batch}</Link>, case{" "}
            <Link to={toCase(run.job.batch, run.job.case)}>{run.job.case}</Link>
            {run.job.combination !== "" && `, ${run.job.combination}`}
            {run.job.repeat > 0 && `, repeat ${run.job.repeat + 1}`}
          </Fact>
        )}
        <Fact name="Created">
          <When at={run.created_at} />
          {run.created_by !== null && ` by ${run.created_by}`}
        </Fact>
        <Fact name="Took">
          <Duration seconds={run.duration_s} />
        </Fact>
        <Fact name="Cost">
          <Cost run={run} />
        </Fact>
        {tokens > 0 && <Fact name="Tokens">{tokens.toLocaleString("en")}</Fact>}
        {run.head !== null && (
          <Fact name="Head">
            <Link to={toCheckpoint(run.id, run.head.id)}>step {run.head.step}</Link>
            {run.branches.length > 1 && ` on ${run.branch}`}
          </Fact>
        )}
        {run.files > 0 && (
          <Fact name="Files">
            {countText(run.files, "file")}, {sizeText(run.file_bytes)}
          </Fact>
        )}
        {Object.keys(run.variants).length > 0 && (
          <Fact name="Variants">
            {Object.entries(run.variants)
              .map(([node, variant]) => `${node}: ${variant}`)
              .join(", ")}
          </Fact>
        )}
        {run.scores.map((score) => (
          <Fact key={score.metric} name={score.metric}>
            {score.error !== null ? (
              <span title={score.error}>failed</span>
            ) : typeof score.score === "number" ? (
              figureText(score.score)
            ) : (
              String(score.score)
            )}
          </Fact>
        ))}
      </dl>
    </header>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** What the way to the head cost; with everything that was rolled back or failed, if that is more. */
function Cost({ run }: { run: Run }) {
  if (run.usage.cost_usd === null) return <span title={`No price for ${run.usage.unpriced.join(", ")}`}>unknown</span>;
  const isMore = (run.spent.cost_usd ?? 0) > run.usage.cost_usd;
  return (
    <>
      {dollars(run.usage.cost_usd)}
      {isMore && <span className="quiet"> ({dollars(run.spent.cost_usd ?? 0)} with what was left behind)</span>}
    </>
  );
}

export function dollars(usd: number): string {
  return usd === 0 ? "$0" : `$${figureText(usd)}`;
}
