import { Link } from "react-router";
import type { Model, Run } from "../../../api/types";
import { countText, durationText } from "../../../parts/format";
import { toCheckpoint, toRun } from "../../../parts/links";
import { Status } from "../../../parts/status";
import { CallDetails, useCalls } from "../calls-tab";
import { dollars } from "../header";
import type { Visit } from "../timeline/blocks";

interface Props {
  run: Run;
  node: string;
  visits: readonly Visit[];
  usage: Model<"NodeUsageAnswer"> | undefined;
  onClose: () => void;
}

const MOST = 30;

/** What a run did in one node: its visits with their checkpoints, and its calls. */
export function NodePanel({ run, node, visits, usage, onClose }: Props) {
  const calls = useCalls(run.id);
  const own = visits.filter((visit) => visit.node === node).reverse();
  const made = (calls.data?.pages.flatMap((page) => page.items) ?? []).filter((call) => call.node === node);
  return (
    <aside className="card graph-panel" aria-label={`Node ${node}`}>
      <header>
        <h2>{node}</h2>
        <button type="button" className="plain" onClick={onClose} aria-label="Close">
          ✕
        </button>
      </header>
      {usage === undefined ? (
        <p className="quiet">The run has not finished this node.</p>
      ) : (
        <p className="quiet">
          {countText(usage.visits, "visit")}, worked {durationText((usage.busy_ms ?? 0) / 1000)}
          {usage.usage.cost_usd !== null && usage.usage.cost_usd > 0 && `, cost ${dollars(usage.usage.cost_usd)}`}
        </p>
      )}
      {own.length > 0 && (
        <ol className="graph-visits">
          {own.slice(0, MOST).map((visit) => (
            <li key={visit.visit}>
              {visit.step === null ? (
                `${node}#${visit.visit}`
              ) : (
                <Link to={toCheckpoint(run.id, `${node}#${visit.visit}`)}>
                  {node}#{visit.visit}
                </Link>
              )}{" "}
              <Status status={visit.status} />{" "}
              <span className="quiet">
                {visit.busy_ms !== null && durationText(visit.busy_ms / 1000)}
                {visit.attempts > 1 && `, ${countText(visit.attempts, "attempt")}`}
                {visit.is_shared && ", shared result"}
              </span>
              {visit.error !== null && <p className="graph-error">{visit.error}</p>}
            </li>
          ))}
        </ol>
      )}
      {own.length > MOST && <Link to={toRun(run.id, "timeline")}>All visits are in the timeline</Link>}
      {made.length > 0 && <h3>{countText(made.length, "call")}</h3>}
      {made.slice(-MOST).map((call) => (
        <details key={`${call.visit} ${call.call} ${call.started_at}`}>
          <summary>
            {call.tool}{" "}
            <span className="quiet">
              in visit {call.visit ?? 1}, {call.status}
            </span>
          </summary>
          <CallDetails call={call} />
        </details>
      ))}
    </aside>
  );
}
