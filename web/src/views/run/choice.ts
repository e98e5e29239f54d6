/** Which checkpoints are chosen for a comparison: at most two, as they stand in the address. */

export function chosen(text: string | null): readonly string[] {
  return (text ?? "")
    .split(",")
    .filter((id) => id !== "")
    .slice(0, 2);
}

/** Choose a checkpoint, or give it up; a third one takes the place of the one that was chosen first. */
export function toggled(picked: readonly string[], id: string): readonly string[] {
  if (picked.includes(id)) return picked.filter((each) => each !== id);
  return [...picked, id].slice(-2);
}
