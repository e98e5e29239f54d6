/** The tree of a run as rows, like the graph of a version control system: a column for each line. */
import type { Model } from "../../../api/types";

export type TreeStep = Model<"TreeStepAnswer">;
type TreeLine = Model<"TreeLineAnswer">;

/** A vertical piece of a line that passes a row in a column. */
export interface Rail {
  column: number;
  top: boolean;
  bottom: boolean;
  isLeft: boolean;
}

interface Common {
  key: string;
  column: number;
  rails: readonly Rail[];
  /** Whether the line of the row begins here, coming from the column before. */
  enters: boolean;
  /** Whether the line goes on above and below the row. */
  above: boolean;
  below: boolean;
  /** Whether the line was left behind: it leads to no head of a branch. */
  isLeft: boolean;
}

export interface StepRow extends Common {
  kind: "step";
  step: TreeStep;
}

export interface ForkRow extends Common {
  kind: "fork";
  run: string;
}

export interface SafetyRow extends Common {
  kind: "safety";
  checkpoint: string;
}

export type TreeRow = StepRow | ForkRow | SafetyRow;

/** Return the rows of all lines, each step above those that follow it, and lines that leave it right below it. */
export function rowsOf(lines: readonly TreeLine[]): readonly TreeRow[] {
  const rows: TreeRow[] = [];
  lines.forEach((line) => addLine(rows, line, 0, [], false));
  return rows;
}

function addLine(rows: TreeRow[], line: TreeLine, column: number, rails: readonly Rail[], enters: boolean): void {
  const safety = line.safety_copy ?? null;
  line.steps.forEach((step, at) => {
    const isFirst = at === 0;
    const isLast = at === line.steps.length - 1 && safety === null;
    const leaving = [
      ...step.lines.map((leaves) => ({ leaves, fork: null })),
      ...step.forks.map((fork) => ({ leaves: null, fork })),
    ];
    rows.push({
      kind: "step",
      key: `${step.checkpoint ?? ""} ${step.step} ${column}`,
      step,
      column,
      rails: isFirst && enters ? rails : settled(rails),
      enters: isFirst && enters,
      above: !isFirst,
      below: !isLast || leaving.length > 0,
      isLeft: line.abandoned,
    });
    leaving.forEach(({ leaves, fork }, nth) => {
      const goesOn = !isLast || nth < leaving.length - 1;
      const passing: Rail = { column, top: true, bottom: goesOn, isLeft: line.abandoned };
      const inner = [...settled(rails), passing];
      if (leaves !== null) addLine(rows, leaves, column + 1, inner, true);
      else if (fork !== null)
        rows.push({
          kind: "fork",
          key: `fork ${fork}`,
          run: fork,
          column: column + 1,
          rails: inner,
          enters: true,
          above: false,
          below: false,
          isLeft: false,
        });
    });
  });
  if (safety !== null) addSafety(rows, safety, line, column, rails, enters && line.steps.length === 0);
}

function addSafety(
  rows: TreeRow[],
  checkpoint: string,
  line: TreeLine,
  column: number,
  rails: readonly Rail[],
  enters: boolean,
): void {
  rows.push({
    kind: "safety",
    key: `safety ${checkpoint}`,
    checkpoint,
    column,
    rails: enters ? rails : settled(rails),
    enters,
    above: line.steps.length > 0,
    below: false,
    isLeft: line.abandoned,
  });
}

/** Below the row where a line enters, the column that it came from goes on only if there is more of it. */
function settled(rails: readonly Rail[]): readonly Rail[] {
  return rails.filter((rail) => rail.bottom).map((rail) => ({ ...rail, top: true }));
}
