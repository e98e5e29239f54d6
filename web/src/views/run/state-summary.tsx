import { Link } from "react-router";
import type { Run } from "../../api/types";
import { countText } from "../../parts/format";
import { toCheckpoint } from "../../parts/links";

const MOST_KEYS = 12;

/** The keys of the state at the head, and the way to all of it. */
export function StateSummary({ run }: { run: Run }) {
  if (run.head === null) return null;
  const rows = keysOf(run.state);
  return (
    <details className="run-state">
      <summary>
        State at step {run.head.step}: {countText(run.state.count ?? rows.length, "key")}
      </summary>
      <dl className="facts">
        {rows.slice(0, MOST_KEYS).map(([key, text]) => (
          <div key={key} className="run-state-row">
            <dt className="mono">{key}</dt>
            <dd className="mono">{text}</dd>
          </div>
        ))}
      </dl>
      <p>
        <Link to={toCheckpoint(run.id, run.head.id)}>Look at the whole state</Link>
      </p>
    </details>
  );
}

function keysOf(state: Run["state"]): [string, string][] {
  if (state.is_whole && typeof state.value === "object" && state.value !== null)
    return Object.entries(state.value).map(([key, value]) => [key, short(JSON.stringify(value) ?? "")]);
  return state.children.map((child) => [String(child.key), child.preview ?? child.kind]);
}

function short(text: string): string {
  return text.length > 200 ? `${text.slice(0, 200)} …` : text;
}
