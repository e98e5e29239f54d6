/** Marks the words of a text that another one lacks. */

export interface Piece {
  text: string;
  isNew: boolean;
}

/** Above this many pairs of words a text is marked as a whole: the table of common words would be too large. */
const MOST_PAIRS = 250_000;

/** Split a text into pieces, each with whether the other text lacks it; the longest common row of words stays. */
export function piecesOf(text: string, base: string): Piece[] {
  if (text === base) return [{ text, isNew: false }];
  const own = wordsOf(text);
  const other = wordsOf(base);
  if (own.length * other.length > MOST_PAIRS) return [{ text, isNew: true }];
  const common = commonLengths(own, other);
  const at = (i: number, j: number) => common[i * (other.length + 1) + j] as number;
  const found: Piece[] = [];
  let j = 0;
  own.forEach((word, i) => {
    while (j < other.length && word !== other[j] && at(i, j + 1) > at(i + 1, j)) j += 1;
    const isNew = j >= other.length || word !== other[j];
    if (!isNew) j += 1;
    add(found, word, isNew);
  });
  return found;
}

function wordsOf(text: string): string[] {
  return text.match(/\s+|\S+/g) ?? [];
}

function commonLengths(own: readonly string[], other: readonly string[]): Uint16Array {
  const width = other.length + 1;
  const common = new Uint16Array((own.length + 1) * width);
  for (let i = own.length - 1; i >= 0; i -= 1)
    for (let j = other.length - 1; j >= 0; j -= 1)
      common[i * width + j] =
        own[i] === other[j]
          ? (common[(i + 1) * width + j + 1] as number) + 1
          : Math.max(common[(i + 1) * width + j] as number, common[i * width + j + 1] as number);
  return common;
}

function add(pieces: Piece[], word: string, isNew: boolean): void {
  const last = pieces.at(-1);
  if (last !== undefined && last.isNew === isNew) last.text += word;
  else pieces.push({ text: word, isNew });
}
