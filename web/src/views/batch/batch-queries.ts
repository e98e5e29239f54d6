/** What the views of a batch read, and how often they read it again while the batch runs. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { get, type Query } from "../../api/client";
import { useEvents } from "../../api/live";
import type { Batch } from "../../api/types";
import type { Matrix } from "./verdicts";

/** A server is asked again only after this many times the time that it took to answer. */
const BREAK = 4;
const STATUS_MS = 1_000;
const RESULTS_MS = 5_000;

export const isMoving = (status: string | undefined) => status === "running" || status === "pending";

/** How far a batch has come. Jobs have no events of their own, so it is asked for while the batch runs. */
export function useBatch(id: string) {
  const client = useQueryClient();
  const took = useRef(0);
  useEvents((events) => {
    if (events.some((event) => event.stream === id || event.stream === found.data?.id))
      void client.invalidateQueries({ queryKey: ["batch", id, "status"] });
  });
  const found = useQuery({
    queryKey: ["batch", id, "status"],
    queryFn: ({ signal }) => timed(took, get<Batch>(["batches", id], {}, signal)),
    refetchInterval: ({ state }) => (isMoving(state.data?.status) ? Math.max(STATUS_MS, BREAK * took.current) : false),
  });
  useEndOf(id, found.data);
  return found;
}

/** Read all results once more when a batch has ended, or has been run again. */
function useEndOf(id: string, batch: Batch | undefined): void {
  const client = useQueryClient();
  const now = batch === undefined ? null : `${batch.status} ${batch.completed} ${batch.failed} ${batch.updated_at}`;
  const before = useRef<string | null>(null);
  useEffect(() => {
    if (now === null || before.current === now) return;
    const isFirst = before.current === null;
    before.current = now;
    if (isFirst || isMoving(batch?.status)) return;
    void client.invalidateQueries({
      predicate: ({ queryKey }) => queryKey[0] === "batch" && queryKey[1] === id && queryKey[2] !== "status",
    });
  }, [now, id, client, batch?.status]);
}

/** Read a part of the results; while the batch runs, again every now and then. */
export function useResults<Data>(id: string, part: string, query: Query, isRunning: boolean, isWanted = true) {
  const took = useRef(0);
  return useQuery({
    queryKey: ["batch", id, part, query],
    queryFn: ({ signal }) => timed(took, get<Data>(["batches", id, part], query, signal)),
    refetchInterval: isRunning ? () => Math.max(RESULTS_MS, BREAK * took.current) : false,
    enabled: isWanted,
  });
}

export function useMatrix(id: string, tag: string, isRunning: boolean) {
  return useResults<Matrix>(id, "matrix", tag === "" ? {} : { tag }, isRunning);
}

/** Note how long a reading took. */
export async function timed<Data>(took: { current: number }, reading: Promise<Data>): Promise<Data> {
  const since = performance.now();
  try {
    return await reading;
  } finally {
    took.current = performance.now() - since;
  }
}
