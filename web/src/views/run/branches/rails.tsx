import type { TreeRow } from "./rows";

const GAP = 22;
const HEIGHT = 36;
const MIDDLE = HEIGHT / 2;
/** Lines that lie deeper are drawn at this column, so that the words stay in view. */
const MOST_COLUMNS = 10;

const x = (column: number) => 12 + GAP * Math.min(column, MOST_COLUMNS);

/** Return how many pixels the lines of all rows need. */
export function widthOf(rows: readonly TreeRow[]): number {
  return x(rows.reduce((most, row) => Math.max(most, row.column), 1)) + 12;
}

/** The lines beside a row, and the dot of its step. */
export function Rails({ row }: { row: TreeRow }) {
  const at = x(row.column);
  const tone = row.isLeft ? "branches-line branches-line-left" : "branches-line";
  return (
    <svg className="branches-rails" width={at + 12} height={HEIGHT} aria-hidden="true">
      {row.rails.map((rail) => (
        <path
          key={rail.column}
          className={rail.isLeft ? "branches-line branches-line-left" : "branches-line"}
          d={`M${x(rail.column)} ${rail.top ? 0 : MIDDLE}V${rail.bottom ? HEIGHT : MIDDLE / 2}`}
        />
      ))}
      {row.enters && <path className={tone} d={curve(x(row.column - 1), at)} />}
      {row.above && <path className={tone} d={`M${at} 0V${MIDDLE}`} />}
      {row.below && <path className={tone} d={`M${at} ${MIDDLE}V${HEIGHT}`} />}
      <Dot row={row} at={at} />
    </svg>
  );
}

function curve(from: number, to: number): string {
  return `M${from} ${MIDDLE / 4}C${from} ${MIDDLE} ${from} ${MIDDLE} ${to} ${MIDDLE}`;
}

function Dot({ row, at }: { row: TreeRow; at: number }) {
  if (row.kind === "step" && row.step.folded > 1)
    return (
      <path
        className="branches-fold"
        d={`M${at - 4} ${MIDDLE - 4}h8M${at - 4} ${MIDDLE}h8M${at - 4} ${MIDDLE + 4}h8`}
      />
    );
  if (row.kind === "safety")
    return (
      <rect className="branches-dot branches-dot-safety" x={at - 5} y={MIDDLE - 5} width={10} height={10} rx={2} />
    );
  const isActive = row.kind === "step" && row.step.is_active;
  const name = row.kind === "fork" ? "fork" : isActive ? "active" : row.isLeft ? "left" : "plain";
  return <circle className={`branches-dot branches-dot-${name}`} cx={at} cy={MIDDLE} r={isActive ? 7 : 5} />;
}
