import type { Key } from "./tagged";

/** The way from the top of a state to one of its places. */
export function Crumbs({ path, onGo }: { path: readonly Key[]; onGo: (path: readonly Key[]) => void }) {
  return (
    <nav className="crumbs" aria-label="Place in the state">
      <button type="button" className="plain" onClick={() => onGo([])}>
        state
      </button>
      {path.map((key, at) => (
        <span key={at}>
          ›{" "}
          <button
            type="button"
            className="plain"
            aria-current={at === path.length - 1 ? "location" : undefined}
            onClick={() => onGo(path.slice(0, at + 1))}
          >
            {String(key)}
          </button>
        </span>
      ))}
    </nav>
  );
}
