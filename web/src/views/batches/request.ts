/** A batch as somebody fills it in: what it asks the server for, and what is wrong with it. */
import type { Model } from "../../api/types";
import { quoted } from "../../parts/command";

export type BatchRequest = Model<"BatchRequest">;
type Case = Model<"CaseRequest">;

export interface Form {
  source: "configured" | "inline";
  batch: string;
  only: string;
  workflow: string;
  name: string;
  cases: string;
  evaluators: string;
  variants: "all" | "one_at_a_time" | "pairwise" | "chosen";
  chosen: string;
  repeats: string;
  runner: "" | "threads" | "processes";
  workers: string;
  usd: string;
  tokens: string;
  seconds: string;
}

export const EMPTY: Form = {
  source: "configured",
  batch: "",
  only: "",
  workflow: "",
  name: "",
  cases: "",
  evaluators: "latency_s",
  variants: "all",
  chosen: "",
  repeats: "1",
  runner: "",
  workers: "",
  usd: "",
  tokens: "",
  seconds: "",
};

export class FormFault extends Error {}

/** Return the request of a form; raise FormFault with a sentence that says what to mend. */
export function requestOf(form: Form): BatchRequest {
  if (form.source === "configured") {
    if (form.batch === "") throw new FormFault("Choose a batch.");
    const only = linesOf(form.only);
    return { batch: form.batch, ...(only.length > 0 && { only }) };
  }
  if (form.workflow === "") throw new FormFault("Choose a workflow.");
  const evaluators = wordsOf(form.evaluators);
  if (evaluators.length === 0) throw new FormFault("Name at least one evaluator: without one, nothing is scored.");
  return {
    workflow: form.workflow,
    name: form.name.trim() || form.workflow,
    cases: casesOf(form.cases),
    evaluators,
    options: optionsOf(form),
  };
}

function optionsOf(form: Form): Model<"BatchOptions"> {
  const budget = {
    ...numberField("usd", form.usd, "the budget in dollars"),
    ...numberField("tokens", form.tokens, "the budget in tokens"),
    ...numberField("s", form.seconds, "the budget in seconds"),
  };
  return {
    variants: form.variants === "chosen" ? chosenOf(form.chosen) : form.variants,
    ...numberField("repeats", form.repeats, "the repeats"),
    ...numberField("workers", form.workers, "the workers"),
    ...(form.runner !== "" && { runner: form.runner }),
    ...(Object.keys(budget).length > 0 && { budget }),
  };
}

function numberField<Name extends string>(name: Name, text: string, what: string): Partial<Record<Name, number>> {
  if (text.trim() === "") return {};
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0) throw new FormFault(`Give a number above 0 for ${what}, not “${text}”.`);
  return { [name]: value } as Partial<Record<Name, number>>;
}

/** Read cases, one JSON object a line; an object without `input` is an input. */
export function casesOf(text: string): Case[] {
  const found = text.split("\n").flatMap((line, at) => (line.trim() === "" ? [] : [caseOf(line, at + 1)]));
  if (found.length === 0) throw new FormFault("Paste at least one case: a JSON object a line.");
  return found;
}

function caseOf(line: string, number: number): Case {
  let data: unknown;
  try {
    data = JSON.parse(line);
  } catch (error) {
    throw new FormFault(`Line ${number} of the cases is not JSON: ${(error as Error).message}.`);
  }
  if (typeof data !== "object" || data === null || Array.isArray(data))
    throw new FormFault(`Line ${number} of the cases is not an object, such as {"input": {"question": "…"}}.`);
  return "input" in data ? (data as Case) : { input: data as Record<string, unknown> };
}

/** Read combinations, one a line, as `node=variant, node=variant`. */
export function chosenOf(text: string): Record<string, string>[] {
  const found = linesOf(text).map((line) =>
    Object.fromEntries(
      line.split(",").map((part) => {
        const [node = "", variant = ""] = part.split("=").map((each) => each.trim());
        if (node === "" || variant === "")
          throw new FormFault(`“${line}” is no combination; write node=variant, and a comma before the next one.`);
        return [node, variant];
      }),
    ),
  );
  if (found.length === 0) throw new FormFault("Write the combinations to run, one a line, such as answer=long.");
  return found;
}

const linesOf = (text: string) => text.split("\n").flatMap((line) => line.trim() || []);
const wordsOf = (text: string) => text.split(/[\s,]+/).filter((word) => word !== "");

/** The command that plans or runs the same from a file. */
export function commandOf(form: Form, verb: "plan" | "run"): string {
  const words = [`wtb batch ${verb} FILE`];
  if (form.source === "configured")
    return [...words, ...linesOf(form.only).map((each) => `--only ${quoted(each)}`)].join(" ");
  words.push("--cases cases.jsonl");
  if (form.name.trim() !== "") words.push(`--name ${quoted(form.name.trim())}`);
  if (form.repeats !== "1" && form.repeats !== "") words.push(`--repeats ${quoted(form.repeats)}`);
  if (verb === "run") {
    if (form.runner !== "") words.push(`--runner ${form.runner}`);
    if (form.workers !== "") words.push(`--workers ${quoted(form.workers)}`);
    if (form.usd !== "") words.push(`--budget-usd ${quoted(form.usd)}`);
    if (form.tokens !== "") words.push(`--budget-tokens ${quoted(form.tokens)}`);
    if (form.seconds !== "") words.push(`--budget-s ${quoted(form.seconds)}`);
  }
  return words.join(" ");
}
