import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { entryLine, sizeOf, type Entry, type Row } from "./entries";
import { messageOf } from "./messages";
import type { Tree } from "./use-tree";
import "./state.css";

const ROW = 30;
const TALLEST = 560;

interface Props {
  tree: Tree;
  label: string;
  selected: string | null;
  onSelect: (entry: Entry) => void;
  /** What stands in place of a value, such as a new one; null to show the value. */
  shown?: (entry: Entry) => ReactNode | null;
}

/** A state as a tree. Only the rows in sight exist, so that a large state stays quick. */
export function StateTree({ tree, label, selected, onSelect, shown }: Props) {
  const { rows } = tree;
  const box = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState(0);
  const name = useId();
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
  });
  const current = Math.min(active, rows.length - 1);
  const move = (to: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, to));
    setActive(next);
    virtual.scrollToIndex(next);
  };
  const choose = (at: number) => {
    const row = rows[at];
    setActive(at);
    if (row?.type === "entry") onSelect(row.entry);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const done = pressed(event.key, rows, current, { move, choose, toggle: tree.toggle });
    if (done) event.preventDefault();
  };
  return (
    <div
      ref={box}
      className="tree"
      role="tree"
      aria-label={label}
      tabIndex={0}
      aria-activedescendant={rows.length === 0 ? undefined : `${name}-${current}`}
      onKeyDown={onKeyDown}
      style={{ height: Math.min(TALLEST, Math.max(1, rows.length) * ROW + 2) }}
    >
      <div role="presentation" className="tree-rows" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          if (row === undefined) return null;
          const place = { transform: `translateY(${item.start}px)`, height: ROW };
          if (row.type === "more")
            return <MoreRow key={`more ${row.parent.id}`} row={row} place={place} onSeen={tree.readMore} />;
          return (
            <div
              key={row.entry.id}
              id={`${name}-${item.index}`}
              role="treeitem"
              aria-level={row.entry.depth + 1}
              aria-expanded={row.hasParts ? row.isOpen : undefined}
              aria-selected={row.entry.id === selected}
              className={`tree-row${item.index === current ? " tree-active" : ""}`}
              style={{ ...place, paddingLeft: `${0.4 + row.entry.depth * 1.1}rem` }}
              onClick={() => choose(item.index)}
            >
              <Twisty row={row} onClick={() => tree.toggle(row.entry)} />
              <span className="tree-key">{row.entry.label}</span>
              <Value entry={row.entry} replaced={shown?.(row.entry) ?? null} />
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Twisty({ row, onClick }: { row: Row & { type: "entry" }; onClick: () => void }) {
  if (!row.hasParts) return <span className="twisty" />;
  return (
    <span
      className="twisty twisty-on"
      aria-hidden="true"
      onClick={(event) => {
        event.stopPropagation();
        onClick();
      }}
    >
      {row.isOpen ? "▾" : "▸"}
    </span>
  );
}

function Value({ entry, replaced }: { entry: Entry; replaced: ReactNode | null }) {
  if (replaced !== null) return <span className="tree-value">{replaced}</span>;
  const message = entry.isWhole ? messageOf(entry.value) : null;
  if (message !== null)
    return (
      <span className="tree-value">
        <span className={`role role-${message.role}`}>{message.label}</span> {message.text.slice(0, 300)}
      </span>
    );
  const size = sizeOf(entry);
  return (
    <>
      <span className={`tree-value value-${toneOf(entry.kind)}`}>{entryLine(entry)}</span>
      {size !== "" && <span className="tree-size">{size}</span>}
    </>
  );
}

function toneOf(kind: string): string {
  if (kind === "text") return "text";
  if (["number", "int", "float", "decimal"].includes(kind)) return "number";
  if (["bool", "null"].includes(kind)) return "word";
  if (["masked", "opaque"].includes(kind)) return "hidden";
  return ["list", "dict", "tuple", "set", "frozenset", "class", "foreign"].includes(kind) ? "whole" : "special";
}

function MoreRow({
  row,
  place,
  onSeen,
}: {
  row: Row & { type: "more" };
  place: { transform: string; height: number };
  onSeen: (entry: Entry) => void;
}) {
  const { parent, window } = row;
  const isDue = window.error === null && window.next !== null;
  useEffect(() => {
    if (isDue) onSeen(parent);
  }, [isDue, window.next]); // eslint-disable-line
  return (
    <div
      role="treeitem"
      aria-selected={false}
      aria-level={parent.depth + 2}
      className="tree-row tree-more"
      style={{ ...place, paddingLeft: `${1.6 + (parent.depth + 1) * 1.1}rem` }}
    >
      {window.error === null ? (
        `Reading more: ${window.children.length.toLocaleString("en")} of ${parent.count?.toLocaleString("en") ?? "?"} …`
      ) : (
        <span>
          {window.error.message}{" "}
          <button type="button" className="plain" onClick={() => onSeen(parent)}>
            Try again
          </button>
        </span>
      )}
    </div>
  );
}

interface Moves {
  move: (to: number) => void;
  choose: (at: number) => void;
  toggle: (entry: Entry) => void;
}

/** Act on a key as trees do everywhere; return whether the key meant something. */
function pressed(key: string, rows: readonly Row[], at: number, { move, choose, toggle }: Moves): boolean {
  const row = rows[at];
  const entry = row?.type === "entry" ? row : null;
  if (key === "ArrowDown") move(at + 1);
  else if (key === "ArrowUp") move(at - 1);
  else if (key === "Home") move(0);
  else if (key === "End") move(rows.length - 1);
  else if (key === "PageDown") move(at + 15);
  else if (key === "PageUp") move(at - 15);
  else if (key === "Enter" || key === " ") choose(at);
  else if (key === "ArrowRight" && entry !== null) entry.hasParts && !entry.isOpen ? toggle(entry.entry) : move(at + 1);
  else if (key === "ArrowLeft" && entry !== null) entry.isOpen ? toggle(entry.entry) : move(parentOf(rows, at));
  else return false;
  return true;
}

function parentOf(rows: readonly Row[], at: number): number {
  const row = rows[at];
  if (row?.type !== "entry") return at;
  for (let before = at - 1; before >= 0; before--) {
    const each = rows[before];
    if (each?.type === "entry" && each.entry.depth < row.entry.depth) return before;
  }
  return at;
}
