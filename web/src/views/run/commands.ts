/** The command that shows the same as a part of a run. */
import { quoted } from "../../parts/command";

export type Part = "graph" | "timeline" | "branches" | "checkpoints" | "calls" | "events" | "output" | "usage";

/** Return the command for a part, with the choices that stand in the address. */
export function commandOf(part: Part, run: string, search: URLSearchParams): string {
  const id = quoted(run);
  const type = search.get("type");
  switch (part) {
    case "graph":
      return `wtb show ${id}`;
    case "timeline":
      return `wtb history ${id}`;
    case "branches":
      return `wtb history ${id} --tree`;
    case "checkpoints":
      return `wtb history ${id}${search.get("every") === "true" ? " --all" : ""}`;
    case "calls":
      return `wtb show ${id} --events --tools`;
    case "events":
      return `wtb show ${id} --events${option("type", search.get("noun"))}${option("severity", search.get("severity"))}`;
    case "output":
      return `wtb show ${id} --events${(type ? [type] : ["node.logged", "node.emitted"]).map((each) => option("type", each)).join("")}`;
    case "usage":
      return `wtb show ${id} --summary`;
  }
}

function option(name: string, value: string | null): string {
  return value ? ` --${name} ${quoted(value)}` : "";
}
