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

/** The command that lists the same kinds of events; it knows no people and no times. */
export function commandOf(filters: Filters): string {
  const words = ["wtb events"];
  const severity = filters.only === "errors" ? "error" : filters.severity;
  if (severity !== "") words.push(`--severity ${severity}`);
  const types = filters.type.split(/[\s,]+/).filter((word) => word !== "");
  for (const type of types.length > 0 ? types : filters.only === "tools" ? ["tool"] : [])
    words.push(`--type ${quoted(type)}`);
  if (filters.run.trim() !== "") words.push(`--run ${quoted(filters.run.trim())}`);
  if (filters.batch.trim() !== "") words.push(`--batch ${quoted(filters.batch.trim())}`);
  return words.join(" ");
}

export const isFiltered = (filters: Filters) => FIELDS.some((field) => filters[field] !== "");
