import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";
import { Link } from "react-router";
import type { Batch, Model } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { countText } from "../../parts/format";
import { toCase, toRun } from "../../parts/links";
import type { Matrix } from "./verdicts";

const ROW_PX = 64;

/** Everything that failed: runs, evaluators, and calls that could not be taken back. */
export function Failures({ batch, matrix }: { batch: Batch; matrix: Matrix }) {
  const nothing =
    matrix.failures.length + matrix.evaluation_failures.length + matrix.not_taken_back.length + matrix.flaky.length;
  return (
    <>
      {nothing === 0 && <Empty title="Nothing failed">Every run ended well, and every evaluator gave its score.</Empty>}
      {matrix.evaluation_failures.length > 0 && <EvaluatorFailures failures={matrix.evaluation_failures} />}
      {matrix.failures.length > 0 && (
        <FailureList title={countText(matrix.failures.length, "failed run")} rows={matrix.failures} batch={batch} />
      )}
      {matrix.not_taken_back.length > 0 && (
        <FailureList title="Calls that could not be taken back" rows={matrix.not_taken_back} batch={batch} />
      )}
      {matrix.flaky.length > 0 && <Flaky rows={matrix.flaky} batch={batch} />}
      <Command text={`wtb batch show ${quoted(batch.name)} --failed`} />
    </>
  );
}

function EvaluatorFailures({ failures }: { failures: readonly Model<"EvaluatorFailureRow">[] }) {
  return (
    <section>
      <h2>Evaluators that failed</h2>
      {failures.map((each) => (
        <div key={each.evaluator} className="note note-warn">
          <strong>{each.evaluator}</strong> could not score {countText(each.failed, "run")}. The first error:{" "}
          <code>{each.error}</code> {each.run !== null && <Link to={toRun(each.run)}>Open that run</Link>}
        </div>
      ))}
    </section>
  );
}

interface ListProps {
  title: string;
  rows: readonly Model<"FailureRow">[];
  batch: Batch;
}

function FailureList({ title, rows, batch }: ListProps) {
  const frame = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    estimateSize: () => ROW_PX,
    overscan: 8,
  });
  return (
    <section>
      <h2>{title}</h2>
      <div className="card failure-frame" ref={frame} tabIndex={0} role="region" aria-label={title}>
        <ul className="failure-list" style={{ height: virtual.getTotalSize() }}>
          {virtual.getVirtualItems().map(({ index, start }) => {
            const row = rows[index] as Model<"FailureRow">;
            return (
              <li key={index} style={{ transform: `translateY(${start}px)`, height: ROW_PX }}>
                <span className="failure-place">
                  <span className="errors">✕</span> {row.combination} on{" "}
                  <Link to={toCase(batch.id, row.case)}>{row.case}</Link>
                  {batch.repeats > 1 && <span className="quiet"> repeat {row.repeat + 1}</span>}{" "}
                  {row.run !== null && <Link to={toRun(row.run)}>Open run</Link>}
                </span>
                <code className="failure-error" title={row.error}>
                  {row.error}
                </code>
              </li>
            );
          })}
        </ul>
      </div>
    </section>
  );
}

function Flaky({ rows, batch }: { rows: readonly Model<"FlakyRow">[]; batch: Batch }) {
  return (
    <section>
      <h2>Repeats that disagree</h2>
      <div className="scroll card" tabIndex={0} role="region" aria-label="Flaky cases">
        <table>
          <thead>
            <tr>
              <th>Case</th>
              <th>Combination</th>
              <th>Disagree on</th>
              <th>First differ after</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={`${row.case} ${row.combination}`}>
                <td>
                  <Link to={toCase(batch.id, row.case)}>{row.case}</Link>
                </td>
                <td>{row.combination}</td>
                <td>{row.metrics.join(", ")}</td>
                <td>{row.node ?? "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
