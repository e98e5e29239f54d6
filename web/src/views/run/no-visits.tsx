import { Link } from "react-router";
import type { Run } from "../../api/types";
import { Empty } from "../../parts/empty";
import { toRun } from "../../parts/links";

/** The workflow of threads that LangGraph runs: their checkpoints are stored, but no visits of nodes. */
const THREAD = "LangGraph thread";

/** Stands where nodes would be shown. */
export function NoVisits({ run, title, children }: { run: Run; title: string; children: string }) {
  if (run.workflow !== THREAD) return <Empty title={title}>{children}</Empty>;
  return (
    <Empty title="Of a LangGraph thread, only checkpoints are stored">
      Its <Link to={toRun(run.id, "branches")}>branches</Link> and{" "}
      <Link to={toRun(run.id, "checkpoints")}>checkpoints</Link> show what it did.
    </Empty>
  );
}
