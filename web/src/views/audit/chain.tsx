import { useEffect, useRef, useState } from "react";
import { get } from "../../api/client";
import type { Model } from "../../api/types";
import { Command, quoted } from "../../parts/command";
import { countText } from "../../parts/format";
import { ProblemNote } from "../../parts/problem";
import { Badge } from "../../parts/status";
import { Faults } from "./entries";

interface Check {
  checked: number;
  faults: string[];
  isOver: boolean;
  problem: Error | null;
}

const NOTHING: Check = { checked: 0, faults: [], isOver: false, problem: null };

/** Checks every event against its hash, and every hash against the one before, a few thousand at a time. */
export function Chain() {
  const [check, setCheck] = useState<Check | null>(null);
  const [stream, setStream] = useState("");
  const stop = useRef<AbortController>(null);
  useEffect(() => () => stop.current?.abort(), []);
  const isBusy = check !== null && !check.isOver;
  const begin = async () => {
    stop.current?.abort();
    const own = new AbortController();
    stop.current = own;
    setCheck(NOTHING);
    await verify(stream.trim(), own.signal, setCheck);
  };
  const end = () => {
    stop.current?.abort();
    setCheck((before) => before && { ...before, isOver: true, problem: new Error("You stopped the check.") });
  };
  return (
    <section className="card audit-chain">
      <p>
        Every event carries a hash that covers it and the one before it. If somebody changes, removes or adds a row in
        the database, the hashes no longer fit.
      </p>
      <form
        className="toolbar"
        onSubmit={(event) => {
          event.preventDefault();
          void begin();
        }}
      >
        <label>
          Only of a run, a batch or “system”
          <input value={stream} placeholder="the whole log" onChange={(event) => setStream(event.target.value)} />
        </label>
        <button type="submit" className="primary" disabled={isBusy}>
          Verify
        </button>
        {isBusy && (
          <button type="button" onClick={end}>
            Stop
          </button>
        )}
      </form>
      {check !== null && <Found check={check} />}
      <Command
        text={stream.trim() === "" ? "wtb audit verify" : `wtb audit verify --stream ${quoted(stream.trim())}`}
      />
    </section>
  );
}

function Found({ check }: { check: Check }) {
  const isWhole = check.isOver && check.problem === null;
  return (
    <>
      <p role="status">
        {isWhole && check.faults.length === 0 && <Badge tone="good">✓ the chain holds</Badge>}
        {check.faults.length > 0 && <Badge tone="bad">{`✕ ${countText(check.faults.length, "fault")}`}</Badge>}
        {!check.isOver && <Badge tone="busy">checking</Badge>} {countText(check.checked, "event")} checked
        {check.isOver ? "." : " …"}
      </p>
      {check.problem !== null && <ProblemNote error={check.problem} />}
      {check.faults.length > 0 && <Faults faults={check.faults} />}
    </>
  );
}

async function verify(stream: string, signal: AbortSignal, show: (check: Check) => void): Promise<void> {
  let check = NOTHING;
  let cursor: string | null = null;
  try {
    do {
      const query = { cursor, limit: 5_000, stream: stream === "" ? null : stream };
      const page: Model<"ChainCheckAnswer"> = await get(["audit", "verify"], query, signal);
      if (signal.aborted) return;
      cursor = page.next;
      check = {
        ...check,
        checked: check.checked + page.checked,
        faults: [...new Set([...check.faults, ...page.faults])],
        isOver: cursor === null,
      };
      show(check);
    } while (cursor !== null);
  } catch (error) {
    if (!signal.aborted) show({ ...check, isOver: true, problem: error as Error });
  }
}
