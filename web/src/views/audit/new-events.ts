import { useQueryClient, type QueryKey } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useEvents } from "../../api/live";

const PAUSE_MS = 1_000;

/**
 * Read queries again when something happens, at most every second and never twice at a time. Where that is not
 * wanted, because somebody reads older pages, return how many events have come since.
 */
export function useNewEvents(key: QueryKey, isFollowing: boolean): number {
  const client = useQueryClient();
  const [unseen, setUnseen] = useState(0);
  const state = useRef({ isReading: false, isWanted: false, isGone: false });
  useEffect(() => {
    state.current.isGone = false;
    return () => void (state.current.isGone = true);
  }, []);
  useEvents((events) => {
    if (!isFollowing) {
      setUnseen((before) => before + events.length);
      return;
    }
    state.current.isWanted = true;
    void read();
  });
  async function read(): Promise<void> {
    const now = state.current;
    if (now.isReading) return;
    now.isReading = true;
    while (now.isWanted && !now.isGone) {
      now.isWanted = false;
      await client.invalidateQueries({ queryKey: key });
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    now.isReading = false;
  }
  return isFollowing ? 0 : unseen;
}
