/** The results of a batch by case: every score in one row, filtered and sorted here, so that a filter is instant. */
import type { Model } from "../../api/types";

export type GridRow = Model<"GridRow">;
export type GridPage = Model<"GridAnswer">;

export interface Repeat {
  number: number;
  score: number | null;
  kind: "scored" | "failed" | "unscored" | "missing";
}

export const FILTERS = ["all", "different", "flaky", "failed"] as const;
export type Filter = (typeof FILTERS)[number];

export interface Choice {
  filter: Filter;
  tag: string;
  find: string;
}

/** The repeats of one combination on one case. */
export function repeatsOf(row: GridRow, combination: number, repeats: number): Repeat[] {
  const first = combination * repeats;
  return Array.from({ length: repeats }, (_, number) => {
    const place = first + number;
    const score = row.scores[place] ?? null;
    return { number, score, kind: kindOf(row, place, score) };
  });
}

function kindOf(row: GridRow, place: number, score: number | null): Repeat["kind"] {
  if (row.failed.includes(place)) return "failed";
  if (row.unscored.includes(place)) return "unscored";
  return score === null ? "missing" : "scored";
}

/** The mean of the repeats that have a score; null if none has. */
export function meanOf(repeats: readonly Repeat[]): number | null {
  const scores = repeats.flatMap((each) => (each.kind === "scored" && each.score !== null ? [each.score] : []));
  return scores.length === 0 ? null : scores.reduce((sum, each) => sum + each, 0) / scores.length;
}

const FITS: Record<Filter, (row: GridRow) => boolean> = {
  all: () => true,
  different: (row) => (row.spread ?? 0) > 0,
  flaky: (row) => row.flaky.length > 0,
  failed: (row) => row.failed.length + row.unscored.length > 0,
};

/** The cases that fit a choice. Those that differ come with the widest spread first, as on the command line. */
export function chosenRows(rows: readonly GridRow[], { filter, tag, find }: Choice): GridRow[] {
  const wanted = find.trim().toLowerCase();
  const found = rows.filter(
    (row) =>
      FITS[filter](row) &&
      (tag === "" || row.tags.includes(tag)) &&
      (wanted === "" || row.case.toLowerCase().includes(wanted)),
  );
  return filter === "different" ? found.sort((a, b) => (b.spread ?? 0) - (a.spread ?? 0)) : found;
}

/** How many cases fit each filter, by itself. */
export function countsOf(rows: readonly GridRow[]): Record<Filter, number> {
  const counts = { all: 0, different: 0, flaky: 0, failed: 0 };
  for (const row of rows) for (const filter of FILTERS) if (FITS[filter](row)) counts[filter] += 1;
  return counts;
}

/** All tags, the most frequent first. */
export function tagsOf(rows: readonly GridRow[]): string[] {
  const counts = new Map<string, number>();
  for (const row of rows) for (const tag of row.tags) counts.set(tag, (counts.get(tag) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1]).map(([tag]) => tag);
}

/** A page of about this many results is read at a time. */
const RESULTS = 50_000;

export function casesPerPage(combinations: number, repeats: number): number {
  return Math.max(1, Math.min(10_000, Math.floor(RESULTS / Math.max(1, combinations * repeats))));
}
