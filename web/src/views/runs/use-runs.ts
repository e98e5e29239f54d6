/** The list of runs, kept up to date by events: rows are patched, and at most a few requests a second are made. */
import { useQuery, useQueryClient, type QueryKey } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef } from "react";
import { get } from "../../api/client";
import { useEvents } from "../../api/live";
import type { LiveEvent, Page, RunList, RunRow } from "../../api/types";
import { usePages, type Pages } from "../../parts/pages";
import { queryOf, searchOf, type Filters } from "./filters";
import { foundIn, inserted, patched } from "./patches";

const PAGE = 100;
/** More runs than this at once, and the first page is read instead of each run. */
const MOST_SINGLE = 5;
/** So many runs may have ids that begin with the whole id of another one, such as `demo` and `demo-2`. */
const MOST_ALIKE = 20;
const PAUSE_MS = 1_000;
/** No event tells that the process of a run has died. */
const LOOK_AGAIN_MS = 30_000;

const idOf = (row: RunRow) => row.id;

export function useRuns(filters: Filters) {
  const key = useMemo<QueryKey>(() => ["runs", "list", searchOf(filters).toString()], [filters]);
  const query = useMemo(() => queryOf(filters, new Date()), [filters]);
  const read = useCallback(
    async (cursor: string | null, signal?: AbortSignal): Promise<Page<RunRow>> => {
      const list = await get<RunList>(["executions"], { ...query, cursor, limit: PAGE }, signal);
      return { items: list.items, next: list.next ?? null };
    },
    [query],
  );
  const pages = usePages(key, read, idOf, LOOK_AGAIN_MS);
  usePatches(key, filters);
  return pages;
}

/** Patch the rows from events, and read what events do not tell: at most one reading at a time, with pauses. */
function usePatches(key: QueryKey, filters: Filters): void {
  const client = useQueryClient();
  const waiting = useRef(new Set<string>());
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), [key]);
  useEvents((events) => {
    const list = client.getQueryData<Pages<RunRow>>(key);
    if (list === undefined) return;
    const { rows, toRead } = patched(list.items, events, filters.statuses);
    if (rows !== list.items) client.setQueryData<Pages<RunRow>>(key, { ...list, items: rows });
    for (const id of toRead) waiting.current.add(id);
    if (waiting.current.size > 0) timer.current ??= setTimeout(() => void readWaiting(), PAUSE_MS / 5);
  });
  async function readWaiting(): Promise<void> {
    const ids = [...waiting.current];
    waiting.current.clear();
    try {
      const isRead = ids.length <= MOST_SINGLE && (await readSingle(ids).catch(() => false));
      if (!isRead) await client.invalidateQueries({ queryKey: key });
    } finally {
      timer.current = setTimeout(() => {
        timer.current = undefined;
        if (waiting.current.size > 0) void readWaiting();
      }, PAUSE_MS);
    }
  }
  /** Read single runs; return false if the list has to tell of them. */
  async function readSingle(ids: readonly string[]): Promise<boolean> {
    const query = queryOf(filters, new Date());
    const fitting = ids.filter((id) => id.startsWith(filters.prefix));
    const lists = await Promise.all(
      fitting.map((id) => get<RunList>(["executions"], { ...query, prefix: id, limit: MOST_ALIKE })),
    );
    const read = foundIn(fitting, lists);
    if (read === null) return false;
    client.setQueryData<Pages<RunRow>>(
      key,
      (list) => list && { ...list, items: inserted(list.items, read.found, read.gone, list.next === null) },
    );
    return true;
  }
}

/** Read something small again after events, at most once in a while. */
export function useReadAfter(key: QueryKey, concerns: (event: LiveEvent) => boolean, pauseMs = 2_000): void {
  const client = useQueryClient();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const text = JSON.stringify(key);
  useEffect(() => () => clearTimeout(timer.current), [text]);
  useEvents((events) => {
    if (timer.current !== undefined || !events.some(concerns)) return;
    timer.current = setTimeout(() => {
      timer.current = undefined;
      void client.invalidateQueries({ queryKey: key });
    }, pauseMs);
  });
}

/** How many runs fit, by status. */
export function useCounts(filters: Filters): Record<string, number> | undefined {
  const everyStatus = { ...filters, statuses: [] };
  const key = ["runs", "counts", searchOf(everyStatus).toString()];
  const query = useQuery({
    queryKey: key,
    queryFn: ({ signal }) =>
      get<RunList>(["executions"], { ...queryOf(everyStatus, new Date()), counts: true, limit: 1 }, signal),
    placeholderData: (before) => before,
  });
  useReadAfter(key, (event) => event.type.startsWith("execution.") || event.type.startsWith("rollback."));
  return query.data?.counts ?? undefined;
}
