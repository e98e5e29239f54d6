import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import type { Model, Page } from "../../api/types";
import { Command } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { durationText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { PeriodFields, useFilters } from "./filter-bar";
import { periodOf, periodWords } from "./filters";
import { useNewEvents } from "./new-events";

/** How often tools were called in a period, how often they failed, and how long they took. */
export function ToolStatistics() {
  const [filters] = useFilters();
  const period = periodOf(filters);
  const found = useQuery({
    queryKey: ["audit", "tools", period],
    queryFn: ({ signal }) => get<Page<Model<"ToolUseAnswer">>>(["audit", "tools"], period, signal),
    staleTime: 0,
  });
  useNewEvents(["audit", "tools"], true);
  return (
    <>
      <div className="toolbar">
        <PeriodFields />
      </div>
      {found.isPending && <Loading what="the tools" />}
      {found.error !== null && <ProblemNote error={found.error} retry={() => void found.refetch()} />}
      {found.data?.items.length === 0 && (
        <Empty title="No tool was called in this time">
          Choose another time above. Calls that nodes make with ctx.tool are counted here.
        </Empty>
      )}
      {found.data !== undefined && found.data.items.length > 0 && <ToolTable tools={found.data.items} />}
      <Command text={["wtb audit tools", ...periodWords(filters)].join(" ")} />
    </>
  );
}

function ToolTable({ tools }: { tools: readonly Model<"ToolUseAnswer">[] }) {
  return (
    <div className="scroll card audit-frame" tabIndex={0} role="region" aria-label="Tools">
      <table>
        <thead>
          <tr>
            <th>Tool</th>
            <th className="number">Calls</th>
            <th className="number">Failures</th>
            <th className="number">Runs</th>
            <th className="number">Mean</th>
            <th className="number">Longest</th>
          </tr>
        </thead>
        <tbody>
          {tools.map((tool) => (
            <tr key={tool.tool}>
              <td className="audit-who">
                <code>{tool.tool}</code>
              </td>
              <td className="number">{tool.calls.toLocaleString("en")}</td>
              <td className={`number ${tool.failures > 0 ? "audit-bad" : ""}`}>
                {tool.failures > 0 && "✕ "}
                {tool.failures.toLocaleString("en")}
              </td>
              <td className="number">{tool.runs.toLocaleString("en")}</td>
              <td className="number">{durationText(tool.mean_ms / 1000)}</td>
              <td className="number">{durationText(tool.longest_ms / 1000)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
