/** Lines of a unified diff, with the numbers that they have in both files. */

export interface DiffLine {
  kind: "same" | "added" | "removed" | "place";
  text: string;
  old: number | null;
  now: number | null;
}

const PLACE = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

export function linesOf(diff: string): DiffLine[] {
  const found: DiffLine[] = [];
  let old = 0;
  let now = 0;
  let isInside = false; // the two lines before the first place name the files
  for (const line of diff.split("\n")) {
    const place = PLACE.exec(line);
    if (place !== null) {
      isInside = true;
      old = Number(place[1]);
      now = Number(place[2]);
      found.push({ kind: "place", text: line, old: null, now: null });
    } else if (!isInside) continue;
    else if (line.startsWith("+")) found.push({ kind: "added", text: line.slice(1), old: null, now: now++ });
    else if (line.startsWith("-")) found.push({ kind: "removed", text: line.slice(1), old: old++, now: null });
    else if (line.startsWith("\\")) found.push({ kind: "place", text: line, old: null, now: null });
    else found.push({ kind: "same", text: line.slice(1), old: old++, now: now++ });
  }
  return found;
}
