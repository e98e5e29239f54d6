import { useInfiniteQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";
import { address, get } from "../../api/client";
import type { Model, Page } from "../../api/types";
import { useChange } from "../../parts/choice";
import { Empty } from "../../parts/empty";
import { sizeText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import type { Detail } from "./checkpoint-view";
import { FilePreview } from "./file-preview";

export type FileEntry = Model<"FileAnswer">;

/** The address of a file's content; the parts of its path stay parts. */
export function contentAddress(run: string, at: string, path: string): string {
  return address(["executions", run, "checkpoints", at, "files", ...path.split("/")]);
}

/** The files of a checkpoint, and the one that the address names. */
export function CheckpointFiles({ id, at }: { id: string; at: Detail }) {
  const [search] = useSearchParams();
  const change = useChange();
  const chosen = search.get("file");
  const files = useInfiniteQuery({
    queryKey: ["files", id, at.id],
    queryFn: ({ pageParam, signal }) =>
      get<Page<FileEntry>>(
        ["executions", id, "checkpoints", at.id, "files"],
        { cursor: pageParam, limit: 200 },
        signal,
      ),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    staleTime: Infinity,
  });
  if (files.error !== null) return <ProblemNote error={files.error} retry={() => void files.refetch()} />;
  if (files.data === undefined) return <Loading what="the files" />;
  const all = files.data.pages.flatMap((page) => page.items);
  if (all.length === 0)
    return <Empty title="No files here">A node that writes into ctx.workspace has its files kept at every step.</Empty>;
  const choose = (path: string) => change((search) => search.set("file", path), { replace: true });
  const file = all.find((each) => each.path === chosen);
  return (
    <div className="state-split">
      <div>
        <ul className="file-list" aria-label="Files">
          {all.map((each) => (
            <li key={each.path}>
              <button
                type="button"
                className="plain"
                aria-pressed={each.path === chosen}
                onClick={() => choose(each.path)}
              >
                {each.path}
                {each.kind === "folder" && "/"}
              </button>
              <span className="quiet number">{each.kind === "file" ? sizeText(each.size_bytes) : each.kind}</span>
            </li>
          ))}
        </ul>
        {files.hasNextPage && (
          <button type="button" onClick={() => void files.fetchNextPage()} disabled={files.isFetchingNextPage}>
            Show more files
          </button>
        )}
      </div>
      {file === undefined ? (
        <p className="quiet">Choose a file to look at it.</p>
      ) : (
        <FilePreview key={file.path} run={id} at={at.id} file={file} />
      )}
    </div>
  );
}
