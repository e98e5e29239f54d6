import { problemOf, ProblemError, unreachable } from "./problems";
import type { CommandAnswer } from "./types";

export type Query = Record<string, string | number | boolean | null | undefined | readonly string[]>;

export interface Answer<Data> {
  data: Data;
  status: number;
  etag: string | null;
}

interface Sending {
  query?: Query;
  body?: unknown;
  /** The version, or the plan, that the person has seen. */
  ifMatch?: string;
  token?: string;
  signal?: AbortSignal;
}

const PREFIX = "/api/v1";
const POLL_MS = 500;
const WAIT_S = 30;

/** Return an address of the API; parts of a path are encoded, whatever a name holds. */
export function address(parts: readonly (string | number)[], query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined) continue;
    for (const each of Array.isArray(value) ? value : [value]) search.append(name, String(each));
  }
  const text = search.toString();
  const path = parts.map((part) => encodeURIComponent(String(part))).join("/");
  return `${PREFIX}/${path}${text === "" ? "" : `?${text}`}`;
}

/** Read something; raise ProblemError. */
export async function get<Data>(
  parts: readonly (string | number)[],
  query: Query = {},
  signal?: AbortSignal,
): Promise<Data> {
  return (await send<Data>("GET", parts, { query, signal })).data;
}

/** Read something together with its version. */
export function getWithVersion<Data>(
  parts: readonly (string | number)[],
  query: Query = {},
  signal?: AbortSignal,
): Promise<Answer<Data>> {
  return send<Data>("GET", parts, { query, signal });
}

/** Send a request; raise ProblemError unless it succeeds. */
export async function send<Data>(
  method: "GET" | "POST" | "DELETE",
  parts: readonly (string | number)[],
  sending: Sending = {},
): Promise<Answer<Data>> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (sending.body !== undefined) headers["Content-Type"] = "application/json";
  if (sending.ifMatch !== undefined) headers["If-Match"] = sending.ifMatch;
  if (sending.token !== undefined) headers["Authorization"] = `Bearer ${sending.token}`;
  if (method === "POST") headers["Idempotency-Key"] = crypto.randomUUID();
  const body = sending.body === undefined ? undefined : JSON.stringify(sending.body);
  const response = await reach(address(parts, sending.query), { method, headers, body, signal: sending.signal });
  if (!response.ok) throw await problemOf(response);
  const text = await response.text();
  const data = (text === "" ? null : JSON.parse(text)) as Data;
  return { data, status: response.status, etag: response.headers.get("ETag") };
}

interface WithCommand {
  command: CommandAnswer;
}

/** Send a request that a worker carries out, and wait until it has: the server waits first, then we ask. */
export async function act<Data extends WithCommand>(
  parts: readonly (string | number)[],
  sending: Sending = {},
): Promise<Answer<Data>> {
  const answer = await send<Data>("POST", parts, { ...sending, query: { wait_s: WAIT_S, ...sending.query } });
  if (answer.status !== 202) return answer;
  let command = answer.data.command;
  while (command.status === "pending" || command.status === "running") {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    command = (await find(command.id, sending.signal)) ?? command;
  }
  if (command.problem) throw new ProblemError(command.problem);
  return { ...answer, data: { ...answer.data, ...command.result, command } };
}

/** Return a command; null while the server is away: what it accepted is carried out when it is back. */
async function find(id: string, signal?: AbortSignal): Promise<CommandAnswer | null> {
  try {
    return await get<CommandAnswer>(["commands", id], {}, signal);
  } catch (error) {
    if (error instanceof ProblemError && error.status === 0) return null;
    throw error;
  }
}

async function reach(url: string, request: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...request, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw unreachable();
  }
}
