import { useSearchParams } from "react-router";
import { useChange } from "../../parts/choice";

/** The result that the address names, as in `?at=CASE&of=COMBINATION`. */
export function useOpened(): [{ case: string; combination: string } | null, (opened: [string, string] | null) => void] {
  const [search] = useSearchParams();
  const change = useChange();
  const [caseId, combination] = [search.get("at"), search.get("of")];
  const open = (opened: [string, string] | null) =>
    change((search) => {
      search.delete("at");
      search.delete("of");
      if (opened !== null) {
        search.set("at", opened[0]);
        search.set("of", opened[1]);
      }
    });
  return [caseId === null || combination === null ? null : { case: caseId, combination }, open];
}
