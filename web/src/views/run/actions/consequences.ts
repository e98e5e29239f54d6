/** What a person has to accept before a rollback: one sentence for each class of consequences. */
import { countText } from "../../../parts/format";
import type { Plan, Scope } from "./requests";

export interface Consequence {
  key: string;
  text: string;
}

export function consequencesOf(plan: Plan, scope: Scope): Consequence[] {
  const found: Consequence[] = [...tally(plan.irreversible)].map(([tool, count]) => ({
    key: `stays ${tool}`,
    text: `${countText(count, "call")} of ${tool} cannot be undone and ${count === 1 ? "stays" : "stay"} in effect.`,
  }));
  if (plan.kept.length > 0) {
    const [stays, them] = plan.kept.length === 1 ? ["stays", "it"] : ["stay", "them"];
    const why = scope.tools ? `because a fork builds on ${them}` : "because you leave the calls alone";
    found.push({ key: "kept", text: `${countText(plan.kept.length, "call")} ${stays} in effect, ${why}.` });
  }
  return found;
}

function tally(calls: Plan["irreversible"]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { tool } of calls) counts.set(tool, (counts.get(tool) ?? 0) + 1);
  return counts;
}

/** What the button says: what will happen, in numbers. */
export function summaryOf(plan: Plan): string {
  const said = [countText(plan.nodes.length, "visit")];
  if (plan.reverse.length > 0) said.push(countText(plan.reverse.length, "call"));
  return `undo ${said.join(" and ")}`;
}
