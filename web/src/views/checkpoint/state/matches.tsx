import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useDeferredValue } from "react";
import { get } from "../../../api/client";
import type { Model } from "../../../api/types";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { countText } from "../../../parts/format";
import { pathText, type Key } from "./tagged";

interface Props {
  run: string;
  at: string;
  text: string;
  onGo: (path: readonly Key[]) => void;
}

/** The places of a state that hold a text. The server looks, so that nothing has to be read for it. */
export function Matches({ run, at, text, onGo }: Props) {
  const wanted = useDeferredValue(text);
  const found = useQuery({
    queryKey: ["matches", run, at, wanted],
    queryFn: ({ signal }) =>
      get<Model<"StateMatchesAnswer">>(["executions", run, "state", "matches"], { at, text: wanted }, signal),
    placeholderData: keepPreviousData,
    staleTime: Infinity,
  });
  if (found.error !== null) return <ProblemNote error={found.error} />;
  if (found.data === undefined) return <Loading what="the state" />;
  const { items, is_complete } = found.data;
  return (
    <>
      <p role="status" className="quiet">
        {items.length === 0
          ? `No key and no value holds “${wanted}”. Secrets are not searched.`
          : `${countText(items.length, "match", "matches")}${is_complete ? "" : ", and more: write more of the text"}`}
      </p>
      <ul className="matches">
        {items.map((match) => (
          <li key={`${JSON.stringify(match.path)} ${match.where}`}>
            <button type="button" className="plain" onClick={() => onGo(match.path)}>
              <code>{pathText(match.path)}</code>
            </button>{" "}
            {match.where === "value" && <Marked text={match.excerpt} part={wanted} />}
          </li>
        ))}
      </ul>
    </>
  );
}

/** A text in which a part is marked, wherever it stands. */
function Marked({ text, part }: { text: string; part: string }) {
  const at = text.toLowerCase().indexOf(part.toLowerCase());
  if (at < 0) return <span>{text}</span>;
  return (
    <span>
      {text.slice(0, at)}
      <mark>{text.slice(at, at + part.length)}</mark>
      {text.slice(at + part.length)}
    </span>
  );
}
