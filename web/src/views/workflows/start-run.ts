import { get, send } from "../../api/client";
import { ProblemError } from "../../api/problems";
import type { CommandAnswer, Model, RunList } from "../../api/types";
import type { Choice } from "./input";

const LOOK_MS = 200;

/** Start a run and return its id as soon as it exists; it goes on by itself. */
export async function startRun(workflow: string, input: Record<string, unknown>, choice: Choice): Promise<string> {
  const { data } = await send<Model<"RunChange">>("POST", ["executions"], {
    body: {
      workflow,
      input,
      options: { variants: choice.variants, break_before: choice.before, break_after: choice.after },
    },
  });
  let command = data.command;
  while (command.subject === null || !(await exists(command.subject))) {
    if (command.problem) throw new ProblemError(command.problem);
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    command = await get<CommandAnswer>(["commands", command.id]);
  }
  return command.subject;
}

/** Whether a run is stored by now; the list is asked, since a run that is missing would be an error there. */
async function exists(run: string): Promise<boolean> {
  const list = await get<RunList>(["executions"], { prefix: run, limit: 1 });
  return list.items.length > 0;
}
