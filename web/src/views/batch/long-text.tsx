import { useMemo, useState } from "react";
import { piecesOf, type Piece } from "./words";

const CUT = 1_200;

interface Props {
  text: string | null;
  /** Words that this text lacks are marked. */
  base?: string | null;
  /** How many characters the whole has, if the server has kept only its beginning. */
  size?: number;
}

/** A text that is cut until somebody asks for the whole. */
export function LongText({ text, base = null, size = 0 }: Props) {
  const [isWhole, setWhole] = useState(false);
  const pieces = useMemo(
    () => (text === null ? [] : base === null ? [plain(text)] : piecesOf(text, base)),
    [text, base],
  );
  if (text === null) return <p className="quiet">nothing</p>;
  const isLong = text.length > CUT;
  return (
    <>
      <pre className="output">
        {(isWhole || !isLong ? pieces : cut(pieces, CUT)).map((piece, at) =>
          piece.isNew ? <mark key={at}>{piece.text}</mark> : <span key={at}>{piece.text}</span>,
        )}
      </pre>
      {isLong && !isWhole && (
        <button type="button" className="plain" onClick={() => setWhole(true)}>
          … show all {text.length.toLocaleString("en")} characters
        </button>
      )}
      {size > text.length && (isWhole || !isLong) && (
        <p className="quiet">… cut here; the whole has {size.toLocaleString("en")} characters, and its run has it.</p>
      )}
    </>
  );
}

const plain = (text: string): Piece => ({ text, isNew: false });

export function cut(pieces: readonly Piece[], most: number): Piece[] {
  const found: Piece[] = [];
  let room = most;
  for (const piece of pieces) {
    if (room <= 0) break;
    found.push({ ...piece, text: piece.text.slice(0, room) });
    room -= piece.text.length;
  }
  return found;
}
