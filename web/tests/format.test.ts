import { expect, test } from "vitest";
import { columnText, durationText, figureText, shortId, sinceText, sizeText } from "../src/parts/format";

test("times are told by their distance, and old ones by their date", () => {
  const now = new Date("2026-11-18T12:00:00Z");
  const ago = (seconds: number) => sinceText(new Date(now.getTime() - seconds * 1000), now);
  expect([ago(1), ago(30), ago(150), ago(7300), ago(3 * 86_400), ago(90 * 86_400)]).toEqual([
    "now",
    "30 s ago",
    "2 min ago",
    "2 h ago",
    "3 d ago",
    "2026-08-20",
  ]);
});

test("durations, sizes and figures keep the digits that count", () => {
  expect([0, 0.0004, 0.0123, 4.25, 75, 3700].map(durationText)).toEqual([
    "0 ms",
    "<1 ms",
    "12 ms",
    "4.3 s",
    "1 min 15 s",
    "1 h 1 min",
  ]);
  expect([12, 1500, 2_500_000, 3.1e9].map(sizeText)).toEqual(["12 B", "1.5 kB", "2.5 MB", "3.1 GB"]);
  expect([null, 0, 0.000123456, 0.5, 12.345, 1234.5].map(figureText)).toEqual([
    "–",
    "0",
    "0.000123",
    "0.5",
    "12.3",
    "1,235",
  ]);
  expect([null, 0, 0.5, 0.62, 12, 1234.5].map(columnText)).toEqual(["–", "0", "0.500", "0.620", "12.0", "1,235"]);
});

test("only made ids are shortened", () => {
  expect(shortId("0198c0de-0000-7000-8000-0123456789ab")).toBe("…456789ab");
  expect(shortId("nightly")).toBe("nightly");
});
