import { useEffect, useState } from "react";
import { durationText, sinceText } from "./format";

/** When something happened: how long ago, with the exact time on hover. */
export function When({ at }: { at: string | null | undefined }) {
  const now = useNow(30_000);
  if (at == null) return <span className="quiet">–</span>;
  return (
    <time dateTime={at} title={new Date(at).toLocaleString()}>
      {sinceText(new Date(at), now)}
    </time>
  );
}

export function Duration({ seconds }: { seconds: number | null | undefined }) {
  return <span className="number">{seconds == null ? "–" : durationText(seconds)}</span>;
}

/** The time of now, again every so often. */
export function useNow(everyMs: number): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}
