import { useId, useState } from "react";
import { readTyped, typedText, typeOf, TYPES, type TypeName } from "./edits";

/** A type and a field for it. */
export function ValueField({ value, onChange }: { value: unknown; onChange: (value: unknown) => void }) {
  const [type, setType] = useState<TypeName>(() => typeOf(value));
  const [text, setText] = useState(() => typedText(type, value));
  const [fault, setFault] = useState<string | null>(null);
  const name = useId();
  const put = (nextType: TypeName, next: string) => {
    setType(nextType);
    setText(next);
    const read = readTyped(nextType, next);
    setFault("fault" in read ? read.fault : null);
    if ("value" in read) onChange(read.value);
  };
  return (
    <div className="value-field">
      <label>
        Type{" "}
        <select
          value={type}
          onChange={(event) => put(event.target.value as TypeName, startOf(event.target.value, text))}
        >
          {Object.entries(TYPES).map(([each, label]) => (
            <option key={each} value={each}>
              {label}
            </option>
          ))}
        </select>
      </label>
      {type === "bool" ? (
        <select aria-label="Value" value={text} onChange={(event) => put(type, event.target.value)}>
          <option value="true">true</option>
          <option value="false">false</option>
        </select>
      ) : type === "number" ? (
        <input
          aria-label="Value"
          inputMode="decimal"
          value={text}
          onChange={(event) => put(type, event.target.value)}
        />
      ) : type === "null" ? null : (
        <textarea
          aria-label="Value"
          aria-describedby={fault === null ? undefined : name}
          rows={Math.min(16, Math.max(2, text.split("\n").length + 1))}
          value={text}
          onChange={(event) => put(type, event.target.value)}
        />
      )}
      {fault !== null && (
        <p id={name} className="fault" role="alert">
          {fault} The change is not taken yet.
        </p>
      )}
    </div>
  );
}

/** What a field begins with when its type is changed. */
function startOf(type: string, text: string): string {
  if (type === "bool") return text === "true" ? "true" : "false";
  if (type === "json") return JSON.stringify(text);
  return type === "number" && !Number.isFinite(Number(text)) ? "0" : text;
}
