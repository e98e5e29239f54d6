/** What the nodes of a run logged and emitted, as it comes. */
import { useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { get } from "../../api/client";
import { useEvents } from "../../api/live";
import type { Model, Page, Run } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Empty } from "../../parts/empty";
import { clockText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { usePages, type Pages } from "../../parts/pages";
import { ProblemNote } from "../../parts/problem";
import { Badge } from "../../parts/status";
import { isOutput, withNew, type Line } from "./output";

const TYPES = ["node.logged", "node.emitted"];
const keyOf = (line: Line) => String(line.sequence);

export default function OutputTab({ run }: { run: Run }) {
  const [typeName, setType] = useChoice("type");
  const type = TYPES.find((each) => each === typeName) ?? "";
  const key = useMemo(() => ["run", run.id, "output", type], [run.id, type]);
  const read = useCallback(
    (cursor: string | null, signal?: AbortSignal) =>
      get<Page<Model<"RunEventAnswer">>>(
        ["executions", run.id, "events"],
        { type: type === "" ? TYPES : [type], cursor, limit: 200 },
        signal,
      ),
    [run.id, type],
  );
  const pages = usePages<Line>(key, read, keyOf);
  const client = useQueryClient();
  useEvents((events) => {
    const fresh = events.filter((event) => event.stream === run.id && isOutput(event, type));
    if (fresh.length > 0)
      client.setQueryData<Pages<Line>>(key, (list) => list && { ...list, items: withNew(list.items, fresh) });
  });
  const lines = useMemo(() => [...pages.items].reverse(), [pages.items]);
  return (
    <section aria-label="Output">
      {pages.error !== null && <ProblemNote error={pages.error} retry={pages.retry} />}
      {(type !== "" || lines.length > 0) && <TypeChoice type={type} onChange={setType} />}
      {pages.isPending ? (
        <Loading what="the output" />
      ) : lines.length === 0 ? (
        <Empty title="No output">
          Lines that nodes write with <code>ctx.log</code>, and data that they report with <code>ctx.emit</code>, appear
          here at once.
        </Empty>
      ) : (
        <Lines lines={lines} more={pages.hasMore ? pages.more : null} />
      )}
    </section>
  );
}

function TypeChoice({ type, onChange }: { type: string; onChange: (type: string) => void }) {
  return (
    <div className="toolbar">
      <label>
        Show{" "}
        <select value={type} onChange={(event) => onChange(event.target.value)}>
          <option value="">logs and emitted data</option>
          <option value="node.logged">logs</option>
          <option value="node.emitted">emitted data</option>
        </select>
      </label>
    </div>
  );
}

/** The lines, oldest first. The end stays in view until the person pauses or scrolls up. */
function Lines({ lines, more }: { lines: readonly Line[]; more: (() => void) | null }) {
  const [isFollowing, setFollowing] = useState(true);
  const frame = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => frame.current,
    estimateSize: () => 26,
    overscan: 15,
    getItemKey: (index) => keyOf(lines[index] as Line),
  });
  const newest = lines.at(-1)?.sequence;
  useEffect(() => {
    if (isFollowing) rows.scrollToIndex(lines.length - 1, { align: "end" });
  }, [isFollowing, newest, lines.length, rows]);
  return (
    <>
      <div className="toolbar">
        <button type="button" aria-pressed={!isFollowing} onClick={() => setFollowing(!isFollowing)}>
          {isFollowing ? "Pause" : "Follow the end"}
        </button>
        <span className="quiet" role="status">
          {isFollowing ? "Following the end" : "Paused: new lines are added below"}
        </span>
        {more !== null && (
          <button type="button" className="plain" onClick={more}>
            Read earlier lines
          </button>
        )}
      </div>
      <div
        className="run-lines"
        ref={frame}
        tabIndex={0}
        role="log"
        aria-label="Output of the nodes"
        aria-live="off"
        onWheel={(event) => event.deltaY < 0 && setFollowing(false)}
        onKeyDown={(event) => ["ArrowUp", "PageUp", "Home"].includes(event.key) && setFollowing(false)}
      >
        <div style={{ height: rows.getTotalSize(), position: "relative" }}>
          {rows.getVirtualItems().map((row) => (
            <div
              key={row.key}
              ref={rows.measureElement}
              data-index={row.index}
              className="run-line"
              style={{ transform: `translateY(${row.start}px)` }}
            >
              <LineText line={lines[row.index] as Line} />
            </div>
          ))}
        </div>
      </div>
    </>
  );
}

function LineText({ line }: { line: Line }) {
  const { node, visit, level, text, data } = line.data;
  const attempt = Number(line.data["attempt"] ?? 1);
  return (
    <>
      <time dateTime={line.at} title={new Date(line.at).toLocaleString()}>
        {clockText(new Date(line.at))}
      </time>
      <span className="run-line-node" title={`${String(node)}#${String(visit)}`}>
        {String(node)}#{String(visit)}
        {attempt > 1 && `, attempt ${attempt}`}
      </span>
      <span className="run-line-text">
        {line.type === "node.emitted" ? (
          <>
            <Badge tone="busy">data</Badge> {typeof data === "string" ? data : JSON.stringify(data)}
          </>
        ) : (
          <>
            {level !== "info" && <Badge tone={level === "warning" ? "warn" : "bad"}>{String(level)}</Badge>}{" "}
            {String(text)}
          </>
        )}
      </span>
    </>
  );
}
