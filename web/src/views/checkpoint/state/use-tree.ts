import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";
import { get } from "../../../api/client";
import type { Model } from "../../../api/types";
import { childEntry, hasParts, rootEntry, rowsOf, type Entry, type Row, type Window } from "./entries";
import type { Key } from "./tagged";

type StateAnswer = Model<"StateAnswer">;

/** A query of one place of the state at a checkpoint. A checkpoint never changes, so that it is read once. */
export function placeQuery(run: string, at: string, path: readonly Key[], cursor: string | null = null) {
  return {
    queryKey: ["place", run, at, path, cursor] as const,
    queryFn: ({ signal }: { signal: AbortSignal }) =>
      get<StateAnswer>(["executions", run, "state"], { at, path: JSON.stringify(path), cursor, limit: 200 }, signal),
    staleTime: Infinity,
  };
}

export interface Tree {
  root: Entry;
  rows: Row[];
  toggle: (entry: Entry) => void;
  readMore: (entry: Entry) => void;
}

/** The tree under one place of a state; the parts of large places are read when they are opened. */
export function useTree(run: string, at: string, answer: StateAnswer): Tree {
  const client = useQueryClient();
  const root = useMemo(() => rootEntry(answer), [answer]);
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [windows, setWindows] = useState<ReadonlyMap<string, Window>>(new Map());
  const all = useMemo(() => {
    if (root.isWhole || windows.has(root.id)) return windows;
    return new Map(windows).set(root.id, windowOf(root, answer));
  }, [root, answer, windows]);

  const read = useCallback(
    async (entry: Entry, before: Window) => {
      const put = (window: Window) => setWindows((known) => new Map(known).set(entry.id, window));
      put({ ...before, isReading: true, error: null });
      try {
        const found = await client.fetchQuery(placeQuery(run, at, entry.path ?? [], before.next));
        const window = found.is_whole ? wholeWindow(entry, found) : windowOf(entry, found);
        put({ ...window, children: [...before.children, ...window.children] });
      } catch (error) {
        put({ ...before, isReading: false, error: error as Error });
      }
    },
    [client, run, at],
  );

  const toggle = (entry: Entry) => {
    if (!hasParts(entry)) return;
    const isOpen = open.has(entry.id);
    setOpen(without(open, entry.id, isOpen));
    if (!isOpen && !entry.isWhole && !all.has(entry.id)) void read(entry, NOTHING);
  };
  const readMore = (entry: Entry) => {
    const window = all.get(entry.id);
    if (window !== undefined && !window.isReading) void read(entry, window);
  };
  const rows = useMemo(() => rowsOf(root, open, all), [root, open, all]);
  return { root, rows, toggle, readMore };
}

const NOTHING: Window = { children: [], next: null, isReading: false, error: null };

function windowOf(entry: Entry, answer: StateAnswer): Window {
  const children = answer.children.map((child) => childEntry(entry, child));
  return { children, next: answer.next, isReading: false, error: null };
}

/** A place that was too large for its parent's answer, and is whole in its own. */
function wholeWindow(entry: Entry, answer: StateAnswer): Window {
  const whole = { ...entry, isWhole: true, value: answer.value, preview: null };
  const rows = rowsOf(whole, new Set(), new Map());
  return { ...NOTHING, children: rows.flatMap((row) => (row.type === "entry" ? [row.entry] : [])) };
}

function without(open: ReadonlySet<string>, id: string, isOpen: boolean): ReadonlySet<string> {
  const changed = new Set(open);
  if (isOpen) changed.delete(id);
  else changed.add(id);
  return changed;
}
