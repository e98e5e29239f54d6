import { useState } from "react";
import type { Model } from "../../../api/types";
import { useChoice } from "../../../parts/choice";
import { Empty } from "../../../parts/empty";
import { Badge, type Tone } from "../../../parts/status";
import { LongText } from "../state/conversation";
import { messageOf } from "../state/messages";
import { wholeText } from "../state/tagged";
import { wordDiff, type Piece } from "./words";

type Change = Model<"StateDiffAnswer">;

export const CHANGE_TONES: Record<Change["change"], Tone> = {
  added: "good",
  removed: "bad",
  changed: "warn",
  "mode changed": "warn",
  "kind changed": "warn",
};

const WINDOW = 100;

/** The values that differ, by path. */
export function StateChanges({ changes }: { changes: readonly Change[] }) {
  const [find, setFind] = useChoice("find");
  const [most, setMost] = useState(WINDOW);
  if (changes.length === 0) return <Empty title="The states are equal" />;
  const found = changes.filter((change) => change.path.toLowerCase().includes(find.toLowerCase()));
  return (
    <section aria-label="State changes">
      {changes.length > 5 && (
        <div className="toolbar">
          <label>
            Only paths with <input type="search" value={find} onChange={(event) => setFind(event.target.value)} />
          </label>
          <span className="quiet" role="status">
            {found.length.toLocaleString("en")} of {changes.length.toLocaleString("en")}
          </span>
        </div>
      )}
      <ul className="changes">
        {found.slice(0, most).map((change, at) => (
          <li key={`${change.path} ${at}`}>
            <header>
              <code>{change.path.replace(/^state\./, "")}</code>{" "}
              <Badge tone={CHANGE_TONES[change.change]}>{change.change}</Badge>
            </header>
            <Values change={change} />
          </li>
        ))}
      </ul>
      {found.length > most && (
        <button type="button" onClick={() => setMost(most + WINDOW)}>
          Show {Math.min(WINDOW, found.length - most)} more
        </button>
      )}
    </section>
  );
}

const TEXT = 3_000;

function Values({ change }: { change: Change }) {
  const old = textOf(change.old);
  const now = textOf(change.new);
  if (change.change === "added") return <Side sign="+" text={now} />;
  if (change.change === "removed") return <Side sign="−" text={old} />;
  const isMarked = old.length + now.length < 40_000;
  const words = isMarked ? wordDiff(old, now) : null;
  return (
    <div className="sides">
      <Side sign="−" text={old} pieces={words?.old} />
      <Side sign="+" text={now} pieces={words?.now} />
    </div>
  );
}

/** A value as a person reads it; of a message its words. */
function textOf(value: unknown): string {
  const message = messageOf(value);
  return message === null ? wholeText(value ?? null) : `${message.label}: ${message.text}`;
}

/** A value on one side of a comparison. */
export function Side({ sign, text, pieces }: { sign: "+" | "−"; text: string; pieces?: readonly Piece[] | undefined }) {
  const isNew = sign === "+";
  return (
    <div className={isNew ? "side side-new" : "side side-old"}>
      <span className="sign" aria-label={isNew ? "new" : "old"}>
        {sign}
      </span>
      {pieces === undefined || text.length > TEXT ? (
        <LongText text={text} most={TEXT} />
      ) : (
        <pre className="long-text">
          {pieces.map((piece, at) =>
            piece.isChanged ? <mark key={at}>{piece.text}</mark> : <span key={at}>{piece.text}</span>,
          )}
        </pre>
      )}
    </div>
  );
}
