/** Differences with their intervals, one line each, over one scale: for combinations and for effects. */
import { scaleLinear } from "@visx/scale";
import { useMemo, useRef, type ReactNode } from "react";
import { columnText, figureText } from "../../parts/format";
import type { Tone } from "../../parts/status";
import { Breakable } from "../../parts/breakable";
import { useWidth } from "./use-width";
import type { Interval } from "./verdicts";

export interface PlotLine {
  key: string;
  name: ReactNode;
  difference: number | null;
  interval: Interval | null | undefined;
  tone: Tone;
  words: string;
  group?: string;
}

const HEIGHT = 22;

/** Draw lines under their groups, with 0 marked: what lies across it may be nothing. */
export function IntervalPlot({ lines, label }: { lines: readonly PlotLine[]; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box, 360);
  const scale = useMemo(() => scaleOf(lines, width), [lines, width]);
  const ticks = scale.ticks(Math.max(2, Math.min(6, Math.floor(width / 70))));
  const groups = [...new Set(lines.map((line) => line.group))];
  return (
    <div className="plot" role="table" aria-label={label}>
      <div className="plot-line plot-scale" role="presentation">
        <span />
        <div ref={box}>
          <svg width={width} height={18} aria-hidden="true">
            {ticks.map((tick) => (
              <text key={tick} x={scale(tick)} y={13} textAnchor="middle">
                {figureText(tick)}
              </text>
            ))}
          </svg>
        </div>
        <span />
      </div>
      {groups.map((group) => (
        <div key={group ?? ""} role="rowgroup">
          {group !== undefined && (
            <div role="row">
              <h3 role="rowheader">{group}</h3>
            </div>
          )}
          {lines
            .filter((line) => line.group === group)
            .map((line) => (
              <div key={line.key} className="plot-line" role="row">
                <span role="rowheader" className="plot-name">
                  {typeof line.name === "string" ? <Breakable name={line.name} /> : line.name}
                </span>
                <span role="cell" className={`plot-tone-${line.tone}`}>
                  <Track line={line} scale={scale} ticks={ticks} width={width} />
                </span>
                <span role="cell" className={`plot-words plot-tone-${line.tone}`}>
                  {line.words}
                </span>
              </div>
            ))}
        </div>
      ))}
    </div>
  );
}

type Scale = ReturnType<typeof scaleOf>;

/** A scale that holds every end of every interval, and 0. */
export function scaleOf(lines: readonly Pick<PlotLine, "difference" | "interval">[], width: number) {
  const ends = lines.flatMap(({ difference, interval }) => [difference, interval?.low, interval?.high]);
  const all = [0, ...ends.filter((each) => each != null)];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = (high - low || 1) * 0.04;
  return scaleLinear<number>({ domain: [low - room, high + room], range: [10, Math.max(20, width - 10)] });
}

function Track({ line, scale, ticks, width }: { line: PlotLine; scale: Scale; ticks: number[]; width: number }) {
  const middle = HEIGHT / 2;
  return (
    <svg width={width} height={HEIGHT} aria-hidden="true">
      {ticks.map((tick) => (
        <line key={tick} x1={scale(tick)} x2={scale(tick)} y1={0} y2={HEIGHT} className="plot-tick" />
      ))}
      <line x1={scale(0)} x2={scale(0)} y1={0} y2={HEIGHT} className="plot-zero" />
      {line.interval?.low != null && line.interval.high != null && (
        <path
          className="plot-interval"
          d={`M${scale(line.interval.low)} ${middle - 4}v8M${scale(line.interval.low)} ${middle}H${scale(line.interval.high)}M${scale(line.interval.high)} ${middle - 4}v8`}
        />
      )}
      {line.difference !== null && <circle cx={scale(line.difference)} cy={middle} r={4.5} className="plot-point" />}
    </svg>
  );
}

/** A difference with its sign and its interval, as text. */
export function changeText(difference: number | null | undefined, interval: Interval | null | undefined): string {
  const signed = (value: number | null) => `${value !== null && value > 0 ? "+" : ""}${columnText(value)}`;
  if (difference == null) return "no difference can be told";
  return interval == null
    ? signed(difference)
    : `${signed(difference)} (${signed(interval.low)} to ${signed(interval.high)})`;
}
