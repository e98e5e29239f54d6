import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useCallback, useEffect, useRef, useState, type KeyboardEvent } from "react";
import { Breakable } from "../../parts/breakable";
import { figureText } from "../../parts/format";
import { meanOf, repeatsOf, type GridPage, type GridRow, type Repeat } from "./grid-data";
import { heatStyle } from "./heat";
import { useOpened } from "./opened";
import { qualityOf } from "./verdicts";

const ROW_PX = 40;
const HEAD_PX = 72;

interface Props {
  page: GridPage;
  rows: readonly GridRow[];
  columns: readonly number[];
  baseline: string;
}

interface Place {
  row: number;
  column: number;
}

/** The table itself. Only what is in sight is drawn, in both directions; one key stop for all of it. */
export function GridTable({ page, rows, columns, baseline }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState<Place>({ row: 0, column: 0 });
  const opening = useRef<(opened: [string, string]) => void>(() => undefined);
  opening.current = useOpened()[1]; // kept in place, so that cells are not drawn again while somebody scrolls
  const isNarrow = window.matchMedia("(max-width: 640px)").matches;
  const sideWidth = isNarrow ? 116 : 200;
  const columnWidth = Math.max(isNarrow ? 92 : 118, page.repeats > 1 ? 78 + 18 * page.repeats : 0);
  const lines = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    estimateSize: () => ROW_PX,
    overscan: 6,
    paddingStart: HEAD_PX,
    scrollPaddingStart: HEAD_PX,
  });
  const across = useVirtualizer({
    horizontal: true,
    count: columns.length,
    getScrollElement: () => frame.current,
    estimateSize: () => columnWidth,
    overscan: 2,
    paddingStart: sideWidth,
    scrollPaddingStart: sideWidth,
  });
  useEffect(() => across.measure(), [across, columnWidth]);
  const at = { row: Math.min(active.row, rows.length - 1), column: Math.min(active.column, columns.length - 1) };
  const move = (to: Place) => {
    setActive(to);
    lines.scrollToIndex(to.row);
    across.scrollToIndex(to.column);
  };
  const openAt = useCallback(
    (row: number, column: number) => {
      setActive({ row, column });
      opening.current([(rows[row] as GridRow).case, page.combinations[columns[column] as number] as string]);
    },
    [rows, columns, page.combinations],
  );
  const onKey = (event: KeyboardEvent) => {
    const to = moved(event.key, at, rows.length, columns.length);
    if (to !== null) move(to);
    else if (event.key === "Enter" || event.key === " ") openAt(at.row, at.column);
    else return;
    event.preventDefault();
  };
  const visible = across.getVirtualItems();
  return (
    <div
      ref={frame}
      className="grid-frame"
      style={{ height: `min(70vh, ${lines.getTotalSize() + 18}px)` }}
      role="grid"
      tabIndex={0}
      aria-label="Results by case"
      aria-rowcount={rows.length + 1}
      aria-colcount={columns.length + 1}
      aria-activedescendant={`cell-${at.row}-${at.column}`}
      onKeyDown={onKey}
    >
      <div role="presentation" style={{ width: across.getTotalSize(), height: lines.getTotalSize() }}>
        <div className="grid-head" role="row" aria-rowindex={1} style={{ height: HEAD_PX }}>
          <div className="grid-corner" role="columnheader" aria-colindex={1} style={{ width: sideWidth }}>
            Case
          </div>
          {visible.map(({ index, start }) => {
            const name = page.combinations[columns[index] as number] as string;
            return (
              <div
                key={index}
                role="columnheader"
                aria-colindex={index + 2}
                className={`grid-column ${name === baseline ? "is-baseline" : ""}`}
                style={{ left: start, width: columnWidth }}
                title={name}
              >
                <span>
                  <Breakable name={name} />
                </span>
              </div>
            );
          })}
        </div>
        {lines.getVirtualItems().map(({ index, start }) => (
          <div
            key={index}
            role="row"
            aria-rowindex={index + 2}
            className="grid-row"
            style={{ transform: `translateY(${start}px)`, height: ROW_PX, width: across.getTotalSize() }}
          >
            <RowHead row={rows[index] as GridRow} width={sideWidth} />
            {visible.map((column) => (
              <Cell
                key={column.index}
                page={page}
                row={rows[index] as GridRow}
                rowIndex={index}
                index={column.index}
                combination={columns[column.index] as number}
                left={column.start}
                width={columnWidth}
                isActive={index === at.row && column.index === at.column}
                open={openAt}
              />
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}

function moved(key: string, { row, column }: Place, rows: number, columns: number): Place | null {
  const to = (r: number, c: number) => ({
    row: Math.min(rows - 1, Math.max(0, r)),
    column: Math.min(columns - 1, Math.max(0, c)),
  });
  switch (key) {
    case "ArrowDown":
      return to(row + 1, column);
    case "ArrowUp":
      return to(row - 1, column);
    case "ArrowRight":
      return to(row, column + 1);
    case "ArrowLeft":
      return to(row, column - 1);
    case "PageDown":
      return to(row + 12, column);
    case "PageUp":
      return to(row - 12, column);
    case "Home":
      return to(row, 0);
    case "End":
      return to(row, columns - 1);
    default:
      return null;
  }
}

function RowHead({ row, width }: { row: GridRow; width: number }) {
  return (
    <div className="grid-side" role="rowheader" aria-colindex={1} style={{ width }} title={row.case}>
      <span className="grid-case">{row.case}</span>
      {row.failed.length > 0 && <span className="errors">✕ {row.failed.length}</span>}
    </div>
  );
}

interface CellProps {
  page: GridPage;
  row: GridRow;
  rowIndex: number;
  index: number;
  combination: number;
  left: number;
  width: number;
  isActive: boolean;
  open: (row: number, column: number) => void;
}

const Cell = memo(function Cell({ page, row, rowIndex, index, combination, left, width, isActive, open }: CellProps) {
  const repeats = repeatsOf(row, combination, page.repeats);
  const mean = meanOf(repeats);
  const isFlaky = row.flaky.includes(combination);
  const single = page.repeats === 1 ? (repeats[0] as Repeat) : null;
  const quality = (score: number | null) => (score === null ? null : qualityOf(score, page.worst, page.best));
  return (
    <div
      id={`cell-${rowIndex}-${index}`}
      role="gridcell"
      aria-colindex={index + 2}
      className={`grid-cell ${isActive ? "is-active" : ""} ${single === null ? "" : `is-${single.kind}`}`}
      style={{ left, width, ...(single?.kind === "scored" ? heatStyle(quality(single.score)) : undefined) }}
      title={titleOf(row, page, combination, repeats)}
      onClick={() => open(rowIndex, index)}
    >
      {single === null && (
        <span className="repeats">
          {repeats.map((each) => (
            <span key={each.number} className={`repeat is-${each.kind}`} style={heatStyle(quality(each.score))}>
              {SIGNS[each.kind]}
            </span>
          ))}
        </span>
      )}
      <span className="grid-figure">
        {single === null ? figureText(mean) : single.kind === "scored" ? figureText(single.score) : WORDS[single.kind]}
      </span>
      {isFlaky && <span className="flaky">≠</span>}
    </div>
  );
});

const SIGNS: Record<Repeat["kind"], string> = { scored: "", failed: "✕", unscored: "!", missing: "◌" };
const WORDS: Record<Repeat["kind"], string> = {
  scored: "",
  failed: "✕ failed",
  unscored: "! no score",
  missing: "◌",
};

function titleOf(row: GridRow, page: GridPage, combination: number, repeats: readonly Repeat[]): string {
  const said = repeats.map((each) => (each.kind === "scored" ? figureText(each.score) : each.kind));
  return `${row.case}, ${page.combinations[combination]}: ${said.join(", ")}`;
}
