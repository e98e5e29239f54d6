import { useMemo } from "react";
import type { Batch } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { figureText } from "../../parts/format";
import { changeText, IntervalPlot, type PlotLine } from "./interval-plot";
import { MetricChoice } from "./metric-choice";
import { bestFirst, markOf, metricOf, type Matrix, type Metric, type Row } from "./verdicts";

/** How far every combination is from the baseline on one metric, with 95 % intervals. */
export default function Forest({ batch, matrix }: { batch: Batch; matrix: Matrix }) {
  const [name, setName] = useChoice("metric", matrix.primary);
  const metric = metricOf(matrix, name);
  const lines = useMemo(() => linesOf(matrix, metric), [matrix, metric]);
  return (
    <>
      <MetricChoice matrix={matrix} chosen={metric} choose={setName} />
      {lines.length === 0 ? (
        <Empty title="There is nothing to compare">This batch has only one combination.</Empty>
      ) : (
        <>
          <p className="quiet">
            Difference from {matrix.baseline}, paired by case; {metric.direction} is better. The intervals (95 %) are
            not adjusted for many comparisons, the verdicts are: an interval without 0 can go with “no evidence”.
          </p>
          <IntervalPlot lines={lines} label={`Differences on ${metric.name}`} />
        </>
      )}
      <Command text={`wtb compare ${quoted(batch.name)} --metric ${quoted(metric.name)}`} />
    </>
  );
}

function linesOf(matrix: Matrix, metric: Metric): PlotLine[] {
  return bestFirst(matrix.matrix, metric)
    .filter((row) => !row.is_baseline)
    .map((row) => lineOf(row, metric));
}

function lineOf(row: Row, metric: Metric): PlotLine {
  const verdict = row.verdicts[metric.name];
  const mark = markOf(verdict?.finding);
  const errors = row.metrics[metric.name]?.errors ?? 0;
  const p = verdict?.adjusted_p == null ? "" : `, p ${figureText(verdict.adjusted_p)}`;
  const failed = errors > 0 ? ` ✕ ${errors.toLocaleString("en")} failed` : "";
  return {
    key: row.combination,
    name: row.combination,
    difference: verdict?.difference ?? null,
    interval: verdict?.interval,
    tone: errors > 0 && mark?.tone === "good" ? "warn" : (mark?.tone ?? "idle"),
    words: `${mark?.sign ?? ""} ${mark?.word ?? "not compared"} ${changeText(verdict?.difference, verdict?.interval)}${p}${failed}`,
  };
}
