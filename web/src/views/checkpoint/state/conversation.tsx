import { useState } from "react";
import { countText } from "../../../parts/format";
import type { Message } from "./messages";
import "./state.css";

const SHOWN = 50;

/** Messages as a chat. The latest ones are shown first; earlier ones on demand. */
export function Conversation({ messages }: { messages: readonly Message[] }) {
  const [shown, setShown] = useState(SHOWN);
  const hidden = Math.max(0, messages.length - shown);
  return (
    <div className="chat">
      {hidden > 0 && (
        <button type="button" className="plain" onClick={() => setShown(shown + SHOWN)}>
          Show {countText(Math.min(SHOWN, hidden), "earlier message")} of {hidden.toLocaleString("en")}
        </button>
      )}
      <ol>
        {messages.slice(hidden).map((message, at) => (
          <li key={message.id ?? hidden + at} className={`bubble bubble-${message.role}`}>
            <Bubble message={message} />
          </li>
        ))}
      </ol>
    </div>
  );
}

function Bubble({ message }: { message: Message }) {
  return (
    <>
      <span className={`role role-${message.role}`}>{message.label}</span>
      {message.text !== "" && <LongText text={message.text} />}
      {message.calls.map((call, at) => (
        <p key={at} className="mono call-line">
          calls {call.name}({call.args})
        </p>
      ))}
    </>
  );
}

const LONG = 4_000;

/** A text in its own lines; of a long one its beginning, and all of it on demand. */
export function LongText({ text, most = LONG }: { text: string; most?: number }) {
  const [isWhole, setWhole] = useState(false);
  if (isWhole || text.length <= most) return <pre className="long-text">{text}</pre>;
  return (
    <>
      <pre className="long-text">{text.slice(0, most)}…</pre>
      <button type="button" className="plain" onClick={() => setWhole(true)}>
        Show all {text.length.toLocaleString("en")} characters
      </button>
    </>
  );
}
