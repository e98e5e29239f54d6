import { useState } from "react";
import type { Entry } from "../../checkpoint/state/entries";
import type { Edit } from "./edits";
import { ValueField } from "./value-field";

/** Adds a key to a mapping, or an item at the end of a list. */
export function AddKey({ parent, onAdd }: { parent: Entry; onAdd: (edit: Edit) => void }) {
  const [isOpen, setOpen] = useState(false);
  const [name, setName] = useState("");
  const [value, setValue] = useState<unknown>("");
  const isList = parent.kind === "list";
  const key = isList ? (parent.count ?? 0) : name;
  const add = () => {
    onAdd({ path: [...(parent.path ?? []), key], sent: [...parent.sent, key], value, before: null });
    setOpen(false);
    setName("");
    setValue("");
  };
  if (!isOpen)
    return (
      <button type="button" className="plain" onClick={() => setOpen(true)}>
        {isList ? "Add an item" : "Add a key"}
      </button>
    );
  return (
    <fieldset className="add-key">
      <legend>{isList ? "New item at the end" : "New key"}</legend>
      {!isList && (
        <label>
          Key <input value={name} onChange={(event) => setName(event.target.value)} />
        </label>
      )}
      <ValueField value={value} onChange={setValue} />
      <div className="toolbar">
        <button type="button" onClick={add} disabled={key === ""}>
          Add
        </button>
        <button type="button" className="plain" onClick={() => setOpen(false)}>
          Cancel
        </button>
      </div>
    </fieldset>
  );
}
