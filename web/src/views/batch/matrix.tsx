import { Link, useSearchParams } from "react-router";
import { Breakable } from "../../parts/breakable";
import { useChoice } from "../../parts/choice";
import { columnText, countText, figureText } from "../../parts/format";
import { heatStyle } from "./heat";
import {
  arrowOf,
  bestFirst,
  endsOf,
  markOf,
  metricOf,
  qualityOf,
  type Interval,
  type Matrix,
  type Metric,
  type Row,
} from "./verdicts";

/** Combinations × metrics: means as a heat map, with intervals and verdicts. */
export function MatrixTable({ matrix, tags }: { matrix: Matrix; tags: readonly string[] }) {
  const [sort, setSort] = useChoice("sort", matrix.primary);
  const [find, setFind] = useChoice("combination");
  const [tag, setTag] = useChoice("tag");
  const rows = bestFirst(matrix.matrix, metricOf(matrix, sort));
  const wanted = find.toLowerCase();
  const ends = matrix.metrics.map((metric) => endsOf(matrix.matrix, metric));
  const shown = rows.filter((row) => row.is_baseline || row.combination.toLowerCase().includes(wanted));
  return (
    <>
      <div className="toolbar">
        {matrix.matrix.length > 6 && (
          <label>
            Find a combination
            <input value={find} onChange={(event) => setFind(event.target.value)} />
          </label>
        )}
        {(tags.length > 0 || tag !== "") && (
          <label>
            Cases tagged
            <select value={tag} onChange={(event) => setTag(event.target.value)}>
              <option value="">any</option>
              {[...new Set([...tags, ...(tag === "" ? [] : [tag])])].map((each) => (
                <option key={each}>{each}</option>
              ))}
            </select>
          </label>
        )}
        <span className="quiet">
          ▲ better, ▼ worse than {matrix.baseline}, · no evidence either way; ↑ higher, ↓ lower is better.{" "}
          {matrix.primary} decides who wins.
        </span>
      </div>
      <div className="scroll matrix-frame" tabIndex={0} role="region" aria-label="Scores">
        <table className="matrix">
          <thead>
            <tr>
              <th scope="col">Combination</th>
              {matrix.metrics.map((metric) => (
                <th key={metric.name} scope="col" aria-sort={metric.name === sort ? sortOf(metric) : undefined}>
                  <button type="button" className="plain" onClick={() => setSort(metric.name)}>
                    {metric.name} {arrowOf(metric)}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => (
              <tr key={row.combination} className={row.is_baseline ? "is-baseline" : ""}>
                <th scope="row">
                  <Breakable name={row.combination} />
                  {row.is_baseline && row.combination !== "baseline" && <span className="quiet"> (baseline)</span>}
                </th>
                {matrix.metrics.map((metric, at) => (
                  <Cell key={metric.name} row={row} metric={metric} ends={ends[at] as Ends} />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const sortOf = (metric: Metric) => (metric.direction === "lower" ? "ascending" : "descending");

type Ends = ReturnType<typeof endsOf>;

function Cell({ row, metric, ends }: { row: Row; metric: Metric; ends: Ends }) {
  const [search] = useSearchParams();
  const summary = row.metrics[metric.name];
  const verdict = row.verdicts[metric.name];
  const mark = markOf(verdict?.finding);
  if (summary === undefined) return <td>–</td>;
  const isBad = metric.name === "failed" && (summary.mean ?? 0) > 0; // a share of failures has no good colour
  const quality = summary.mean == null || isBad ? null : qualityOf(summary.mean, ...ends);
  const to = new URLSearchParams(search);
  to.set("view", "cases");
  to.set("metric", metric.name);
  return (
    <td
      className={`heat ${summary.errors > 0 || isBad ? "has-errors" : ""}`}
      style={heatStyle(quality)}
      title={verdict === undefined ? undefined : verdictText(row, metric)}
    >
      <Link to={{ search: to.toString() }} className="heat-figure">
        {columnText(summary.mean)}
      </Link>
      {mark !== null && (
        <span className={`mark mark-${mark.tone}`}>
          {" "}
          {mark.sign} <span className="mark-word">{mark.word}</span>
        </span>
      )}
      <span className="heat-more">
        {summary.interval != null && intervalText(summary.interval)}
        {summary.errors > 0 && <strong className="errors"> ✕ {countText(summary.errors, "error")}</strong>}
        {summary.missing > 0 && <span> {summary.missing.toLocaleString("en")} missing</span>}
      </span>
    </td>
  );
}

export function intervalText(interval: Interval): string {
  return `${columnText(interval.low)} to ${columnText(interval.high)}`;
}

function verdictText(row: Row, metric: Metric): string {
  const found = row.verdicts[metric.name];
  if (found === undefined) return "";
  const range = found.interval == null ? "" : ` (95 %: ${intervalText(found.interval)})`;
  const p = found.adjusted_p == null ? "" : `, p = ${figureText(found.adjusted_p)} adjusted`;
  const reason = found.reason === "" ? "" : `. ${found.reason}`;
  return (
    `${found.finding}: ${figureText(found.difference)}${range}${p}; ` +
    `${found.wins} cases better, ${found.ties} equal, ${found.losses} worse${reason}`
  );
}
