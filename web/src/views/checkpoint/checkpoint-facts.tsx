import { Badge } from "../../parts/status";
import { countText, sizeText } from "../../parts/format";
import { toRun } from "../../parts/links";
import { When } from "../../parts/times";
import { Link } from "react-router";
import type { Detail } from "./checkpoint-view";
import { KINDS, MARKS, TRIGGERS, visitText } from "./labels";

/** What a checkpoint is: when, by whom and why it was made, and whether the run can go back to it. */
export function CheckpointFacts({ id, at }: { id: string; at: Detail }) {
  return (
    <section className="card checkpoint-facts" aria-label="About this checkpoint">
      <dl className="facts">
        <dt>Place</dt>
        <dd>
          <Badge tone={at.mark === "head" ? "busy" : at.mark === "" ? "good" : "idle"}>
            {MARKS[at.mark] ?? "on the current line"}
          </Badge>{" "}
          {at.restore_point ? (
            <Badge tone="good" title="A rollback or a fork can start here">
              restore point
            </Badge>
          ) : (
            <Badge tone="warn" title="It lies inside a step that other nodes share">
              not a restore point
            </Badge>
          )}
        </dd>
        <dt>Made when</dt>
        <dd>
          {TRIGGERS[at.trigger]}
          {at.kind !== "auto" && ` (${KINDS[at.kind]})`}, <When at={at.created_at} />
          {at.created_by !== null && <> by {at.created_by}</>}
          {at.run !== id && (
            <>
              {" "}
              in run <Link to={toRun(at.run)}>{at.run}</Link>
            </>
          )}
        </dd>
        {at.description !== "" && at.description !== visitText(at) && (
          <>
            <dt>Description</dt>
            <dd>{at.description}</dd>
          </>
        )}
      </dl>
      <dl className="facts">
        <dt>Next</dt>
        <dd>
          {at.next_nodes.join(", ") || (at.trigger === "start" ? "not known" : "nothing, the workflow ends here")}
        </dd>
        <dt>Holds</dt>
        <dd>
          {at.state.count !== null && `${countText(at.state.count, "key")}, `}
          {countText(at.file_count, "file")} ({sizeText(at.file_bytes)}); storing it took {sizeText(at.size_bytes)}
        </dd>
        <dt>Id</dt>
        <dd>
          <code>{at.id}</code>
        </dd>
      </dl>
    </section>
  );
}
