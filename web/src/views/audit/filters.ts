/** Which events of the audit trail somebody wants to see; all of it stands in the address. */
import type { Query } from "../../api/client";
import { quoted } from "../../parts/command";

export const FIELDS = ["by", "type", "severity", "run", "batch", "since", "until", "only"] as const;
export type Field = (typeof FIELDS)[number];
export type Filters = Record<Field, string>;

export function filtersOf(search: URLSearchParams): Filters {
  return Object.fromEntries(FIELDS.map((field) => [field, search.get(field) ?? ""])) as Filters;
}

/** Return the query of the API. Times are typed in local time, and sent with their zone. */
export function queryOf(filters: Filters): Query {
  return {
    by: filters.by.trim() || undefined,
    type: filters.type.split(/[\s,]+/).filter((word) => word !== ""),
    severity: filters.severity || undefined,
    run: filters.run.trim() || undefined,
    batch: filters.batch.trim() || undefined,
    ...periodOf(filters),
    errors: filters.only === "errors" || undefined,
    tools: filters.only === "tools" || undefined,
    everything: filters.only === "everything" || undefined,
  };
}

export function periodOf(filters: Filters): { since?: string; until?: string } {
  const [since, until] = [momentOf(filters.since), momentOf(filters.until)];
  return { ...(since !== undefined && { since }), ...(until !== undefined && { until }) };
}

function momentOf(local: string): string | undefined {
  const at = new Date(local);
  return local === "" || Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

/** The command that lists the same events. */
export function commandOf(filters: Filters): string {
  const { by, severity, run, batch, only } = filters;
  const words = ["wtb audit ls"];
  const add = (option: string, value: string) => value.trim() !== "" && words.push(`${option} ${quoted(value.trim())}`);
  add("--by", by);
  for (const type of filters.type.split(/[\s,]+/)) add("--type", type);
  add("--severity", severity);
  add("--run", run);
  add("--batch", batch);
  if (only !== "") words.push(`--${only}`);
  return [...words, ...periodWords(filters)].join(" ");
}

/** The words of a command that choose the same period. */
export function periodWords(filters: Filters): string[] {
  return Object.entries(periodOf(filters)).map(([end, at]) => `--${end} ${at}`);
}

export const isFiltered = (filters: Filters) => FIELDS.some((field) => filters[field] !== "");
