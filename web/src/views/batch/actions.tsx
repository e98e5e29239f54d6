import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";
import { address, get, send } from "../../api/client";
import { ProblemError } from "../../api/problems";
import type { Batch, CommandAnswer, Model } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { ProblemNote } from "../../parts/problem";
import { useMay } from "../../parts/session";
import { isMoving } from "./batch-queries";

type Verb = "cancel" | "resume" | "retry";

/** What can be done with a batch, and links to its report. */
export function Actions({ batch }: { batch: Batch }) {
  const client = useQueryClient();
  const [search] = useSearchParams();
  const [command, setCommand] = useState<string | null>(search.get("command"));
  const mayAct = useMay("operator");
  const acting = useMutation({
    mutationFn: (verb: Verb) =>
      send<Batch | Model<"BatchChange">>(
        "POST",
        ["batches", batch.id, verb],
        verb === "cancel" ? {} : { query: { wait_s: 0 } },
      ),
    onSuccess: ({ data }) => {
      setCommand("command" in data ? data.command.id : null);
      void client.invalidateQueries({ queryKey: ["batch"] });
    },
  });
  const verbs = mayAct ? verbsOf(batch) : [];
  return (
    <>
      <div className="toolbar">
        {verbs.map((verb) => (
          <button
            key={verb}
            type="button"
            className={verb === "cancel" ? "danger" : ""}
            disabled={acting.isPending}
            onClick={() => acting.mutate(verb)}
          >
            {LABELS[verb]}
          </button>
        ))}
        <a className="button" href={address(["batches", batch.id, "report"])} target="_blank" rel="noreferrer">
          Report
        </a>
        <details className="more">
          <summary>Commands</summary>
          <Command text={`wtb batch status ${quoted(batch.name)}`} label="How far it has come" />
          <Command text={`wtb batch cancel ${quoted(batch.name)}`} label="Cancel it" />
          <Command
            text={`wtb batch retry ${quoted(batch.name)} FILE`}
            label="Retry failures, with the file of the batch"
          />
          <Command text={`wtb report ${quoted(batch.name)}`} label="Write the report" />
          <Command text={`wtb batch show ${quoted(batch.name)} --csv results.csv`} label="Export every result" />
        </details>
      </div>
      {acting.error !== null && <ProblemNote error={acting.error} />}
      {command !== null && <Ordered key={command} id={command} />}
    </>
  );
}

const LABELS: Record<Verb, string> = { cancel: "Cancel", resume: "Resume", retry: "Retry failures" };

function verbsOf(batch: Batch): Verb[] {
  if (isMoving(batch.status)) return ["cancel"];
  const verbs: Verb[] = batch.left > 0 || batch.status === "paused" ? ["resume"] : [];
  return batch.failed > 0 || batch.status === "completed_with_errors" ? [...verbs, "retry"] : verbs;
}

/** A command that a worker carries out: shown until it has ended, and for good if it failed. */
function Ordered({ id }: { id: string }) {
  const found = useQuery({
    queryKey: ["command", id],
    queryFn: ({ signal }) => get<CommandAnswer>(["commands", id], {}, signal),
    refetchInterval: ({ state }) => (state.data === undefined || isOpen(state.data) ? 1_000 : false),
  });
  if (found.error !== null) return <ProblemNote error={found.error} />;
  if (found.data?.problem != null) return <ProblemNote error={new ProblemError(found.data.problem)} />;
  if (found.data === undefined || !isOpen(found.data)) return null;
  return (
    <p className="quiet" role="status">
      {found.data.status === "pending" ? "Waiting for a worker of the server …" : "A worker of the server runs it."}
    </p>
  );
}

const isOpen = (command: CommandAnswer) => command.status === "pending" || command.status === "running";
