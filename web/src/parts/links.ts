/** Addresses within the page. Names are encoded, whatever they hold. */
const part = encodeURIComponent;

export const toRun = (run: string, view?: string) => `/runs/${part(run)}${view === undefined ? "" : `?view=${view}`}`;
export const toCheckpoint = (run: string, target: string | number) => `/runs/${part(run)}/checkpoints/${part(target)}`;
export const toBatch = (batch: string) => `/batches/${part(batch)}`;
export const toCase = (batch: string, caseId: string) => `/batches/${part(batch)}/cases/${part(caseId)}`;
export const toWorkflow = (name: string) => `/workflows/${part(name)}`;

/** The differences between two checkpoints; the second one may belong to another run. */
export function toDiff(run: string, from: string | number, to: string | number, other?: string): string {
  const search = new URLSearchParams({ from: String(from), to: String(to) });
  if (other !== undefined) search.set("run", other);
  return `/runs/${part(run)}/diff?${search}`;
}
