import { useState, type ReactNode } from "react";
import { countText } from "../../../parts/format";

/** Above this many nodes a person is asked first: a picture of them takes long, and shows little. */
const MOST_NODES = 500;

/** Asks before something is drawn that may take long. */
export function Asked({ count, children }: { count: number; children: ReactNode }) {
  const [isWanted, setWanted] = useState(false);
  if (count <= MOST_NODES || isWanted) return children;
  return (
    <div className="empty">
      <p>This graph has {countText(count, "node")}. Drawing it can take a while.</p>
      <button type="button" onClick={() => setWanted(true)}>
        Draw it
      </button>
    </div>
  );
}
