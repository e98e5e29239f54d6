import { useInfiniteQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";
import { get, type Query } from "../../../api/client";
import type { Model } from "../../../api/types";
import { useChange } from "../../../parts/choice";
import { Loading } from "../../../parts/loading";
import { ProblemNote } from "../../../parts/problem";
import { Badge } from "../../../parts/status";
import { lineOf, wholeText } from "../state/tagged";
import { CHANGE_TONES, Side } from "./state-changes";

type Place = Model<"StatePartDiffAnswer">;
type Child = Model<"PartDiffAnswer">;
type Value = Model<"SideAnswer">;

/** What differs in large states, one level at a time: the address names the place. */
export function LargeStateChanges({ run, ends }: { run: string; ends: Query }) {
  const [search] = useSearchParams();
  const change = useChange();
  const path = search.get("path") ?? "[]";
  const found = useInfiniteQuery({
    queryKey: ["run", run, "diff of a place", ends, path],
    queryFn: ({ pageParam, signal }) =>
      get<Place>(["executions", run, "diff", "state"], { ...ends, path, cursor: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
  const open = (to: readonly unknown[]) =>
    change((search) => search.set("path", JSON.stringify(to)), { preventScrollReset: false });
  if (found.error !== null) return <ProblemNote error={found.error} />;
  const first = found.data?.pages[0];
  if (first === undefined) return <Loading what="the differences" />;
  const children = found.data?.pages.flatMap((page) => page.children) ?? [];
  return (
    <section aria-label="State changes">
      <nav className="crumbs" aria-label="Place in the state">
        {[null, ...first.path].map((key, at) => (
          <button key={at} type="button" className="plain" onClick={() => open(first.path.slice(0, at))}>
            {at === 0 ? "state" : `› ${keyText(key)}`}
          </button>
        ))}
      </nav>
      {children.length === 0 && <Sides old={first.old} now={first.new} />}
      <ul className="changes">
        {children.map((child) => (
          <li key={JSON.stringify(child.key)}>
            <header>
              <code>{keyText(child.key)}</code> <Badge tone={CHANGE_TONES[child.change]}>{child.change}</Badge>{" "}
              {isDeep(child) && (
                <button type="button" className="plain" onClick={() => open([...first.path, child.key])}>
                  Look inside
                </button>
              )}
            </header>
            <Sides old={child.old} now={child.new} />
          </li>
        ))}
      </ul>
      {found.hasNextPage && (
        <button type="button" onClick={() => void found.fetchNextPage()} disabled={found.isFetchingNextPage}>
          Show more
        </button>
      )}
    </section>
  );
}

/** A key; or the positions of an item in the old and in the new list. */
function keyText(key: unknown): string {
  if (!Array.isArray(key)) return lineOf(key);
  const [old, now] = key as (number | null)[];
  return old === now ? `[${now}]` : `[${old ?? "–"} → ${now ?? "–"}]`;
}

function isDeep(child: Child): boolean {
  return child.old !== null && child.new !== null && (child.old.preview !== null || child.new.preview !== null);
}

function Sides({ old, now }: { old: Value | null; now: Value | null }) {
  return (
    <div className="sides">
      {old !== null && <Side sign="−" text={textOf(old)} />}
      {now !== null && <Side sign="+" text={textOf(now)} />}
    </div>
  );
}

function textOf(side: Value): string {
  if (side.preview === null) return wholeText(side.value);
  return `${side.preview} (${side.kind}, ${side.count?.toLocaleString("en") ?? "large"})`;
}
