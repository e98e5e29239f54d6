/** Which words of two texts differ. */

export interface Piece {
  text: string;
  isChanged: boolean;
}

const LARGEST = 400_000; // pairs of words that are compared: a few milliseconds

/** The pieces of an old and a new text; words that both have, in order, are unchanged. */
export function wordDiff(old: string, now: string): { old: Piece[]; now: Piece[] } {
  const mine = wordsOf(old);
  const theirs = wordsOf(now);
  const first = sameStart(mine, theirs);
  const last = sameEnd(mine, theirs, first);
  const oldMiddle = mine.slice(first, mine.length - last);
  const nowMiddle = theirs.slice(first, theirs.length - last);
  const [keptOld, keptNow] = common(oldMiddle, nowMiddle);
  const whole = (words: string[], middle: string[], kept: Set<number>): Piece[] =>
    joined([
      { text: words.slice(0, first).join(""), isChanged: false },
      ...middle.map((text, at) => ({ text, isChanged: !kept.has(at) })),
      { text: words.slice(words.length - last).join(""), isChanged: false },
    ]);
  return { old: whole(mine, oldMiddle, keptOld), now: whole(theirs, nowMiddle, keptNow) };
}

function wordsOf(text: string): string[] {
  return text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
}

function sameStart(one: string[], other: string[]): number {
  let at = 0;
  while (at < one.length && at < other.length && one[at] === other[at]) at++;
  return at;
}

function sameEnd(one: string[], other: string[], first: number): number {
  let at = 0;
  while (at < one.length - first && at < other.length - first && one.at(-1 - at) === other.at(-1 - at)) at++;
  return at;
}

/** The places of a longest common subsequence in both lists; nothing is common to lists that are too long. */
function common(one: string[], other: string[]): [Set<number>, Set<number>] {
  const mine = new Set<number>();
  const theirs = new Set<number>();
  if (one.length * other.length > LARGEST) return [mine, theirs];
  const width = other.length + 1;
  const longest = new Uint16Array((one.length + 1) * width);
  for (let i = one.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--)
      longest[i * width + j] =
        one[i] === other[j]
          ? (longest[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(longest[(i + 1) * width + j] ?? 0, longest[i * width + j + 1] ?? 0);
  for (let i = 0, j = 0; i < one.length && j < other.length;) {
    if (one[i] === other[j]) {
      mine.add(i++);
      theirs.add(j++);
    } else if ((longest[(i + 1) * width + j] ?? 0) >= (longest[i * width + j + 1] ?? 0)) i++;
    else j++;
  }
  return [mine, theirs];
}

function joined(pieces: Piece[]): Piece[] {
  const found: Piece[] = [];
  for (const piece of pieces) {
    const last = found.at(-1);
    if (piece.text === "") continue;
    if (last !== undefined && last.isChanged === piece.isChanged) last.text += piece.text;
    else found.push({ ...piece });
  }
  return found;
}
