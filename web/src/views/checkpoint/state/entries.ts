/** The tree of a state: what is known of each place, and the rows that are open. */
import type { Model } from "../../../api/types";
import { messageOf } from "./messages";
import { kindOf, lineOf, partsOf, type Key } from "./tagged";

type StateAnswer = Model<"StateAnswer">;
type StateChild = Model<"StateChildAnswer">;

export interface Entry {
  /** Unique in a tree. */
  id: string;
  label: string;
  /** Null if no path leads here; it can be looked at, but not asked for. */
  path: Key[] | null;
  /** The path with messages by their ids, as an edit names it. */
  sent: (Key | { id: string })[];
  kind: string;
  count: number | null;
  /** The value, if it is here whole; otherwise only its beginning. */
  isWhole: boolean;
  value: unknown;
  preview: string | null;
  depth: number;
}

/** The parts of a large place that have been read so far. */
export interface Window {
  children: Entry[];
  next: string | null;
  isReading: boolean;
  error: Error | null;
}

export type Row =
  { type: "entry"; entry: Entry; hasParts: boolean; isOpen: boolean } | { type: "more"; parent: Entry; window: Window };

const LEAVES = new Set(["text", "bytes", "set", "frozenset", "masked"]);

export function rootEntry(answer: StateAnswer): Entry {
  const path = answer.path as Key[];
  return {
    id: JSON.stringify(path),
    label: path.length === 0 ? "state" : String(path.at(-1)),
    path,
    sent: path,
    kind: answer.kind,
    count: answer.count,
    isWhole: answer.is_whole,
    value: answer.value,
    preview: answer.preview,
    depth: -1,
  };
}

/** The entry of a child that the server sent. */
export function childEntry(parent: Entry, child: StateChild): Entry {
  const isPath = typeof child.key === "string" || typeof child.key === "number";
  const label = typeof child.key === "string" ? child.key : lineOf(child.key);
  return {
    id: `${parent.id} ${JSON.stringify(child.key)}`,
    label,
    path: isPath && parent.path !== null ? [...parent.path, child.key as Key] : null,
    sent: [...parent.sent, sentKey(child.key, child.value)],
    kind: child.kind,
    count: child.count,
    isWhole: child.preview === null,
    value: child.value,
    preview: child.preview,
    depth: parent.depth + 1,
  };
}

/** The parts of a value that is here whole. */
export function partEntries(parent: Entry): Entry[] {
  return (partsOf(parent.value) ?? []).map((part, at) => ({
    id: `${parent.id} ${part.key === null ? `·${at}` : JSON.stringify(part.key)}`,
    label: part.label,
    path: part.key !== null && parent.path !== null ? [...parent.path, part.key] : null,
    sent: [...parent.sent, sentKey(part.key, part.value)],
    kind: kindOf(part.value),
    count: countOf(part.value),
    isWhole: true,
    value: part.value,
    preview: null,
    depth: parent.depth + 1,
  }));
}

/** A message of a list is named by its id, so that an edit means the same one whatever was added before it. */
function sentKey(key: unknown, value: unknown): Key | { id: string } {
  const id = typeof key === "number" ? (messageOf(value)?.id ?? null) : null;
  return id === null ? (key as Key) : { id };
}

function countOf(value: unknown): number | null {
  return typeof value === "string" ? value.length : (partsOf(value)?.length ?? null);
}

export function hasParts(entry: Entry): boolean {
  if (entry.isWhole) return (partsOf(entry.value)?.length ?? 0) > 0;
  return !LEAVES.has(entry.kind);
}

/** The rows of everything that is open, in order. */
export function rowsOf(root: Entry, open: ReadonlySet<string>, windows: ReadonlyMap<string, Window>): Row[] {
  const rows: Row[] = [];
  addRows(rows, root, open, windows);
  return rows;
}

function addRows(rows: Row[], parent: Entry, open: ReadonlySet<string>, windows: ReadonlyMap<string, Window>): void {
  const window = windows.get(parent.id);
  for (const entry of parent.isWhole ? partEntries(parent) : (window?.children ?? [])) {
    const isParent = hasParts(entry);
    const isOpen = isParent && open.has(entry.id);
    rows.push({ type: "entry", entry, hasParts: isParent, isOpen });
    if (isOpen) addRows(rows, entry, open, windows);
  }
  if (!parent.isWhole && window !== undefined && (window.next !== null || window.isReading || window.error !== null))
    rows.push({ type: "more", parent, window });
}

/** One place in a line of text. */
export function entryLine(entry: Entry): string {
  return entry.isWhole ? lineOf(entry.value) : (entry.preview ?? "…");
}

/** How much a place holds, in a few words. */
export function sizeOf(entry: Entry): string {
  if (entry.count === null) return "";
  const count = entry.count.toLocaleString("en");
  if (entry.kind === "text") return entry.count > 80 ? `${count} characters` : "";
  if (entry.kind === "bytes") return "";
  return `${count} ${entry.count === 1 ? "item" : "items"}`;
}
