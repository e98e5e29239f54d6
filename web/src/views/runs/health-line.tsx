import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { get } from "../../api/client";
import type { RunList } from "../../api/types";
import { HEALTHS, searchOf, type Filters, type Health } from "./filters";
import { useReadAfter } from "./use-runs";

const MOST = 50;

interface Count {
  count: number;
  /** Whether there may be more. */
  isLeast: boolean;
}

export const HEALTH_TEXT: Record<Health, string> = {
  waiting: "waiting for a person",
  gone: "process gone",
  abandoned: "abandoned",
};
const TONES: Record<Health, string> = { waiting: "waiting", gone: "bad", abandoned: "warn" };

/** Which runs need somebody: they wait for an answer, or nobody runs them although they say so. */
export function HealthLine({ filters }: { filters: Filters }) {
  const key = ["runs", "health"];
  const query = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => Promise.all(HEALTHS.map((health) => countOf(health, signal))),
    refetchInterval: 30_000,
  });
  useReadAfter(key, (event) => event.type.startsWith("execution."));
  const found = HEALTHS.map((health, at) => ({ health, ...query.data?.[at] }));
  const needed = found.filter(({ count = 0 }) => count > 0);
  if (needed.length === 0) return null;
  return (
    <p className="runs-health">
      {needed.map(({ health, count, isLeast }) => (
        <Link
          key={health}
          className={`badge badge-${TONES[health]}`}
          aria-current={filters.health === health ? "true" : undefined}
          to={{
            search: searchOf({ ...filters, health: filters.health === health ? "" : health, statuses: [] }).toString(),
          }}
        >
          {count}
          {isLeast && "+"} {HEALTH_TEXT[health]}
        </Link>
      ))}
    </p>
  );
}

async function countOf(health: Health, signal: AbortSignal): Promise<Count> {
  const list = await get<RunList>(["executions"], { health, batch: "none", limit: MOST }, signal);
  return { count: list.items.length, isLeast: list.next != null };
}
