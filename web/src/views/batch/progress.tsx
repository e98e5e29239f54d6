import { Link } from "react-router";
import type { Batch, Model } from "../../api/types";
import { countText, durationText, figureText } from "../../parts/format";
import { toRun } from "../../parts/links";
import { Badge } from "../../parts/status";
import { useNow } from "../../parts/times";
import { isMoving } from "./batch-queries";

/** How far a batch has come: jobs, spending, what runs now, limits, and what was lost on the way. */
export function Progress({ batch }: { batch: Batch }) {
  const done = batch.completed + batch.failed;
  return (
    <section className="card batch-progress" aria-label="Progress">
      <div
        className="meter"
        role="progressbar"
        aria-label="Jobs done"
        aria-valuemin={0}
        aria-valuemax={batch.jobs}
        aria-valuenow={done}
      >
        <span className="meter-good" style={{ width: share(batch.completed, batch.jobs) }} />
        <span className="meter-bad" style={{ width: share(batch.failed, batch.jobs) }} />
      </div>
      <p className="batch-counts" aria-live="polite">
        <strong>
          {done.toLocaleString("en")} of {countText(batch.jobs, "job")} done
        </strong>
        {batch.failed > 0 && <Badge tone="bad">{`✕ ${batch.failed.toLocaleString("en")} failed`}</Badge>}
        {batch.dead > 0 && <Badge tone="bad">{`${batch.dead.toLocaleString("en")} given up`}</Badge>}
        {batch.left > 0 && <span>{batch.left.toLocaleString("en")} left</span>}
        {batch.lost_workers > 0 && <Badge tone="warn">{`${countText(batch.lost_workers, "worker")} lost`}</Badge>}
        <span className="quiet">
          spent {spentText(batch.spent)}; {batch.runner}, {countText(batch.workers, "worker")}
        </span>
      </p>
      {batch.lost_driver !== null && (
        <p className="note note-warn">
          Nobody runs it: process {batch.lost_driver.worker} on {batch.lost_driver.host} {batch.lost_driver.reason}.
          Resume it to go on; results that are there are kept.
        </p>
      )}
      {batch.limits.map((limit) => (
        <LimitLine key={limit.name} limit={limit} />
      ))}
      {batch.running.length > 0 && isMoving(batch.status) && <RunningJobs jobs={batch.running} />}
    </section>
  );
}

function share(part: number, all: number): string {
  return `${all === 0 ? 0 : (100 * part) / all}%`;
}

export function spentText(spent: Model<"SpentAnswer">): string {
  const money = spent.usd ? [`$${figureText(spent.usd)}`] : [];
  const tokens = spent.tokens > 0 ? [countText(spent.tokens, "token")] : [];
  return [...money, ...tokens, durationText(spent.s ?? 0)].join(", ");
}

function LimitLine({ limit }: { limit: Model<"LimitAnswer"> }) {
  const until = limit.until == null ? "" : `, a call is tried from ${new Date(limit.until).toLocaleTimeString()}`;
  return (
    <p>
      Limit <strong>{limit.name}</strong>: {limit.adaptive ? "adaptive, now " : ""}
      {countText(limit.width, "call")} at a time, {limit.held} running, {limit.waiting} waiting.{" "}
      {limit.breaker === "open" && <Badge tone="bad">{`circuit breaker open${until}`}</Badge>}
      {limit.breaker === "trial" && <Badge tone="warn">a call is being tried</Badge>}
    </p>
  );
}

function RunningJobs({ jobs }: { jobs: readonly Model<"RunningJobAnswer">[] }) {
  const now = useNow(1_000);
  return (
    <details open={jobs.length <= 6}>
      <summary>{countText(jobs.length, "job")} running now</summary>
      <div className="scroll running" tabIndex={0} role="region" aria-label="Running jobs">
        <table>
          <thead>
            <tr>
              <th>Case</th>
              <th>Combination</th>
              <th>Worker</th>
              <th className="number">For</th>
              <th>Run</th>
            </tr>
          </thead>
          <tbody>
            {jobs.map((job) => (
              <tr key={job.run}>
                <td>
                  {job.case} {job.repeat > 0 && <span className="quiet">repeat {job.repeat + 1}</span>}
                </td>
                <td>{job.combination}</td>
                <td>
                  {job.worker} on {job.host}
                </td>
                <td className="number">
                  {durationText(Math.max(0, (now.getTime() - new Date(job.started).getTime()) / 1000))}
                </td>
                <td>
                  <Link to={toRun(job.run)}>Open run</Link>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
