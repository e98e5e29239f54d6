import { useQuery } from "@tanstack/react-query";
import { problemOf } from "../../api/problems";
import { sizeText } from "../../parts/format";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { contentAddress, type FileEntry } from "./files";
import { dataAddress, imageType, textOf, LARGEST_IMAGE, LARGEST_TEXT } from "./previews";
import { LongText } from "./state/conversation";

interface Props {
  run: string;
  at: string;
  file: FileEntry;
}

/** What a file holds: a text, a small picture, or only its facts; and a way to save it. */
export function FilePreview({ run, at, file }: Props) {
  const link = contentAddress(run, at, file.path);
  return (
    <section className="place" aria-label="Chosen file">
      <h3>
        <code>{file.path}</code>
      </h3>
      <p className="quiet">
        {file.kind}
        {file.kind === "file" && `, ${sizeText(file.size_bytes)}`}, mode {file.mode}
      </p>
      {file.kind === "link" || file.target !== null ? (
        <p>
          It leads to <code>{file.target}</code>.
        </p>
      ) : (
        file.kind === "file" && <Content link={link} file={file} />
      )}
      {file.kind === "file" && (
        <p>
          <a className="button" href={link} download>
            Save the file
          </a>
        </p>
      )}
    </section>
  );
}

function Content({ link, file }: { link: string; file: FileEntry }) {
  const type = imageType(file.path);
  const isShown = file.size_bytes <= (type === null ? LARGEST_TEXT : LARGEST_IMAGE);
  const content = useQuery({
    queryKey: ["file content", link],
    queryFn: async ({ signal }) => {
      const response = await fetch(link, { signal, credentials: "same-origin" });
      if (!response.ok) throw await problemOf(response);
      return new Uint8Array(await response.arrayBuffer());
    },
    enabled: isShown,
    staleTime: Infinity,
  });
  if (!isShown) return <p>It is too large to be shown here.</p>;
  if (content.error !== null) return <ProblemNote error={content.error} />;
  if (content.data === undefined) return <Loading what="the file" />;
  if (type !== null)
    return <img className="picture" src={dataAddress(type, content.data)} alt={`The picture ${file.path}`} />;
  const text = textOf(content.data);
  if (text === null) return <p>It is not a text, so it is not shown.</p>;
  return text === "" ? <p>It is empty.</p> : <LongText text={text} most={20_000} />;
}
