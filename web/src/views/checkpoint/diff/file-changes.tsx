import { useMemo, useState } from "react";
import type { Model } from "../../../api/types";
import { Empty } from "../../../parts/empty";
import { sizeText } from "../../../parts/format";
import { Badge } from "../../../parts/status";
import { CHANGE_TONES } from "./state-changes";
import { linesOf, type DiffLine } from "./unified";

type Change = Model<"FileDiffAnswer">;

const WINDOW = 30;

/** The files that differ, texts with their lines. */
export function FileChanges({ changes }: { changes: readonly Change[] }) {
  const [most, setMost] = useState(WINDOW);
  if (changes.length === 0) return <Empty title="The files are equal" />;
  return (
    <section aria-label="File changes">
      {changes.slice(0, most).map((change) => (
        <details key={change.path} className="file-change" open={changes.length <= 10}>
          <summary>
            <code>{change.path}</code> <Badge tone={CHANGE_TONES[change.change]}>{change.change}</Badge>{" "}
            <span className="quiet">{sizesText(change)}</span>
          </summary>
          {change.diff === null ? <p className="quiet">{whyNot(change)}</p> : <Lines diff={change.diff} />}
        </details>
      ))}
      {changes.length > most && (
        <button type="button" onClick={() => setMost(most + WINDOW)}>
          Show {Math.min(WINDOW, changes.length - most)} more files
        </button>
      )}
    </section>
  );
}

function sizesText({ old, new: now, change }: Change): string {
  if (change === "mode changed") return `${old?.mode ?? ""} → ${now?.mode ?? ""}`;
  return [old, now]
    .flatMap((side) => (side === null || side.kind === "folder" ? [] : [sizeText(side.size_bytes)]))
    .join(" → ");
}

function whyNot(change: Change): string {
  if ((change.new ?? change.old)?.kind === "folder") return "A folder.";
  if (change.change === "mode changed") return "Only the permissions differ.";
  return "The contents are not two texts of moderate size, so that only their sizes are shown.";
}

const LINES = 400;
const SIGNS: Record<DiffLine["kind"], string> = { same: " ", added: "+", removed: "−", place: "" };

function Lines({ diff }: { diff: string }) {
  const lines = useMemo(() => linesOf(diff), [diff]);
  const [most, setMost] = useState(LINES);
  return (
    <>
      <div className="scroll" tabIndex={0} role="group" aria-label="Changed lines">
        <table className="lines">
          <tbody>
            {lines.slice(0, most).map((line, at) => (
              <tr key={at} className={`line-${line.kind}`}>
                <td className="line-number">{line.old}</td>
                <td className="line-number">{line.now}</td>
                <td className="line-sign">{SIGNS[line.kind]}</td>
                <td className="line-text">{line.text}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {lines.length > most && (
        <button type="button" className="plain" onClick={() => setMost(most + 10 * LINES)}>
          Show more of {lines.length.toLocaleString("en")} lines
        </button>
      )}
    </>
  );
}
