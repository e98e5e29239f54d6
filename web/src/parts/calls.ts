/** Recorded calls in the words of the page: how they ended, and how a rollback treats them. */
import type { Model } from "../api/types";
import type { Tone } from "./status";

export type Call = Model<"CallAnswer">;

export const CALL_TONES: Record<Call["status"], Tone> = {
  intended: "warn",
  succeeded: "good",
  failed: "bad",
  reversing: "waiting",
  reversed: "idle",
  redoing: "waiting",
};

export const UNDO: Record<Call["undo"], { text: string; title: string }> = {
  nothing: { text: "nothing to undo", title: "It changed nothing outside, or it failed" },
  files: { text: "with the files", title: "It changed files of the workspace, which go back with the state" },
  tool: { text: "by its tool", title: "It changed the world outside, and its tool can undo it" },
  never: { text: "cannot be undone", title: "It changed the world outside, and its tool cannot undo it" },
  unknown: {
    text: "by its tool, if it can",
    title: "An older version recorded it. The plan of a rollback says whether its tool can undo it",
  },
  done: { text: "undone", title: "A rollback has undone it" },
};
