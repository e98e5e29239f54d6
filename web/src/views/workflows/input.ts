/** The input of a run as a person types it. */

export type Parsed = { input: Record<string, unknown>; fault: null } | { input: null; fault: string };

/** Read a text as the input of a run: a JSON object, or nothing at all. */
export function parseInput(text: string): Parsed {
  if (text.trim() === "") return { input: {}, fault: null };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { input: null, fault: `This is not JSON: ${(error as Error).message}` };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return { input: null, fault: 'The input is an object with the keys of the state, such as {"question": "Why?"}' };
  return { input: value as Record<string, unknown>, fault: null };
}

export interface Choice {
  variants: Record<string, string>;
  before: readonly string[];
  after: readonly string[];
}

/** Read the variants and breakpoints of an address; a variant stands there as `node=name`. */
export function choiceOf(search: URLSearchParams): Choice {
  const variants: Record<string, string> = {};
  for (const text of search.getAll("variant")) {
    const at = text.lastIndexOf("=");
    if (at > 0) variants[text.slice(0, at)] = text.slice(at + 1);
  }
  return { variants, before: search.getAll("before"), after: search.getAll("after") };
}

export function searchOf({ variants, before, after }: Choice): URLSearchParams {
  const search = new URLSearchParams();
  for (const [node, name] of Object.entries(variants)) search.append("variant", `${node}=${name}`);
  for (const node of before) search.append("before", node);
  for (const node of after) search.append("after", node);
  return search;
}

/** Return the command that starts the same run. */
export function commandOf(source: string, text: string, choice: Choice, quoted: (word: string) => string): string {
  const words = ["wtb", "run", quoted(source)];
  const compact = parseInput(text).input;
  if (compact !== null && Object.keys(compact).length > 0) words.push("--input", quoted(JSON.stringify(compact)));
  for (const [node, name] of Object.entries(choice.variants)) words.push("--variant", quoted(`${node}=${name}`));
  for (const node of choice.before) words.push("--break-before", quoted(node));
  for (const node of choice.after) words.push("--break-after", quoted(node));
  return words.join(" ");
}
