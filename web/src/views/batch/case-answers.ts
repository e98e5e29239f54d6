/** The results of a case, gathered by combination; equal answers of repeats stand once. */
import type { Model } from "../../api/types";

type Result = Model<"JobResultAnswer">;

export interface Answer {
  text: string | null;
  size: number;
  results: Result[];
}

export interface CombinationAnswers {
  combination: string;
  isBaseline: boolean;
  results: Result[];
  answers: Answer[];
  failed: number;
}

export function answersOf(results: readonly Result[], baseline: string): CombinationAnswers[] {
  const found = new Map<string, Result[]>();
  for (const result of results) found.set(result.combination, [...(found.get(result.combination) ?? []), result]);
  return [...found].map(([combination, own]) => ({
    combination,
    isBaseline: combination === baseline,
    results: own,
    answers: distinct(own.filter((result) => result.error === null)),
    failed: own.filter((result) => result.error !== null).length,
  }));
}

function distinct(results: readonly Result[]): Answer[] {
  const found = new Map<string | null, Answer>();
  for (const result of results) {
    const known = found.get(result.output);
    if (known !== undefined) known.results.push(result);
    else found.set(result.output, { text: result.output, size: result.output_size, results: [result] });
  }
  return [...found.values()];
}
