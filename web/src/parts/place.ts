/** Where a person is, told to the browser: the name of the tab, and the focus. */
import { useEffect, useRef } from "react";

/** Name the tab after the address. If the link that led here is gone, the focus goes into the new view. */
export function usePlace(pathname: string): void {
  const before = useRef(pathname);
  useEffect(() => {
    document.title = titleOf(pathname);
    if (before.current !== pathname && document.activeElement === document.body)
      document.getElementById("content")?.focus({ preventScroll: true });
    before.current = pathname;
  }, [pathname]);
}

/** Return what tabs and bookmarks are called. */
export function titleOf(pathname: string): string {
  const [, section = "", name = "", part = "", detail = ""] = pathname.split("/").map(decoded);
  return [placeOf(section, name, part, detail), "WTB"].filter((word) => word !== "").join(" · ");
}

function placeOf(section: string, name: string, part: string, detail: string): string {
  if (section === "batches" && name === "new") return "New batch";
  if (name === "") return { runs: "Runs", batches: "Batches", workflows: "Workflows", audit: "Audit" }[section] ?? "";
  const whole = { runs: `Run ${name}`, batches: `Batch ${name}`, workflows: `Workflow ${name}` }[section] ?? "";
  if (part === "diff") return `Differences · ${whole}`;
  return detail === "" ? whole : `${part === "cases" ? "Case" : "Checkpoint"} ${detail} · ${whole}`;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // an address that somebody typed
  }
}
