/** Numbers, times and sizes as people read them. */

export function sinceText(at: Date, now: Date): string {
  const seconds = Math.round((now.getTime() - at.getTime()) / 1000);
  if (seconds < 5) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 30 * 86_400) return `${Math.floor(seconds / 86_400)} d ago`;
  return at.toISOString().slice(0, 10);
}

/** The local time of day, to the millisecond. */
export function clockText(at: Date): string {
  return `${at.toLocaleTimeString("en-GB")}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

export function durationText(seconds: number): string {
  if (seconds < 0.001) return seconds === 0 ? "0 ms" : "<1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export function sizeText(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1e6) return `${(bytes / 1e3).toFixed(bytes < 1e4 ? 1 : 0)} kB`;
  if (bytes < 1e9) return `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
  return `${(bytes / 1e9).toFixed(1)} GB`;
}

/** A figure with three digits that count, as the reports have it. */
export function figureText(value: number | null | undefined): string {
  if (value == null) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size < 1e-5) return value.toExponential(1);
  return Number(value.toPrecision(3)).toString();
}

/** A figure of a column: three digits, also where they are zeros, so that a column can be read at a glance. */
export function columnText(value: number | null | undefined): string {
  const size = Math.abs(value ?? 0);
  return value == null || size < 1e-5 || size >= 1000 ? figureText(value) : value.toPrecision(3);
}

export function countText(count: number, noun: string, plural = `${noun}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : plural}`;
}

/** A long id, short enough for a table; the whole one belongs into a title. */
export function shortId(id: string): string {
  return /^[0-9a-f-]{20,}$/.test(id) ? `…${id.slice(-8)}` : id;
}
