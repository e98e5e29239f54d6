import { Link } from "react-router";
import { toCheckpoint, toRun } from "../../parts/links";
import type { Detail } from "./checkpoint-view";

/** The way back to the run, and to the checkpoints before and after this one. Steps of a line rise by one. */
export function Neighbours({ id, at }: { id: string; at: Detail }) {
  const isOnLine = at.mark === "";
  return (
    <nav className="neighbours" aria-label="Checkpoints nearby">
      <Link to={toRun(id)}>Run {id}</Link>
      <span className="neighbour-links">
        {at.parent === null ? (
          <span className="quiet">First checkpoint</span>
        ) : (
          <Link to={toCheckpoint(id, at.parent)} rel="prev">
            ← Previous
          </Link>
        )}
        {isOnLine ? (
          <Link to={toCheckpoint(id, at.step + 1)} rel="next">
            Next →
          </Link>
        ) : (
          <span className="quiet">{at.mark === "head" ? "Current position" : "Not on the current line"}</span>
        )}
      </span>
    </nav>
  );
}
