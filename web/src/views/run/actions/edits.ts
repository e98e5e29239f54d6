/** Edits of a state: only the paths that change are sent. */
import { isObject, kindOf, pathText, tagOf, type Key } from "../../checkpoint/state/tagged";
import { quoted } from "../../../parts/command";
import type { StateEdit } from "./requests";

/** A key of a path as it is sent: a message is named by its id, so that it stays the same one. */
export type SentKey = Key | { id: string };

export interface Edit {
  path: readonly Key[];
  sent: readonly SentKey[];
  /** The new value as tagged JSON; undefined to delete the place. */
  value: unknown;
  /** What was there, in a line. */
  before: string | null;
}

export type Edits = readonly Edit[];

/** Put an edit among others; edits of its parts fall away, since it replaces them. */
export function withEdit(edits: Edits, edit: Edit): Edits {
  return [...edits.filter((each) => !isAbove(edit.path, each.path)), edit];
}

export function withoutEdit(edits: Edits, path: readonly Key[]): Edits {
  return edits.filter((each) => !isSame(each.path, path));
}

export function editAt(edits: Edits, path: readonly Key[]): Edit | null {
  return edits.find((each) => isSame(each.path, path)) ?? null;
}

/** The edit of a place that holds this one. */
export function editAbove(edits: Edits, path: readonly Key[]): Edit | null {
  return edits.find((each) => each.path.length < path.length && isAbove(each.path, path)) ?? null;
}

export function bodyOf(edits: Edits): StateEdit | undefined {
  if (edits.length === 0) return undefined;
  return {
    set: edits.filter((each) => each.value !== undefined).map(({ sent, value }) => ({ path: [...sent], value })),
    delete: edits.filter((each) => each.value === undefined).map(({ sent }) => [...sent]),
  } as StateEdit;
}

/** The options of a command that make the same edits; null if the command line cannot. */
export function optionsOf(edits: Edits): string | null {
  const isSimple = edits.every(
    ({ path, value }) => path.length === 1 && value !== undefined && !JSON.stringify(value).includes('"$type"'),
  );
  if (!isSimple) return null;
  return edits.map(({ path, value }) => ` --set ${quoted(`${String(path[0])}=${JSON.stringify(value)}`)}`).join("");
}

function isAbove(path: readonly Key[], other: readonly Key[]): boolean {
  return path.length <= other.length && path.every((key, at) => key === other[at]);
}

function isSame(path: readonly Key[], other: readonly Key[]): boolean {
  return path.length === other.length && isAbove(path, other);
}

/** How a value can be typed. */
export type TypeName = "text" | "number" | "bool" | "null" | "json" | (typeof SPECIAL)[number];

/** Types that JSON does not have, but that are written as one text. */
const SPECIAL = ["datetime", "date", "time", "decimal", "uuid", "bytes"] as const;

export const TYPES: Record<TypeName, string> = {
  text: "Text",
  number: "Number",
  bool: "True or false",
  null: "Nothing (null)",
  json: "JSON",
  datetime: "Date and time",
  date: "Date",
  time: "Time",
  decimal: "Decimal",
  uuid: "UUID",
  bytes: "Bytes (base64)",
};

export function typeOf(value: unknown): TypeName {
  const kind = kindOf(value);
  if (kind === "text" && typeof value === "string") return "text";
  if (kind === "number" || kind === "int") return "number";
  if (kind === "bool" || kind === "null") return kind;
  return SPECIAL.find((each) => each === kind && typeof tagOf(value)?.value === "string") ?? "json";
}

/** What stands in the field of a value. */
export function typedText(type: TypeName, value: unknown): string {
  if (type === "text") return typeof value === "string" ? value : "";
  if (type === "number")
    return isObject(value) ? String(value["value"]) : typeof value === "number" ? String(value) : "";
  if (type === "bool") return value === true ? "true" : "false";
  if (type === "null") return "";
  return type === "json" ? JSON.stringify(value ?? null, null, 2) : String(tagOf(value)?.value ?? "");
}

export type Read = { value: unknown } | { fault: string };

const INTEGER = /^[+-]?\d+$/;

/** Read what was typed. */
export function readTyped(type: TypeName, text: string): Read {
  if (type === "text") return { value: text };
  if (type === "null") return { value: null };
  if (type === "bool") return { value: text === "true" };
  if (type === "number") return readNumber(text.trim());
  if (type !== "json") return { value: { $type: type, value: text.trim() } };
  try {
    return { value: JSON.parse(text) as unknown };
  } catch (error) {
    return { fault: `This is not JSON: ${(error as Error).message}` };
  }
}

function readNumber(text: string): Read {
  const value = Number(text);
  if (text === "" || !Number.isFinite(value)) return { fault: "This is not a number; write one such as 12 or 0.5." };
  const isLong = INTEGER.test(text) && !Number.isSafeInteger(value);
  return { value: isLong ? { $type: "int", value: text.replace("+", "") } : value };
}

/** Why a value cannot be edited; null if it can. */
export function lockOf(value: unknown): string | null {
  const kind = kindOf(value);
  if (kind === "masked") return "It is a secret, shown masked. It stays as it is.";
  if (kind === "opaque") return "It cannot be described as JSON. It stays as it is.";
  if (kind === "foreign") return "It is an object of a library. Open it, and edit its parts.";
  return null;
}

export function editText(edit: Edit): string {
  return pathText(edit.sent);
}
