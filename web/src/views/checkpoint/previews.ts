/** What of a file can be shown. */

export const LARGEST_TEXT = 500_000;
export const LARGEST_IMAGE = 2_000_000;

const IMAGES: Record<string, string> = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  avif: "image/avif",
  bmp: "image/bmp",
  svg: "image/svg+xml", // in an img, an SVG runs no script and loads nothing
};

/** The type of a picture by its name; null for everything else. */
export function imageType(path: string): string | null {
  return IMAGES[path.split(".").at(-1)?.toLowerCase() ?? ""] ?? null;
}

/** The text of a file; null if it is none. */
export function textOf(bytes: Uint8Array): string | null {
  if (bytes.subarray(0, 8_000).includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

export function dataAddress(type: string, bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return `data:${type};base64,${btoa(text)}`;
}
