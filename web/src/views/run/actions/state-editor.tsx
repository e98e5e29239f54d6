import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Crumbs } from "../../checkpoint/state/crumbs";
import type { Entry } from "../../checkpoint/state/entries";
import { StateTree } from "../../checkpoint/state/state-tree";
import { lineOf, type Key } from "../../checkpoint/state/tagged";
import { placeQuery, useTree } from "../../checkpoint/state/use-tree";
import type { Model } from "../../../api/types";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { AddKey } from "./add-key";
import { editAbove, editAt, editText, withEdit, withoutEdit, type Edit, type Edits } from "./edits";
import { PlaceEditor } from "./place-editor";

interface Props {
  run: string;
  /** The checkpoint whose state is edited. */
  at: string;
  edits: Edits;
  onChange: (edits: Edits) => void;
}

/** Edits a state place by place. Nothing is sent here: the edits go with what is done next. */
export function StateEditor({ run, at, edits, onChange }: Props) {
  const [path, setPath] = useState<readonly Key[]>([]);
  const found = useQuery(placeQuery(run, at, path));
  return (
    <div className="state-editor">
      {path.length > 0 && <Crumbs path={path} onGo={setPath} />}
      {found.error !== null && <ProblemNote error={found.error} />}
      {found.data === undefined && found.error === null && <Loading what="the state" />}
      {found.data !== undefined && (
        <Opened key={JSON.stringify(path)} {...{ run, at, edits, onChange }} answer={found.data} />
      )}
      <EditList edits={edits} onChange={onChange} />
    </div>
  );
}

function Opened({ run, at, edits, onChange, answer }: Props & { answer: Model<"StateAnswer"> }) {
  const tree = useTree(run, at, answer);
  const [chosen, setChosen] = useState<Entry | null>(null);
  const shown = (entry: Entry) => {
    const edit = entry.path === null ? null : editAt(edits, entry.path);
    return edit === null ? null : <NewValue edit={edit} />;
  };
  const put = (edit: Edit) => onChange(withEdit(edits, edit));
  return (
    <div className="state-split">
      <div>
        <StateTree tree={tree} label="State to edit" selected={chosen?.id ?? null} onSelect={setChosen} shown={shown} />
        <AddKey parent={tree.root} onAdd={put} />
      </div>
      {chosen === null ? (
        <p className="quiet">Choose a value to change it.</p>
      ) : (
        <PlaceEditor
          key={chosen.id}
          {...{ run, at }}
          entry={chosen}
          edit={chosen.path === null ? null : editAt(edits, chosen.path)}
          above={chosen.path === null ? null : editAbove(edits, chosen.path)}
          onEdit={put}
          onKeep={() => chosen.path !== null && onChange(withoutEdit(edits, chosen.path))}
        />
      )}
    </div>
  );
}

function NewValue({ edit }: { edit: Edit }) {
  if (edit.value === undefined) return <del>deleted</del>;
  return <ins>{lineOf(edit.value)}</ins>;
}

function EditList({ edits, onChange }: { edits: Edits; onChange: (edits: Edits) => void }) {
  if (edits.length === 0) return <p className="quiet">Nothing is changed yet.</p>;
  return (
    <ul className="edit-list" aria-label="Changes">
      {edits.map((edit) => (
        <li key={JSON.stringify(edit.path)}>
          <code>{editText(edit)}</code>: {edit.before !== null && <del>{edit.before}</del>} <NewValue edit={edit} />{" "}
          <button type="button" className="plain" onClick={() => onChange(withoutEdit(edits, edit.path))}>
            Keep as it was
          </button>
        </li>
      ))}
    </ul>
  );
}
