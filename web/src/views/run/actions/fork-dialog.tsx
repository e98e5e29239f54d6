import { useState } from "react";
import { Link } from "react-router";
import type { Run } from "../../../api/types";
import { Command, quoted } from "../../../parts/command";
import { Dialog } from "../../../parts/dialog";
import { countText } from "../../../parts/format";
import { toDiff, toRun } from "../../../parts/links";
import { ProblemNote } from "../../../parts/problem";
import { commandName, visitText, type Checkpoint } from "../../checkpoint/labels";
import { CheckpointChoice } from "./checkpoint-choice";
import { bodyOf, optionsOf, readTyped, type Edits } from "./edits";
import { fork, resume, useChange, type RunChange } from "./requests";
import { Variants, variantWords } from "./run-options";
import { StateEditor } from "./state-editor";
import "./actions.css";

interface Props {
  run: Run;
  /** Where the fork begins; without one, at the current position or where the person chooses. */
  target: Checkpoint | null;
  onClose: () => void;
}

type Where = "position" | "earlier" | "input";

/** Makes a new run from a checkpoint of this one, with other variants, another state or another input. */
export function ForkDialog({ run, target: given, onClose }: Props) {
  const [where, setWhere] = useState<Where>("position");
  const [earlier, setEarlier] = useState<Checkpoint | null>(null);
  const [name, setName] = useState("");
  const [variants, setVariants] = useState(run.variants);
  const [edits, setEdits] = useState<Edits>([]);
  const [input, setInput] = useState("{}");
  const [isRun, setRun] = useState(true);
  const position = given ?? (run.head === null ? null : { ...run.head, mark: "head" });
  const target = where === "earlier" ? earlier : position;
  const read = readTyped("json", input);
  const go = useChange(run.id, async () => {
    const begin =
      where === "input"
        ? { input: "value" in read ? read.value : null }
        : { target: target?.id, update: bodyOf(edits) };
    const made = await fork(run.id, {
      ...begin,
      name: name === "" ? undefined : name,
      variants: changed(run, variants),
    });
    const id = made.run?.id;
    if (isRun && id !== undefined) void resume(id, {}).catch(() => undefined); // its own view tells how it goes
    return made;
  });
  const isReady = where === "input" ? "value" in read : target !== null;
  const words = where === "input" ? "" : optionsOf(edits);
  const begin =
    where === "input" ? ` --input ${quoted(input)}` : ` ${target === null ? "TARGET" : quoted(commandName(target))}`;
  return (
    <Dialog title={`Fork ${run.id}`} onClose={onClose}>
      {go.isSuccess ? (
        <Forked run={run} target={where === "input" ? null : target} made={go.data} onClose={onClose} />
      ) : (
        <div className="wide-dialog">
          <p>A fork is a new run. This run stays as it is.</p>
          <fieldset className="choices">
            <legend>It begins</legend>
            <Radio here="position" {...{ where, setWhere }}>
              at {placeText(position)}
            </Radio>
            {given === null && (
              <Radio here="earlier" {...{ where, setWhere }}>
                at an earlier checkpoint
              </Radio>
            )}
            <Radio here="input" {...{ where, setWhere }}>
              anew, with another input
            </Radio>
          </fieldset>
          {where === "earlier" && (
            <CheckpointChoice label="Begin at" run={run.id} chosen={earlier} onChoose={setEarlier} />
          )}
          {where === "input" && (
            <label className="stacked">
              Input, as JSON
              <textarea rows={5} value={input} onChange={(event) => setInput(event.target.value)} />
              {"fault" in read && <span className="fault">{read.fault}</span>}
            </label>
          )}
          <Variants run={run} variants={variants} onChange={setVariants} />
          {where !== "input" && target !== null && (
            <details>
              <summary>State: {edits.length === 0 ? "as it is there" : countText(edits.length, "change")}</summary>
              <StateEditor key={target.id} run={run.id} at={target.id} edits={edits} onChange={setEdits} />
            </details>
          )}
          <div className="toolbar">
            <label>
              Name of its branch{" "}
              <input value={name} placeholder="main" onChange={(event) => setName(event.target.value)} />
            </label>
            <label>
              <input type="checkbox" checked={isRun} onChange={(event) => setRun(event.target.checked)} /> Run it at
              once
            </label>
          </div>
          {go.error !== null && <ProblemNote error={go.error} />}
          <div className="toolbar dialog-end">
            <button
              type="button"
              className="primary"
              disabled={!isReady || go.isPending}
              onClick={() => go.mutate(undefined)}
            >
              {go.isPending ? "Forking …" : "Fork"}
            </button>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
          </div>
          {words !== null && (
            <Command
              text={`wtb fork ${quoted(run.id)}${begin}${words}${variantWords(run.variants, variants).join("")}${name === "" ? "" : ` --name ${quoted(name)}`}${isRun ? " --resume" : ""}`}
            />
          )}
        </div>
      )}
    </Dialog>
  );
}

function placeText(target: Checkpoint | null): string {
  return target === null ? "its start" : `${visitText(target)}, step ${target.step}`;
}

function changed(run: Run, variants: Readonly<Record<string, string>>): object | undefined {
  return JSON.stringify(run.variants) === JSON.stringify(variants) ? undefined : variants;
}

interface RadioProps {
  here: Where;
  where: Where;
  setWhere: (where: Where) => void;
  children: React.ReactNode;
}

function Radio({ here, where, setWhere, children }: RadioProps) {
  return (
    <label>
      <input type="radio" name="fork-begins" checked={where === here} onChange={() => setWhere(here)} />
      <span>{children}</span>
    </label>
  );
}

interface ForkedProps {
  run: Run;
  target: Checkpoint | null;
  made: RunChange;
  onClose: () => void;
}

/** The new run, and the way to compare it with its origin. */
function Forked({ run, target, made, onClose }: ForkedProps) {
  const id = made.run?.id ?? "";
  const origin = run.head?.id ?? target?.id ?? "0";
  return (
    <section role="status">
      <p className="note">
        The fork is run <Link to={toRun(id)}>{id}</Link>.
      </p>
      <p>
        <Link className="button" to={toRun(id)}>
          Open the fork
        </Link>{" "}
        <Link className="button" to={toDiff(run.id, origin, "", id)}>
          Compare it with its origin
        </Link>
      </p>
      <div className="toolbar dialog-end">
        <button type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </section>
  );
}
