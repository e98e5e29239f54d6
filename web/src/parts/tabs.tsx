import { useEffect, useRef } from "react";
import { Link, useSearchParams } from "react-router";

/** Tabs whose choice stands in the address, as `?view=`, so that it can be shared and survives a reload. */
export function Tabs<Name extends string>({ label, tabs, chosen }: TabsProps<Name>) {
  const [search] = useSearchParams();
  const row = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone not all tabs are in sight; the chosen one has to be.
    const tab = row.current?.querySelector<HTMLElement>("[aria-current]");
    if (row.current !== null && tab != null) row.current.scrollLeft = tab.offsetLeft - row.current.clientWidth / 2;
  }, [chosen]);
  return (
    <nav ref={row} className="tabs" aria-label={label}>
      {tabs.map((tab) => (
        <Link
          key={tab.name}
          to={{ search: withView(search, tab.name) }}
          aria-current={tab.name === chosen ? "page" : undefined}
          preventScrollReset
        >
          {tab.label}
          {tab.count !== undefined && <span className="count">{tab.count.toLocaleString("en")}</span>}
        </Link>
      ))}
    </nav>
  );
}

interface TabsProps<Name extends string> {
  label: string;
  tabs: readonly { name: Name; label: string; count?: number }[];
  chosen: Name;
}

/** Return the tab that the address names, or else the first one. */
export function useTab<Name extends string>(names: readonly [Name, ...Name[]]): Name {
  const [search] = useSearchParams();
  return names.find((name) => name === search.get("view")) ?? names[0];
}

function withView(search: URLSearchParams, view: string): string {
  const changed = new URLSearchParams(search);
  changed.set("view", view);
  return changed.toString();
}
