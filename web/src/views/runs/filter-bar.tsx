import { useEffect, useId, useState } from "react";
import { Link, useNavigate } from "react-router";
import { AGES, filtersOf, isFiltered, searchOf, STATUSES, type Filters } from "./filters";

interface Props {
  filters: Filters;
  counts: Record<string, number> | undefined;
}

const AGE_TEXT = {
  "1h": "the last hour",
  "24h": "the last day",
  "7d": "the last week",
  "30d": "the last month",
} as const;

/** Narrows the list; every choice is a new address. */
export function FilterBar({ filters, counts }: Props) {
  const navigate = useNavigate();
  const change = (changed: Partial<Filters> | ((now: Filters) => Partial<Filters>)) => {
    const now = filtersOf(new URLSearchParams(location.search)); // not as drawn: the address follows a moment later
    const after = { ...now, ...(typeof changed === "function" ? changed(now) : changed) };
    void navigate({ search: searchOf(after).toString() }, { replace: true });
  };
  return (
    <div role="search" aria-label="Filters">
      <div className="runs-statuses" role="group" aria-label="Status">
        {STATUSES.filter((status) => (counts?.[status] ?? 0) > 0 || filters.statuses.includes(status)).map((status) => {
          const isChosen = filters.statuses.includes(status);
          return (
            <button
              key={status}
              type="button"
              className="runs-chip"
              aria-pressed={isChosen}
              onClick={() => change(({ statuses }) => ({ statuses: toggled(statuses, status) }))}
            >
              {status.replaceAll("_", " ")}{" "}
              <span className="number">{(counts?.[status] ?? 0).toLocaleString("en")}</span>
            </button>
          );
        })}
      </div>
      <div className="toolbar runs-filters">
        <TextFilter label="Workflow" value={filters.workflow} onChange={(workflow) => change({ workflow })} />
        <TextFilter label="Who" value={filters.by} onChange={(by) => change({ by })} />
        <TextFilter label="Id begins with" value={filters.prefix} onChange={(prefix) => change({ prefix })} />
        <label>
          Created in{" "}
          <select value={filters.since} onChange={(event) => change({ since: event.target.value as Filters["since"] })}>
            <option value="">all time</option>
            {AGES.map((age) => (
              <option key={age} value={age}>
                {AGE_TEXT[age]}
              </option>
            ))}
          </select>
        </label>
        <label>
          <input
            type="checkbox"
            checked={filters.batch === "all"}
            onChange={(event) => change({ batch: event.target.checked ? "all" : "" })}
          />{" "}
          with runs of batches
        </label>
        {isFiltered(filters) && <Link to="/runs">Clear all filters</Link>}
      </div>
    </div>
  );
}

function toggled<Item>(items: readonly Item[], item: Item): readonly Item[] {
  return items.includes(item) ? items.filter((each) => each !== item) : [...items, item];
}

/** A text that counts when the person stops typing. */
function TextFilter({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const id = useId();
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text.trim() === value) return undefined;
    const timer = setTimeout(() => onChange(text.trim()), 350);
    return () => clearTimeout(timer);
  });
  return (
    <label htmlFor={id}>
      {label} <input id={id} type="search" size={14} value={text} onChange={(event) => setText(event.target.value)} />
    </label>
  );
}
