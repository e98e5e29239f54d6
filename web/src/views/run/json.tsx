/** A value of tagged JSON as indented text; a long one is cut until it is asked for. */
import { useState } from "react";

const MOST = 4_000;

export function Json({ value, label }: { value: unknown; label: string }) {
  const [isWhole, setWhole] = useState(false);
  const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
  return (
    <div className="run-json">
      <span className="quiet">{label}</span>
      <pre>{isWhole || text.length <= MOST ? text : `${text.slice(0, MOST)} …`}</pre>
      {text.length > MOST && !isWhole && (
        <button type="button" className="plain" onClick={() => setWhole(true)}>
          Show all {text.length.toLocaleString("en")} characters
        </button>
      )}
    </div>
  );
}

/** A value in one line, short enough for a table. */
export function briefly(value: unknown, most = 160): string {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  return text.length > most ? `${text.slice(0, most)} …` : text;
}
