import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";
import type { Model } from "../../../api/types";
import { useChange, useChoice } from "../../../parts/choice";
import { Empty } from "../../../parts/empty";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { Conversation } from "./conversation";
import { Crumbs } from "./crumbs";
import type { Entry } from "./entries";
import { Matches } from "./matches";
import { messagesOf } from "./messages";
import { Place } from "./place";
import { StateTree } from "./state-tree";
import type { Key } from "./tagged";
import { placeQuery, useTree } from "./use-tree";

type StateAnswer = Model<"StateAnswer">;

interface Props {
  run: string;
  at: string;
  /** The state from its top. */
  answer: StateAnswer;
}

/** A state: searched, or as a tree under the place that the address names. */
export function StateView({ run, at, answer }: Props) {
  const [search] = useSearchParams();
  const change = useChange();
  const path = readPath(search.get("path"));
  const [text, setText] = useChoice("find");
  const goTo = (to: readonly Key[]) =>
    change((search) => {
      if (to.length === 0) search.delete("path");
      else search.set("path", JSON.stringify(to));
      search.delete("find");
    });
  const found = useQuery({
    ...placeQuery(run, at, path),
    initialData: path.length === 0 ? answer : undefined,
  });
  if (answer.count === 0)
    return <Empty title="The state is empty">A node that returns a mapping fills it, key by key.</Empty>;
  return (
    <section aria-label="State">
      <div className="toolbar">
        <label>
          Find <input type="search" value={text} onChange={(event) => setText(event.target.value)} />
        </label>
        {path.length > 0 && text === "" && <Crumbs path={path} onGo={goTo} />}
      </div>
      {text !== "" ? (
        <Matches run={run} at={at} text={text} onGo={goTo} />
      ) : found.error !== null ? (
        <ProblemNote error={found.error} />
      ) : found.data === undefined ? (
        <Loading what="the state" />
      ) : (
        <Opened key={JSON.stringify(path)} run={run} at={at} answer={found.data} onGo={goTo} />
      )}
    </section>
  );
}

function Opened({ run, at, answer, onGo }: Props & { onGo: (path: readonly Key[]) => void }) {
  const tree = useTree(run, at, answer);
  const isLeaf = tree.rows.length === 0;
  const [chosen, setChosen] = useState<Entry | null>(isLeaf ? tree.root : null);
  const messages = answer.is_whole ? chatOf(answer.value) : null;
  if (isLeaf) return <Place run={run} at={at} entry={tree.root} />;
  return (
    <>
      <div className="state-split">
        <StateTree tree={tree} label="State" selected={chosen?.id ?? null} onSelect={setChosen} />
        {chosen === null ? (
          <p className="quiet">Choose a value to see it whole. Arrow keys move, → opens, Enter chooses.</p>
        ) : (
          <div>
            <Place run={run} at={at} entry={chosen} />
            {chosen.path !== null && chosen.path.length > 0 && (
              <button type="button" className="plain" onClick={() => onGo(chosen.path ?? [])}>
                Open this place alone
              </button>
            )}
          </div>
        )}
      </div>
      {messages !== null && (
        <section aria-label="Conversation">
          <h2>Conversation</h2>
          <Conversation messages={messages} />
        </section>
      )}
    </>
  );
}

/** The messages of a state, under the key that everybody uses for them. */
function chatOf(value: unknown) {
  const under = typeof value === "object" && value !== null ? (value as Record<string, unknown>)["messages"] : null;
  return messagesOf(under);
}

function readPath(text: string | null): Key[] {
  try {
    const found: unknown = JSON.parse(text ?? "[]");
    const isPath = Array.isArray(found) && found.every((key) => typeof key === "string" || typeof key === "number");
    return isPath ? (found as Key[]) : [];
  } catch {
    return [];
  }
}
