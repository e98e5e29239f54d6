/** What an event tells, in one line: the node and the tool first, then what happened, and ids not at all. */
import { briefly } from "./json";

const FIRST = ["error", "reason", "text", "data", "answer", "name", "keys", "arguments"];
const IDS = new Set(["call", "checkpoint", "trace", "node", "visit", "tool", "from", "to", "attempt"]);

export function eventText(data: Record<string, unknown>): string {
  const visit = data["visit"] === undefined ? "" : `#${briefly(data["visit"])}`;
  const place = data["node"] === undefined ? [] : [`${briefly(data["node"], 60)}${visit}`];
  const attempt = Number(data["attempt"] ?? 1);
  if (attempt > 1) place.push(`attempt ${attempt}`);
  if (data["tool"] !== undefined) place.push(briefly(data["tool"], 60));
  const names = Object.keys(data).filter((name) => !IDS.has(name) && briefly(data[name]) !== "");
  const rank = (name: string) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const facts = names
    .sort((a, b) => rank(a) - rank(b))
    .map((name) => (rank(name) < 4 ? briefly(data[name], 200) : `${name}: ${briefly(listed(data[name]), 80)}`));
  return [...place, ...facts].join(" · ");
}

/** A list of names as people write it; of an identity of a call, only the tool and its number count. */
function listed(value: unknown): unknown {
  const isNames = Array.isArray(value) && value.every((each) => typeof each === "string");
  return isNames ? value.map((name) => name.replace(/:[0-9a-f]{32}(?=#)/, "")).join(", ") : value;
}
