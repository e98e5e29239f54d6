import { useCallback, useEffect, useState } from "react";
import { useSearchParams } from "react-router";

/**
 * A choice that stands in the address; its default does not. The address follows a moment later, so what was typed is
 * kept here until then: otherwise quick typing would lose letters.
 */
export function useChoice(name: string, byDefault = ""): [string, (value: string) => void] {
  const [search, setSearch] = useSearchParams();
  const [typed, setTyped] = useState<string | null>(null);
  const given = search.get(name) ?? byDefault;
  useEffect(() => {
    if (typed === given) setTyped(null);
  }, [typed, given]);
  const choose = useCallback(
    (value: string) => {
      setTyped(value);
      setSearch(
        () => {
          // Not the address as it was drawn: another choice may have changed it since.
          const changed = new URLSearchParams(location.search);
          if (value === byDefault) changed.delete(name);
          else changed.set(name, value);
          return changed;
        },
        { replace: true, preventScrollReset: true },
      );
    },
    [name, byDefault, setSearch],
  );
  return [typed ?? given, choose];
}
