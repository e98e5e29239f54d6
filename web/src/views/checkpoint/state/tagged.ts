/** Values of states as the server sends them: plain JSON, and objects with `$type` for everything else. */

export type Key = string | number;

export interface Part {
  /** What the tree shows as its name. */
  label: string;
  /** What a path to it holds; null if a path cannot lead there (an item of a set, a key that is no text). */
  key: Key | null;
  value: unknown;
}

interface Tag {
  $type: string;
  name?: unknown;
  value?: unknown;
  text?: unknown;
  zone?: unknown;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function tagOf(value: unknown): Tag | null {
  return isObject(value) && typeof value["$type"] === "string" ? (value as unknown as Tag) : null;
}

/** What a value is, in a word. */
export function kindOf(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "list";
  const tag = tagOf(value);
  if (tag !== null) return tag.$type;
  if (typeof value === "object") return "dict";
  return { string: "text", boolean: "bool", number: "number" }[typeof value as "string"] ?? typeof value;
}

/** The parts of a value that has any; null for a value without parts. */
export function partsOf(value: unknown): Part[] | null {
  if (Array.isArray(value)) return items(value, true);
  if (!isObject(value)) return null;
  const tag = tagOf(value);
  if (tag === null) return fields(value);
  const inside = tag.value;
  if (tag.$type === "tuple") return items(asList(inside), true);
  if (tag.$type === "set" || tag.$type === "frozenset") return items(asList(inside), false);
  if (tag.$type === "dict") return asList(inside).map(pair);
  if (tag.$type !== "class" && tag.$type !== "foreign") return null;
  if (Array.isArray(inside)) return items(inside, true);
  return isObject(inside) && tagOf(inside) === null ? fields(inside) : [{ label: "value", key: null, value: inside }];
}

function fields(value: Record<string, unknown>): Part[] {
  return Object.entries(value).map(([key, item]) => ({ label: key, key, value: item }));
}

function items(value: unknown[], hasPaths: boolean): Part[] {
  return value.map((item, at) => ({ label: hasPaths ? String(at) : "•", key: hasPaths ? at : null, value: item }));
}

function pair(each: unknown): Part {
  const [key, value] = asList(each);
  const isPath = typeof key === "string" || (typeof key === "number" && Number.isInteger(key));
  return { label: lineOf(key), key: isPath ? key : null, value };
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

const LINE = 300;

/** A value in one line, cut if it is long. */
export function lineOf(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return cut(value.slice(0, LINE + 1).replaceAll("\n", " ⏎ "));
  if (typeof value !== "object") return String(value);
  const tag = tagOf(value);
  if (tag !== null && partsOf(value) === null) return cut(leafText(tag));
  const parts = partsOf(value) ?? [];
  const shown = parts.slice(0, 8).map((part) => short(part, Array.isArray(value) || part.key === null));
  const inner = `${shown.join(", ")}${parts.length > shown.length ? ", …" : ""}`;
  return cut(bracketed(kindOf(value), inner, tag));
}

function short(part: Part, isItem: boolean): string {
  const value = part.value;
  const inside = partsOf(value);
  const text =
    inside !== null
      ? bracketed(kindOf(value), inside.length === 0 ? "" : "…", tagOf(value))
      : typeof value === "string"
        ? `"${lineOf(value.slice(0, 40))}${value.length > 40 ? "…" : ""}"`
        : lineOf(value);
  return isItem || /^\d+$/.test(part.label) ? text : `${part.label}: ${text}`;
}

function bracketed(kind: string, inner: string, tag: Tag | null): string {
  if (kind === "list") return `[${inner}]`;
  if (kind === "tuple") return `(${inner})`;
  if (kind === "dict") return `{${inner}}`;
  if (kind === "set" || kind === "frozenset") return `${kind} {${inner}}`;
  return `${shortName(tag?.name)}(${inner})`;
}

/** The name of a class without the module that defines it. */
export function shortName(name: unknown): string {
  return typeof name === "string" ? (name.split(/[.:]/).at(-1) ?? name) : "object";
}

/** The text of a tagged value without parts. */
function leafText(tag: Tag): string {
  const value = tag.value;
  switch (tag.$type) {
    case "masked":
      return typeof value === "string" ? value : "***";
    case "bytes":
      return bytesText(String(value ?? ""));
    case "timedelta":
      return Array.isArray(value) ? spanText(value.map(Number)) : String(value);
    case "datetime":
      return `${String(value)}${typeof tag.zone === "string" ? ` ${tag.zone}` : ""}`;
    case "opaque":
      return String(tag.text ?? tag.name ?? "an object");
    default:
      return typeof value === "object" ? JSON.stringify(value) : String(value);
  }
}

function bytesText(base64: string): string {
  const size = Math.max(0, (base64.length / 4) * 3 - (base64.match(/=*$/)?.[0].length ?? 0));
  let hex = "";
  try {
    const start = atob(base64.slice(0, 64));
    hex = Array.from(start.slice(0, 16), (each) => each.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
  } catch {
    hex = base64.slice(0, 40);
  }
  return `${size.toLocaleString("en")} bytes: ${hex}${size > 16 ? " …" : ""}`;
}

function spanText([days = 0, seconds = 0, micros = 0]: number[]): string {
  const clock = new Date(seconds * 1000).toISOString().slice(11, 19);
  const rest = micros === 0 ? "" : `.${String(micros).padStart(6, "0")}`;
  return days === 0 ? clock + rest : `${days} d ${clock}${rest}`;
}

function cut(text: string): string {
  return text.length > LINE ? `${text.slice(0, LINE)}…` : text;
}

/** The whole value as people read it: a text as it is, everything else with its parts in lines of their own. */
export function wholeText(value: unknown): string {
  return typeof value === "string" ? value : indented(value, "");
}

function indented(value: unknown, margin: string): string {
  const parts = partsOf(value);
  if (parts === null) return typeof value === "string" ? JSON.stringify(value) : wholeLeaf(value);
  const tag = tagOf(value);
  if (parts.length === 0) return bracketed(kindOf(value), "", tag);
  const isList = ["list", "tuple", "set", "frozenset"].includes(kindOf(value));
  const inner = `${margin}  `;
  const lines = parts.map((part) => `${inner}${isList ? "" : `${part.label}: `}${indented(part.value, inner)}`);
  return bracketed(kindOf(value), `\n${lines.join(",\n")}\n${margin}`, tag);
}

function wholeLeaf(value: unknown): string {
  const tag = tagOf(value);
  return tag === null ? String(value) : leafText(tag);
}

/** A path as people write it: `docs[0].title`. */
export function pathText(path: readonly unknown[]): string {
  if (path.length === 0) return "state";
  return path
    .map((key, at) => {
      if (typeof key === "number") return `[${key}]`;
      if (isObject(key)) return `[id ${String(key["id"])}]`;
      const text = String(key);
      if (!/^[\w-]+$/.test(text)) return `[${JSON.stringify(text)}]`;
      return at === 0 ? text : `.${text}`;
    })
    .join("");
}
