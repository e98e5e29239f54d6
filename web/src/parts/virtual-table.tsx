import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type ReactNode } from "react";
import "./virtual-table.css";

export interface Column {
  label: string;
  /** A width of a CSS grid, such as `8rem` or `minmax(10rem, 1fr)`. */
  width: string;
  isNumber?: boolean;
}

interface Props<Item> {
  label: string;
  columns: readonly Column[];
  items: readonly Item[];
  keyOf: (item: Item) => string;
  cells: (item: Item) => readonly ReactNode[];
  /** What stands below the cells of a row, such as its details. */
  below?: (item: Item) => ReactNode;
  rowClass?: (item: Item) => string;
  hasMore?: boolean;
  onEnd?: () => void;
  /** The narrowest width at which the columns can be read; below it the table scrolls to the side. */
  minWidth?: string;
  /** The name under which the place where a person was is kept while they look at something else. */
  place?: string;
}

const places = new Map<string, number>();

/** A table of any length: only the rows that can be seen exist. */
export function VirtualTable<Item>(props: Props<Item>) {
  const { items, columns, keyOf, onEnd, hasMore = false, place } = props;
  const frame = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => frame.current,
    estimateSize: () => 37,
    overscan: 8,
    getItemKey: (index) => keyOf(items[index] as Item),
    initialOffset: () => (place === undefined ? 0 : (places.get(place) ?? 0)),
  });
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (hasMore && last >= items.length - 30) onEnd?.();
  }, [hasMore, last, items.length, onEnd]);
  const remember = () => place !== undefined && places.set(place, frame.current?.scrollTop ?? 0);
  const grid = { gridTemplateColumns: columns.map((column) => column.width).join(" ") };
  return (
    <div className="vtable" ref={frame} onScroll={remember} tabIndex={0} role="group" aria-label={props.label}>
      <div
        role="table"
        aria-label={props.label}
        aria-rowcount={hasMore ? -1 : items.length + 1}
        style={{ minWidth: props.minWidth }}
      >
        <div role="rowgroup" className="vtable-head">
          <div role="row" className="vtable-cells" style={grid}>
            {columns.map((column) => (
              <span key={column.label} role="columnheader" className={column.isNumber ? "number" : undefined}>
                {column.label}
              </span>
            ))}
          </div>
        </div>
        <div role="rowgroup" className="vtable-rows" style={{ height: rows.getTotalSize() }}>
          {shown.map((row) => {
            const item = items[row.index] as Item;
            return (
              <div
                key={row.key}
                ref={rows.measureElement}
                data-index={row.index}
                role="row"
                aria-rowindex={row.index + 2}
                className={`vtable-row ${props.rowClass?.(item) ?? ""}`}
                style={{ transform: `translateY(${row.start}px)` }}
              >
                <div className="vtable-cells" role="presentation" style={grid}>
                  {props.cells(item).map((cell, at) => (
                    <span key={columns[at]?.label} role="cell" className={columns[at]?.isNumber ? "number" : undefined}>
                      {cell}
                    </span>
                  ))}
                </div>
                <Below>{props.below?.(item)}</Below>
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Below({ children }: { children: ReactNode }) {
  if (children === null || children === undefined || children === false) return null;
  return (
    <div className="vtable-below" role="cell">
      {children}
    </div>
  );
}
