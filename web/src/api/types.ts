/** The models of the API under short names. `schema.ts` is made from the server's OpenAPI by `make web-types`. */
import type { components } from "./schema";

type Models = components["schemas"];

export type Problem = Models["Problem"];
export type Session = Models["SessionAnswer"];
export type Role = Models["Role"];
export type LiveEvent = Models["EventAnswer"];
export type CommandAnswer = Models["CommandAnswer"];

export type RunRow = Models["ExecutionRowAnswer"];
export type RunList = Models["ExecutionListAnswer"];
export type Run = Models["ExecutionAnswer"];
export type RunStatus = Models["ExecutionStatus"];
export type Batch = Models["BatchAnswer"];
export type BatchRow = Models["BatchRow"];
export type BatchStatus = Models["BatchStatus"];

/** Any model of the API by its name there: `Model<"TreeAnswer">`. */
export type Model<Name extends keyof Models> = Models[Name];

/** One page of a list. */
export interface Page<Item> {
  items: Item[];
  next: string | null;
}
