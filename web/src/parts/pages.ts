/** Long lists, read page by page: the newest first, older ones when they are wanted. */
import { useQuery, useQueryClient, type QueryKey } from "@tanstack/react-query";
import { useCallback, useRef, useState } from "react";
import type { Page } from "../api/types";

export interface Pages<Item> {
  items: readonly Item[];
  /** The cursor of the next older page; null if everything has been read. */
  next: string | null;
}

/**
 * Put a newly read first page in front of what has been read before. Where they overlap, the new one counts; without
 * an overlap too much has happened in between, and the list begins anew.
 */
export function joined<Item>(
  known: Pages<Item> | undefined,
  fresh: Page<Item>,
  idOf: (item: Item) => string,
): Pages<Item> {
  const last = fresh.items.at(-1);
  if (known === undefined || fresh.next === null || last === undefined) return fresh;
  const at = known.items.findIndex((item) => idOf(item) === idOf(last));
  if (at < 0) return fresh;
  return {
    items: [...fresh.items, ...known.items.slice(at + 1)],
    next: at + 1 === known.items.length ? fresh.next : known.next,
  };
}

/** A list that reads its first page again when its query is made invalid, and older pages when `more` is called. */
export function usePages<Item>(
  key: QueryKey,
  read: (cursor: string | null, signal?: AbortSignal) => Promise<Page<Item>>,
  idOf: (item: Item) => string,
  refetchInterval: number | false = false,
) {
  const client = useQueryClient();
  const list = JSON.stringify(key);
  const [failed, setFailed] = useState<{ list: string; error: Error } | null>(null);
  const problem = failed?.list === list ? failed.error : null;
  const [isReadingMore, setReadingMore] = useState(false);
  const under = useRef(false);
  const query = useQuery({
    queryKey: key,
    queryFn: async ({ signal }) => {
      const fresh = await read(null, signal);
      return joined(client.getQueryData<Pages<Item>>(key), fresh, idOf);
    },
    structuralSharing: false,
    refetchInterval,
  });
  const more = useCallback(async () => {
    const cursor = client.getQueryData<Pages<Item>>(key)?.next ?? null;
    if (cursor === null || under.current) return;
    under.current = true;
    setReadingMore(true);
    try {
      const page = await read(cursor);
      client.setQueryData<Pages<Item>>(key, (now) =>
        now?.next === cursor ? { items: [...now.items, ...page.items], next: page.next } : now,
      );
      setFailed(null);
    } catch (error) {
      setFailed({ list, error: error as Error });
    } finally {
      under.current = false;
      setReadingMore(false);
    }
  }, [client, read, list]);
  return {
    items: query.data?.items ?? [],
    hasMore: query.data?.next != null,
    isPending: query.isPending,
    isReadingMore,
    error: query.error ?? problem,
    retry: () => void (query.error === null ? more() : query.refetch()),
    /** What could not be read is read again only when a person asks for it: a list at its end asks all the time. */
    more: () => void (problem === null && more()),
  };
}
