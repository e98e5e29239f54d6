/** Chat messages in states: those of LangChain, and mappings with a role and a content. */
import { isObject, kindOf, shortName, tagOf } from "./tagged";

export interface ToolCall {
  name: string;
  args: string;
}

export interface Message {
  role: "system" | "human" | "ai" | "tool" | "other";
  /** The role in the words of its author. */
  label: string;
  text: string;
  id: string | null;
  calls: ToolCall[];
}

const ROLES: Record<string, Message["role"]> = {
  system: "system",
  developer: "system",
  human: "human",
  user: "human",
  ai: "ai",
  assistant: "ai",
  tool: "tool",
  function: "tool",
};

const LABELS: Record<Message["role"], string> = {
  system: "System",
  human: "Human",
  ai: "AI",
  tool: "Tool",
  other: "Message",
};

/** Read a message; null if the value is none. */
export function messageOf(value: unknown): Message | null {
  const tag = tagOf(value);
  const isForeign = tag !== null && (tag.$type === "foreign" || tag.$type === "class");
  const inside = isForeign ? tag.value : tag === null ? value : null;
  if (!isObject(inside) || !("content" in inside)) return null;
  const named = inside["role"] ?? (isForeign ? inside["type"] : undefined);
  if (typeof named !== "string") return null;
  if (isForeign && !/message/i.test(shortName(tag.name)) && inside["role"] === undefined) return null;
  const role = ROLES[named.replace(/MessageChunk$/, "").toLowerCase()] ?? "other";
  const name = typeof inside["name"] === "string" && inside["name"] !== "" ? `: ${inside["name"]}` : "";
  return {
    role,
    label: (role === "other" ? named : LABELS[role]) + name,
    text: contentText(inside["content"]),
    id: typeof inside["id"] === "string" ? inside["id"] : null,
    calls: callsOf(inside["tool_calls"]),
  };
}

/** The messages of a list that holds nothing else; null for every other value. */
export function messagesOf(value: unknown): Message[] | null {
  if (!Array.isArray(value) || value.length === 0) return null;
  const found = value.map(messageOf);
  return found.every((each) => each !== null) ? found : null;
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return "";
  if (!Array.isArray(content)) return JSON.stringify(content, null, 2);
  return content.map(blockText).join("\n");
}

function blockText(block: unknown): string {
  if (typeof block === "string") return block;
  if (isObject(block) && typeof block["text"] === "string") return block["text"];
  return isObject(block) && typeof block["type"] === "string" ? `[${block["type"]}]` : `[${kindOf(block)}]`;
}

function callsOf(calls: unknown): ToolCall[] {
  if (!Array.isArray(calls)) return [];
  return calls.filter(isObject).map((call) => {
    const inner = isObject(call["function"]) ? call["function"] : call;
    const args = inner["args"] ?? inner["arguments"] ?? {};
    return { name: String(inner["name"] ?? "?"), args: typeof args === "string" ? args : JSON.stringify(args) };
  });
}
