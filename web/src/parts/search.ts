import { useCallback } from "react";
import { useSearchParams } from "react-router";

/** The choices in the address, and a function that changes some of them; an empty one is left out. */
export function useSearch(): [URLSearchParams, (changes: Record<string, string>) => void] {
  const [search, setSearch] = useSearchParams();
  const change = useCallback(
    (changes: Record<string, string>) =>
      setSearch(
        (before) => {
          const after = new URLSearchParams(before);
          for (const [name, value] of Object.entries(changes)) {
            if (value === "") after.delete(name);
            else after.set(name, value);
          }
          return after;
        },
        { replace: true, preventScrollReset: true },
      ),
    [setSearch],
  );
  return [search, change];
}
