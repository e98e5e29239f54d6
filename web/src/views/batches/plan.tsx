import type { Model } from "../../api/types";
import { countText } from "../../parts/format";

interface Props {
  plan: Model<"PlanRow">;
  isFresh: boolean;
  isStarting: boolean;
  start: () => void;
}

/** What a batch would do, before it does anything. */
export function Plan({ plan, isFresh, isStarting, start }: Props) {
  const nodes = plan.node_runs;
  return (
    <section className="card plan" aria-label="Plan">
      <h2>{planText(plan)}</h2>
      <dl className="facts">
        <dt>Jobs</dt>
        <dd>
          {countText(plan.jobs, "job")}: {plan.run.toLocaleString("en")} to run, {plan.kept.toLocaleString("en")} kept
          {plan.scored > 0 && `, ${plan.scored.toLocaleString("en")} only to score`}
        </dd>
        <dt>Node runs</dt>
        <dd>
          {nodes.executed.toLocaleString("en")} executed, about {nodes.shared.toLocaleString("en")} shared,{" "}
          {nodes.kept.toLocaleString("en")} kept
        </dd>
        <dt>External tools</dt>
        <dd>{plan.external.length === 0 ? "none known" : <Lines lines={plan.external} />}</dd>
        <dt>Changes</dt>
        <dd>
          {Object.keys(plan.changes).length === 0 ? (
            "nothing that makes earlier results out of date"
          ) : (
            <>
              These make earlier results out of date:
              <Lines lines={Object.entries(plan.changes).map(([node, words]) => `${node}: ${words.join(", ")}`)} />
            </>
          )}
        </dd>
        {Object.keys(plan.outside).length > 0 && (
          <>
            <dt>Outside</dt>
            <dd>
              Kept results may be outdated, since these used the network or other programs:
              <Lines lines={Object.entries(plan.outside).map(([node, words]) => `${node}: ${words.join(", ")}`)} />
            </dd>
          </>
        )}
      </dl>
      <div className="toolbar">
        <button type="button" className="primary" disabled={!isFresh || isStarting} onClick={start}>
          {isStarting ? "Starting …" : plan.run + plan.scored > 0 ? "Start the batch" : "Run it all the same"}
        </button>
        {!isFresh && <span className="quiet">You have changed something since: plan again.</span>}
      </div>
    </section>
  );
}

function planText(plan: Model<"PlanRow">): string {
  if (plan.run + plan.scored === 0) return "Nothing is left to run";
  if (plan.run === 0) return `${countText(plan.scored, "job")} would be scored, none would run`;
  return `${countText(plan.run, "job")} would run`;
}

function Lines({ lines }: { lines: readonly string[] }) {
  return (
    <ul>
      {lines.map((line) => (
        <li key={line}>{line}</li>
      ))}
    </ul>
  );
}
