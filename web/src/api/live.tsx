/** Hooks that keep what the page shows as it is on the server. */
import { useQueryClient, type QueryKey } from "@tanstack/react-query";
import { createContext, use, useEffect, useRef, useSyncExternalStore, type ReactNode } from "react";
import { Feed, type FeedState } from "./feed";
import type { LiveEvent } from "./types";

const FeedContext = createContext<Feed | null>(null);

/** Opens the feed for everything below it. */
export function FeedProvider({ children }: { children: ReactNode }) {
  const client = useQueryClient();
  const feed = useRef<Feed>(null);
  feed.current ??= new Feed();
  useEffect(() => {
    const opened = feed.current as Feed;
    const forget = opened.onMissed(() => void client.invalidateQueries());
    const unwatch = opened.onState(() => {
      // What could not be read while the server was away is read now: no event may ever tell of it again.
      if (opened.state === "live")
        void client.refetchQueries({ type: "active", predicate: ({ state }) => state.fetchFailureCount > 0 });
    });
    opened.start();
    return () => {
      forget();
      unwatch();
      opened.stop();
    };
  }, [client]);
  return <FeedContext value={feed.current}>{children}</FeedContext>;
}

function useFeed(): Feed {
  const feed = use(FeedContext);
  if (feed === null) throw new Error("a live view needs a FeedProvider above it");
  return feed;
}

export function useFeedState(): FeedState {
  const feed = useFeed();
  return useSyncExternalStore(
    (watcher) => feed.onState(watcher),
    () => feed.state,
  );
}

/** Call a handler with the events of the whole bench as they happen. */
export function useEvents(handler: (events: readonly LiveEvent[]) => void): void {
  const feed = useFeed();
  const latest = useRef(handler);
  latest.current = handler;
  useEffect(() => feed.onEvents((events) => latest.current(events)), [feed]);
}

/**
 * Read queries again when an event of a stream (a run's or a batch's id) arrives. At most one reading is under way:
 * a run that makes a hundred steps a second is read as often as the server answers, and once at its end.
 */
export function useLiveQueries(stream: string, key: QueryKey): void {
  const client = useQueryClient();
  const reading = useRef({ under: false, again: false });
  const text = JSON.stringify(key);
  useEvents((events) => {
    if (events.some((event) => event.stream === stream)) void read();
  });
  async function read(): Promise<void> {
    if (reading.current.under) {
      reading.current.again = true;
      return;
    }
    reading.current.under = true;
    await new Promise((resolve) => setTimeout(resolve, 150)); // events come in bursts
    reading.current.again = false;
    try {
      await client.invalidateQueries({ queryKey: JSON.parse(text) as QueryKey });
    } finally {
      reading.current.under = false;
    }
    if (reading.current.again) void read();
  }
}
