import { scaleLinear } from "@visx/scale";
import { useRef } from "react";
import type { Batch, Model } from "../../api/types";
import { Breakable } from "../../parts/breakable";
import { useChoice } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { columnText, figureText } from "../../parts/format";
import { ProblemNote } from "../../parts/problem";
import { useResults } from "./batch-queries";
import { MetricSelect } from "./metric-choice";
import { useWidth } from "./use-width";
import { arrowOf, bestFirst, metricOf, type Matrix, type Metric } from "./verdicts";

interface Props {
  batch: Batch;
  matrix: Matrix;
  id: string;
  isRunning: boolean;
}

interface Point {
  name: string;
  key: string;
  x: number;
  y: number;
  isFront: boolean;
  errors: number;
}

const HEIGHT = 380;
const PRICES = ["cost_usd", "latency_s", "tokens"];

/** Two metrics against each other, and the combinations that no other one is shown to beat on both. */
export default function TradeOff({ batch, matrix, id, isRunning }: Props) {
  const [yName, setY] = useChoice("y", matrix.primary);
  const [xName, setX] = useChoice("x", otherMetric(matrix));
  const [x, y] = [metricOf(matrix, xName), metricOf(matrix, yName)];
  const chosen = x.name === y.name ? [y.name] : [y.name, x.name];
  const front = useResults<Model<"ParetoAnswer">>(id, "pareto", { metric: chosen }, isRunning);
  const points = pointsOf(matrix, x, y, new Set(front.data?.combinations));
  return (
    <>
      <div className="toolbar">
        <label>
          Up
          <MetricSelect matrix={matrix} chosen={y} choose={setY} />
        </label>
        <label>
          Across
          <MetricSelect matrix={matrix} chosen={x} choose={setX} />
        </label>
      </div>
      {front.error !== null && <ProblemNote error={front.error} retry={() => void front.refetch()} />}
      {points.length === 0 ? (
        <Empty title="There are no scores on both metrics yet">
          Choose other metrics above, or wait: points appear here as jobs end.
        </Empty>
      ) : (
        <div className="trade-off">
          <Picture points={points} x={x} y={y} isKnown={front.isSuccess} />
          <PointTable points={points} x={x} y={y} isKnown={front.isSuccess} />
        </div>
      )}
      <Command
        text={`wtb batch show ${quoted(batch.name)} ${chosen.map((name) => `--pareto ${quoted(name)}`).join(" ")}`}
      />
    </>
  );
}

/** Something that quality is usually paid for with, else another metric. */
function otherMetric(matrix: Matrix): string {
  const others = matrix.metrics.filter((each) => each.name !== matrix.primary);
  const price = PRICES.find((name) => others.some((each) => each.name === name));
  return price ?? others[0]?.name ?? matrix.primary;
}

function pointsOf(matrix: Matrix, x: Metric, y: Metric, front: ReadonlySet<string>): Point[] {
  return bestFirst(matrix.matrix, y).flatMap((row, at) => {
    const [across, up] = [row.metrics[x.name]?.mean, row.metrics[y.name]?.mean];
    if (across == null || up == null) return [];
    const errors = Math.max(row.metrics[x.name]?.errors ?? 0, row.metrics[y.name]?.errors ?? 0);
    const key = row.is_baseline ? "B" : String(at);
    return [{ name: row.combination, key, x: across, y: up, isFront: front.has(row.combination), errors }];
  });
}

interface PictureProps {
  points: readonly Point[];
  x: Metric;
  y: Metric;
  /** Whether it is known which points are beaten. */
  isKnown: boolean;
}

function Picture({ points, x, y, isKnown }: PictureProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box, 520);
  const across = scaleOf(
    points.map((point) => point.x),
    [56, width - 16],
  );
  const up = scaleOf(
    points.map((point) => point.y),
    [HEIGHT - 40, 14],
  );
  return (
    <figure ref={box} className="card trade-picture">
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={`${y.name} against ${x.name}; the table has the figures`}
      >
        {up.ticks(5).map((tick) => (
          <g key={tick}>
            <line x1={56} x2={width - 16} y1={up(tick)} y2={up(tick)} className="plot-tick" />
            <text x={50} y={up(tick) + 4} textAnchor="end">
              {figureText(tick)}
            </text>
          </g>
        ))}
        {across.ticks(Math.max(2, Math.floor(width / 110))).map((tick) => (
          <g key={tick}>
            <line x1={across(tick)} x2={across(tick)} y1={14} y2={HEIGHT - 40} className="plot-tick" />
            <text x={across(tick)} y={HEIGHT - 24} textAnchor="middle">
              {figureText(tick)}
            </text>
          </g>
        ))}
        <text x={(56 + width - 16) / 2} y={HEIGHT - 6} textAnchor="middle" className="axis-name">
          {x.name} {arrowOf(x)}
        </text>
        <text transform={`translate(13 ${HEIGHT / 2}) rotate(-90)`} textAnchor="middle" className="axis-name">
          {y.name} {arrowOf(y)}
        </text>
        {[...points].reverse().map((point) => (
          <g key={point.name} transform={`translate(${across(point.x)} ${up(point.y)})`} className={lookOf(point)}>
            <title>{`${point.name}: ${y.name} ${figureText(point.y)}, ${x.name} ${figureText(point.x)}`}</title>
            {point.isFront ? <path d="M0 -8L8 0L0 8L-8 0Z" /> : <circle r={5} />}
            <text x={10} y={-6}>
              {point.key}
            </text>
          </g>
        ))}
      </svg>
      <figcaption className="quiet">
        {isKnown
          ? "◆ no other combination is shown to beat it on both · ○ beaten · B the baseline"
          : "Reading which combinations are beaten … · B the baseline"}
        {points.some((point) => point.errors > 0) && " · dashed: has failed runs"}
      </figcaption>
    </figure>
  );
}

function scaleOf(values: readonly number[], range: [number, number]) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return scaleLinear<number>({ domain: [low - room, high + room], range });
}

function lookOf(point: Point): string {
  return `point ${point.isFront ? "is-front" : ""} ${point.errors > 0 ? "has-errors" : ""}`;
}

function PointTable({ points, x, y, isKnown }: PictureProps) {
  return (
    <div className="scroll point-table" tabIndex={0} role="region" aria-label="All combinations">
      <table>
        <thead>
          <tr>
            <th>#</th>
            <th>Combination</th>
            <th className="number">{y.name}</th>
            <th className="number">{x.name}</th>
          </tr>
        </thead>
        <tbody>
          {points.map((point) => (
            <tr key={point.name} className={point.isFront ? "is-front" : ""}>
              <td>
                {point.key}
                {isKnown && (point.isFront ? " ◆" : " ○")}
              </td>
              <td>
                <Breakable name={point.name} />{" "}
                {point.errors > 0 && <span className="errors">✕ {point.errors} failed</span>}
              </td>
              <td className="number">{columnText(point.y)}</td>
              <td className="number">{columnText(point.x)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
