import { useSearchParams } from "react-router";

/** The result that the address names, as in `?at=CASE&of=COMBINATION`. */
export function useOpened(): [{ case: string; combination: string } | null, (opened: [string, string] | null) => void] {
  const [search, setSearch] = useSearchParams();
  const [caseId, combination] = [search.get("at"), search.get("of")];
  const open = (opened: [string, string] | null) =>
    setSearch(
      (before) => {
        const changed = new URLSearchParams(before);
        changed.delete("at");
        changed.delete("of");
        if (opened !== null) {
          changed.set("at", opened[0]);
          changed.set("of", opened[1]);
        }
        return changed;
      },
      { preventScrollReset: true },
    );
  return [caseId === null || combination === null ? null : { case: caseId, combination }, open];
}
