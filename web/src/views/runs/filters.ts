/** Which runs are wanted. The filters stand in the address, in the request and in the command alike. */
import type { Query } from "../../api/client";
import type { Model, RunStatus } from "../../api/types";
import { quoted } from "../../parts/command";

export type Health = Model<"Health">;

export const STATUSES: readonly RunStatus[] = [
  "running",
  "paused",
  "failed",
  "completed",
  "pending",
  "rolling_back",
  "cancelled",
];
export const HEALTHS: readonly Health[] = ["waiting", "gone", "abandoned"];
export const AGES = ["1h", "24h", "7d", "30d"] as const;
type Age = (typeof AGES)[number];

export interface Filters {
  statuses: readonly RunStatus[];
  workflow: string;
  by: string;
  since: Age | "";
  prefix: string;
  health: Health | "";
  /** The id or name of a batch; `all` for runs with and without a batch, empty for those without. */
  batch: string;
}

/** Read the filters of an address; what does not exist is left out. */
export function filtersOf(search: URLSearchParams): Filters {
  const text = (name: string) => search.get(name)?.trim() ?? "";
  return {
    statuses: STATUSES.filter((status) => search.getAll("status").includes(status)),
    workflow: text("workflow"),
    by: text("by"),
    since: AGES.find((age) => age === text("since")) ?? "",
    prefix: text("prefix"),
    health: HEALTHS.find((health) => health === text("health")) ?? "",
    batch: text("batch"),
  };
}

/** Return the address's search for some filters. */
export function searchOf(filters: Filters): URLSearchParams {
  const search = new URLSearchParams();
  for (const status of filters.statuses) search.append("status", status);
  for (const name of ["workflow", "by", "since", "prefix", "health", "batch"] as const)
    if (filters[name] !== "") search.set(name, filters[name]);
  return search;
}

/** Return the filters as the API takes them. */
export function queryOf(filters: Filters, now: Date): Query {
  return {
    status: filters.statuses,
    workflow: filters.workflow || null,
    created_by: filters.by || null,
    since: filters.since === "" ? null : begin(filters.since, now).toISOString(),
    prefix: filters.prefix || null,
    health: filters.health || null,
    batch: filters.batch === "all" ? null : filters.batch || "none",
  };
}

const HOURS: Record<Age, number> = { "1h": 1, "24h": 24, "7d": 168, "30d": 720 };

function begin(age: Age, now: Date): Date {
  return new Date(now.getTime() - HOURS[age] * 3_600_000);
}

/** Return the command that lists the same runs. */
export function commandOf(filters: Filters): string {
  const words = ["wtb", "ls"];
  for (const status of filters.statuses) words.push("--status", status);
  if (filters.workflow !== "") words.push("--workflow", quoted(filters.workflow));
  if (filters.by !== "") words.push("--by", quoted(filters.by));
  if (filters.since !== "") words.push("--since", filters.since);
  if (filters.prefix !== "") words.push("--prefix", quoted(filters.prefix));
  if (filters.health !== "") words.push("--health", filters.health);
  if (filters.batch !== "") words.push("--batch", quoted(filters.batch));
  return words.join(" ");
}

export function isFiltered(filters: Filters): boolean {
  return searchOf(filters).size > 0;
}
