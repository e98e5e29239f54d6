import type { Problem } from "./types";

/** An answer that is not a success: the problem that the server describes, or that it could not be reached. */
export class ProblemError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail);
    this.problem = problem;
  }

  get status(): number {
    return this.problem.status;
  }

  get code(): string {
    return this.problem.code;
  }
}

/** Return the problem of a failed request; answers that are no problems, such as a proxy's, become one. */
export async function problemOf(response: Response): Promise<ProblemError> {
  const text = await response.text();
  try {
    const data: unknown = JSON.parse(text);
    if (isProblem(data)) return new ProblemError(data);
  } catch {
    // Not JSON: said below.
  }
  return new ProblemError(
    made(response.status, `the server answered ${response.status} without a reason; its log may have one`),
  );
}

/** The problem of a server that does not answer at all. */
export function unreachable(): ProblemError {
  return new ProblemError(
    made(0, "the server does not answer; if it was stopped, start it again with `wtb serve`", "unreachable"),
  );
}

function made(status: number, detail: string, code = "unexpected-answer"): Problem {
  return { type: `urn:wtb:problem:${code}`, title: "No answer", status, detail, code } as Problem;
}

function isProblem(data: unknown): data is Problem {
  return typeof data === "object" && data !== null && "code" in data && "detail" in data && "status" in data;
}
