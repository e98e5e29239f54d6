import { useEffect, useState } from "react";
import { useSearchParams } from "react-router";
import { useChange } from "../../parts/choice";
import { FIELDS, filtersOf, isFiltered, type Field, type Filters } from "./filters";

/** The filters of the address, and a way to change one. What was typed is kept here until the address has it. */
export function useFilters(): [Filters, (field: Field, value: string) => void, () => void] {
  const [search] = useSearchParams();
  const changeAddress = useChange();
  const [typed, setTyped] = useState<Partial<Filters>>({});
  const given = filtersOf(search);
  useEffect(() => {
    const isThere = (now: Partial<Filters>) => FIELDS.every((field) => (now[field] ?? given[field]) === given[field]);
    setTyped((now) => (Object.keys(now).length > 0 && isThere(now) ? {} : now));
  }, [typed, search]);
  const change = (changes: Partial<Filters>) => {
    setTyped((before) => ({ ...before, ...changes }));
    changeAddress(
      (search) => {
        for (const [field, value] of Object.entries(changes))
          if (value === "") search.delete(field);
          else search.set(field, value);
      },
      { replace: true },
    );
  };
  const set = (field: Field, value: string) => change({ [field]: value });
  const clear = () => change(Object.fromEntries(FIELDS.map((field) => [field, ""])));
  return [{ ...given, ...typed }, set, clear];
}

/** Filters of the trail. */
export function FilterBar() {
  const [filters, set, clear] = useFilters();
  const text = (field: Field, label: string, placeholder = "") => (
    <label>
      {label}
      <input
        value={filters[field]}
        placeholder={placeholder}
        size={14}
        onChange={(event) => set(field, event.target.value)}
      />
    </label>
  );
  return (
    <div className="toolbar audit-filters" role="search" aria-label="Filters">
      <label>
        Show
        <select value={filters.only} onChange={(event) => set("only", event.target.value)}>
          <option value="">what people decided</option>
          <option value="errors">errors only</option>
          <option value="tools">tools only</option>
          <option value="everything">everything</option>
        </select>
      </label>
      {text("by", "Person", "name or token")}
      {text("type", "Type", "token, node.failed")}
      <label>
        Severity
        <select value={filters.severity} onChange={(event) => set("severity", event.target.value)}>
          <option value="">any</option>
          <option>info</option>
          <option>warning</option>
          <option>error</option>
        </select>
      </label>
      {text("run", "Run", "whole id")}
      {text("batch", "Batch", "whole id")}
      <PeriodFields />
      {isFiltered(filters) && (
        <button type="button" className="plain" onClick={clear}>
          Clear the filters
        </button>
      )}
    </div>
  );
}

/** From when, until when. */
export function PeriodFields() {
  const [filters, set] = useFilters();
  return (
    <>
      <label>
        From
        <input type="datetime-local" value={filters.since} onChange={(event) => set("since", event.target.value)} />
      </label>
      <label>
        Until
        <input type="datetime-local" value={filters.until} onChange={(event) => set("until", event.target.value)} />
      </label>
    </>
  );
}
