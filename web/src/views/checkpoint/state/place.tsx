import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../../../api/client";
import type { Model } from "../../../api/types";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { Conversation, LongText } from "./conversation";
import { sizeOf, type Entry } from "./entries";
import { messageOf, messagesOf } from "./messages";
import { pathText, shortName, tagOf, wholeText } from "./tagged";
import { placeQuery } from "./use-tree";

interface Props {
  run: string;
  at: string;
  entry: Entry;
}

const WORDS: Record<string, string> = {
  dict: "mapping",
  bool: "true or false",
  null: "nothing",
  masked: "secret, masked",
  opaque: "object that cannot be shown whole",
};

/** One place of a state in full. */
export function Place({ run, at, entry }: Props) {
  return (
    <section className="place" aria-label="Chosen value">
      <h3>
        <code>{entry.path === null ? entry.label : pathText(entry.path)}</code>
      </h3>
      <p className="quiet">
        {nameOf(entry)}
        {sizeOf(entry) !== "" && `, ${sizeOf(entry)}`}
      </p>
      {entry.isWhole ? <Shown value={entry.value} /> : <Large key={entry.id} run={run} at={at} entry={entry} />}
    </section>
  );
}

function nameOf(entry: Entry): string {
  const tag = entry.isWhole ? tagOf(entry.value) : null;
  if (tag !== null && (tag.$type === "class" || tag.$type === "foreign")) return shortName(tag.name);
  return WORDS[entry.kind] ?? entry.kind;
}

function Shown({ value }: { value: unknown }) {
  const message = messageOf(value);
  const messages = message === null ? messagesOf(value) : [message];
  const text = wholeText(value);
  if (messages !== null) return <Conversation messages={messages} />;
  return (
    <>
      <LongText text={text} />
      <CopyButton text={text} />
    </>
  );
}

/** A value that is too large to be sent unasked. */
function Large({ run, at, entry }: Props) {
  const [isWanted, setWanted] = useState(false);
  const part = useQuery({ ...placeQuery(run, at, entry.path ?? []), enabled: entry.path !== null });
  const whole = useQuery({
    queryKey: ["place", run, at, entry.path, "whole"],
    queryFn: ({ signal }) =>
      get<Model<"StateAnswer">>(
        ["executions", run, "state"],
        { at, path: JSON.stringify(entry.path), whole: true },
        signal,
      ),
    staleTime: Infinity,
    gcTime: 0, // it may be large
    enabled: isWanted,
  });
  if (entry.path === null) return <p>{entry.preview}</p>;
  const error = part.error ?? whole.error;
  if (error !== null) return <ProblemNote error={error} />;
  if (part.data?.is_whole) return <Shown value={part.data.value} />;
  if (whole.data !== undefined) return <Shown value={whole.data.value} />;
  if (part.isPending || whole.isFetching) return <Loading what="this value" />;
  return (
    <>
      <pre className="long-text">{entry.preview}</pre>
      <button type="button" onClick={() => setWanted(true)}>
        Read the whole value
      </button>
    </>
  );
}

function CopyButton({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" className="plain" onClick={() => void copy()}>
      {isCopied ? "Copied" : "Copy the value"}
    </button>
  );
}
