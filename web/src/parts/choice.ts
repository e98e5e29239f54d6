import { useCallback, useEffect, useState } from "react";
import { useSearchParams, type NavigateOptions } from "react-router";

/** Return a function that changes the address as it is now, not as it was drawn: another choice may have changed it. */
export function useChange(): (change: (search: URLSearchParams) => void, options?: NavigateOptions) => void {
  const [, setSearch] = useSearchParams();
  return useCallback(
    (change, options) => {
      const search = new URLSearchParams(location.search);
      change(search);
      setSearch(search, { preventScrollReset: true, ...options });
    },
    [setSearch],
  );
}

/**
 * A choice that stands in the address; its default does not. The address follows a moment later, so what was typed is
 * kept here until then: otherwise quick typing would lose letters, and the cursor would jump to the end.
 */
export function useChoice(name: string, byDefault = ""): [string, (value: string) => void] {
  const [search] = useSearchParams();
  const change = useChange();
  const [typed, setTyped] = useState<string | null>(null);
  const given = search.get(name) ?? byDefault;
  useEffect(() => {
    // Not what was typed when this was drawn: a letter more may have come since.
    setTyped((now) => (now === given ? null : now));
  }, [typed, given]);
  const choose = useCallback(
    (value: string) => {
      setTyped(value);
      change((search) => (value === byDefault ? search.delete(name) : search.set(name, value)), { replace: true });
    },
    [name, byDefault, change],
  );
  return [typed ?? given, choose];
}
