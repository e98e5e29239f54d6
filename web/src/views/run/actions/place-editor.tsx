import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { Entry } from "../../checkpoint/state/entries";
import { lineOf, pathText } from "../../checkpoint/state/tagged";
import { placeQuery } from "../../checkpoint/state/use-tree";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { AddKey } from "./add-key";
import { lockOf, type Edit } from "./edits";
import { ValueField } from "./value-field";

interface Props {
  run: string;
  at: string;
  entry: Entry;
  edit: Edit | null;
  /** An edit of a place that holds this one. */
  above: Edit | null;
  onEdit: (edit: Edit) => void;
  onKeep: () => void;
}

/** Edits one place of a state, by a field that fits its type. */
export function PlaceEditor({ run, at, entry, edit, above, onEdit, onKeep }: Props) {
  const { path } = entry;
  const whole = useQuery({ ...placeQuery(run, at, path ?? []), enabled: !entry.isWhole && path !== null });
  if (path === null) return <Locked entry={entry} why="Edit the value that holds it." />;
  if (above !== null)
    return <Locked entry={entry} why={`It is a part of ${pathText(above.path)}, which you have changed as a whole.`} />;
  if (!entry.isWhole && whole.data?.is_whole !== true) {
    if (whole.error !== null) return <ProblemNote error={whole.error} />;
    if (whole.data === undefined) return <Loading what="this value" />;
    return (
      <Locked entry={entry} why="It is too large to be edited as a whole. Open it, and edit its parts.">
        {(entry.kind === "list" || entry.kind === "dict") && <AddKey parent={entry} onAdd={onEdit} />}
      </Locked>
    );
  }
  const value = entry.isWhole ? entry.value : whole.data?.value;
  const change = (next: unknown) => onEdit({ path, sent: entry.sent, value: next, before: lineOf(value).slice(0, 80) });
  const lock = lockOf(value);
  return (
    <section className="place" aria-label="Edit the chosen value">
      <h3>
        <code>{pathText(entry.sent)}</code>
      </h3>
      {lock === null ? (
        <ValueField value={edit === null ? value : edit.value} onChange={change} />
      ) : (
        <p className="quiet">{lock}</p>
      )}
      <div className="toolbar">
        {edit !== null && (
          <button type="button" onClick={onKeep}>
            Keep as it was
          </button>
        )}
        {edit?.value !== undefined || edit === null ? (
          <button type="button" onClick={() => change(undefined)}>
            Delete {typeof path.at(-1) === "number" ? "this item" : "this key"}
          </button>
        ) : null}
      </div>
      {(entry.kind === "list" || entry.kind === "dict") && edit === null && <AddKey parent={entry} onAdd={onEdit} />}
    </section>
  );
}

function Locked({ entry, why, children }: { entry: Entry; why: string; children?: ReactNode }) {
  return (
    <section className="place" aria-label="Edit the chosen value">
      <h3>
        <code>{entry.path === null ? entry.label : pathText(entry.path)}</code>
      </h3>
      <p className="quiet">{why}</p>
      {children}
    </section>
  );
}
