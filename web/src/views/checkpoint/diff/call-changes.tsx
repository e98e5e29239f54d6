import { Link } from "react-router";
import type { Model } from "../../../api/types";
import { Empty } from "../../../parts/empty";
import { toCheckpoint } from "../../../parts/links";
import { Badge } from "../../../parts/status";
import { CALL_TONES } from "../../../parts/calls";
import { lineOf } from "../state/tagged";
import { CHANGE_TONES } from "./state-changes";

type Change = Model<"CallDiffAnswer">;

const WORDS: Partial<Record<Change["change"], string>> = { added: "only new", removed: "only old" };

/** The calls on the way to only one of the two. */
export function CallChanges({ changes }: { changes: readonly Change[] }) {
  if (changes.length === 0) return <Empty title="The same calls lead to both" />;
  return (
    <div className="scroll" tabIndex={0} role="group" aria-label="Calls">
      <table>
        <thead>
          <tr>
            <th>Where</th>
            <th>Call</th>
            <th>Visit</th>
            <th>Status</th>
            <th>Arguments</th>
            <th>Result</th>
          </tr>
        </thead>
        <tbody>
          {changes.slice(0, 500).map((call, at) => (
            <tr key={at}>
              <td>
                <Badge tone={CHANGE_TONES[call.change]}>{WORDS[call.change] ?? call.change}</Badge>
              </td>
              <td>
                <code>{call.tool}</code>
              </td>
              <td>
                <Link to={toCheckpoint(call.run, `${call.node}#${call.visit}`)}>
                  {call.node}#{call.visit}
                </Link>
              </td>
              <td>
                <Badge tone={CALL_TONES[call.status]}>{call.status}</Badge>
              </td>
              <td className="cell-value">{lineOf(call.arguments)}</td>
              <td className="cell-value">{call.error ?? lineOf(call.result)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {changes.length > 500 && (
        <p className="quiet">The first 500 of {changes.length.toLocaleString("en")} are shown.</p>
      )}
    </div>
  );
}
