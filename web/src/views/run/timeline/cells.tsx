import type { ReactNode } from "react";
import { Link } from "react-router";
import { durationText, countText } from "../../../parts/format";
import { toCheckpoint, toRun } from "../../../parts/links";
import { Badge } from "../../../parts/status";
import { lengthOf, piecesOf, visitKey, type Block, type StepBlock, type Visit } from "./blocks";

/** The cells of one block; each node of a step has a lane in every cell. */
export function blockCells(run: string, block: Block, longestMs: number, nowMs: number): readonly ReactNode[] {
  if (block.kind === "pause") {
    const text = durationText(lengthOf(block.wait, nowMs) / 1000);
    return [
      "",
      <span key="what">{block.wait.ended_at === null ? "Waits" : "Waited"}</span>,
      <span key="reason" className="timeline-reason" title={block.wait.reason}>
        {block.wait.reason}
      </span>,
      text,
      "",
    ];
  }
  const lanes = (part: (visit: Visit) => ReactNode) =>
    block.visits.map((visit) => (
      <span key={visitKey(visit)} className="timeline-lane">
        {part(visit)}
      </span>
    ));
  return [
    block.step === null ? (
      "…"
    ) : (
      <Link key="step" to={toCheckpoint(run, block.step)}>
        {block.step}
      </Link>
    ),
    lanes((visit) => <Name run={run} visit={visit} />),
    lanes((visit) => <Bar visit={visit} block={block} longestMs={longestMs} nowMs={nowMs} />),
    lanes((visit) => took(visit)),
    lanes((visit) => <Remarks run={run} visit={visit} />),
  ];
}

function Name({ run, visit }: { run: string; visit: Visit }) {
  const name = `${visit.node}#${visit.visit}`;
  if (visit.step === null) return <span title={name}>{name}</span>;
  return (
    <Link to={toCheckpoint(run, name)} title={name}>
      {name}
    </Link>
  );
}

function Bar({ visit, block, longestMs, nowMs }: { visit: Visit; block: StepBlock; longestMs: number; nowMs: number }) {
  return (
    <span className="timeline-track">
      {piecesOf(visit, block, longestMs, nowMs).map((piece, at) => (
        <span
          key={at}
          className={`timeline-piece timeline-${piece.kind === "wait" ? "wait" : visit.is_shared ? "shared" : visit.status}`}
          title={piece.kind === "wait" ? "waits for a person" : undefined}
          style={{ left: `${piece.left}%`, width: `${piece.width}%` }}
        />
      ))}
    </span>
  );
}

function took(visit: Visit): string {
  if (visit.ended_at === null) return visit.waits.some((wait) => wait.ended_at === null) ? "waits" : "runs";
  return visit.busy_ms === null ? "–" : durationText(visit.busy_ms / 1000);
}

function Remarks({ run, visit }: { run: string; visit: Visit }) {
  const waited = visit.waits.reduce((sum, wait) => sum + lengthOf(wait, Date.now()), 0);
  return (
    <>
      {visit.status === "failed" && (
        <Badge tone="bad" title={visit.error ?? undefined}>
          failed
        </Badge>
      )}
      {visit.status === "skipped" && <Badge tone="idle">given up</Badge>}
      {visit.is_shared && (
        <Badge tone="busy" title="The batch took this result from another run">
          shared result
        </Badge>
      )}{" "}
      <span className="quiet" title={visit.error ?? undefined}>
        {[
          visit.attempts > 1 && countText(visit.attempts, "attempt"),
          visit.tool_calls > 0 && countText(visit.tool_calls, "call"),
          waited > 0 && `waited ${durationText(waited / 1000)}`,
          visit.error,
        ]
          .filter((text) => text !== false && text !== null)
          .join(", ")}
        {visit.run !== run && (
          <>
            {" "}
            of run <Link to={toRun(visit.run)}>{visit.run}</Link>
          </>
        )}
      </span>
    </>
  );
}
