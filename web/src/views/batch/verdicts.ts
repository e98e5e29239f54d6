/** Verdicts as the command line shows them: a mark, a word and a tone, so that colour is never the only carrier. */
import type { Model } from "../../api/types";
import type { Tone } from "../../parts/status";

export type Verdict = Model<"VerdictAnswer">;
export type Row = Model<"MatrixRowAnswer">;
export type Matrix = Model<"MatrixAnswer">;
export type Metric = Model<"MetricAnswer">;
export type Interval = Model<"IntervalAnswer">;

interface Mark {
  sign: string;
  word: string;
  tone: Tone;
}

const MARKS: Record<string, Mark> = {
  better: { sign: "▲", word: "better", tone: "good" },
  worse: { sign: "▼", word: "worse", tone: "bad" },
  "no evidence": { sign: "·", word: "no evidence", tone: "idle" },
};

/** Return the mark of a finding; null for the baseline, and where there is nothing to compare. */
export function markOf(finding: string | undefined): Mark | null {
  return finding === undefined ? null : (MARKS[finding] ?? null);
}

export const arrowOf = (metric: Metric) => (metric.direction === "lower" ? "↓" : "↑");

/** The metric of a name, or the primary one. */
export function metricOf(matrix: Matrix, name: string | null): Metric {
  const found = matrix.metrics.find((each) => each.name === name) ?? matrix.metrics.find(isPrimary(matrix));
  return found ?? (matrix.metrics[0] as Metric);
}

const isPrimary = (matrix: Matrix) => (metric: Metric) => metric.name === matrix.primary;

/** The baseline first, then the best mean on a metric; combinations without a mean come last. */
export function bestFirst(rows: readonly Row[], metric: Metric): Row[] {
  const sign = metric.direction === "lower" ? 1 : -1;
  const rank = (row: Row) => {
    const mean = row.metrics[metric.name]?.mean;
    return mean == null ? Number.POSITIVE_INFINITY : sign * mean;
  };
  return [...rows].sort((a, b) => Number(b.is_baseline) - Number(a.is_baseline) || compare(rank(a), rank(b)));
}

const compare = (a: number, b: number) => (a === b ? 0 : a < b ? -1 : 1);

/** Where a score lies between the worst (0) and the best (1) of those that are shown. */
export function qualityOf(score: number, worst: number | null, best: number | null): number {
  if (worst === null || best === null || worst === best) return 0.5;
  return Math.min(1, Math.max(0, (score - worst) / (best - worst)));
}

/** The worst and the best mean of a metric, to colour the others between them. */
export function endsOf(rows: readonly Row[], metric: Metric): [worst: number | null, best: number | null] {
  const means = rows.flatMap((row) => row.metrics[metric.name]?.mean ?? []);
  const isDeclared = metric.worst != null && metric.best != null;
  const all = isDeclared ? [...means, metric.worst as number, metric.best as number] : means;
  if (all.length === 0) return [null, null];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  return metric.direction === "lower" ? [high, low] : [low, high];
}
