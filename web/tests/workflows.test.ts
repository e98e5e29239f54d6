import { expect, test } from "vitest";
import { quoted } from "../src/parts/command";
import { smooth } from "../src/views/run/graph/route-edge";
import { choiceOf, commandOf, parseInput, searchOf } from "../src/views/workflows/input";

test("an input is a JSON object, and anything else is a fault that says so", () => {
  expect(parseInput(' {"a": 1}')).toEqual({ input: { a: 1 }, fault: null });
  expect(parseInput("")).toEqual({ input: {}, fault: null });
  expect(parseInput("[1]").fault).toContain("object");
  expect(parseInput('{\n "a": x}').fault).toContain("not JSON");
});

test("variants and breakpoints survive the way into the address, and become a command", () => {
  const choice = { variants: { "a=b": "short" }, before: ["x"], after: ["y z"] };
  expect(choiceOf(searchOf(choice))).toEqual(choice);
  expect(commandOf("f.py:flow", '{"q": "Why?"}', choice, quoted)).toBe(
    `wtb run f.py:flow --input '{"q":"Why?"}' --variant a=b=short --break-before x --break-after 'y z'`,
  );
});

test("an edge goes through its points from the first to the last", () => {
  expect(
    smooth([
      { x: 0, y: 0 },
      { x: 5, y: 5 },
    ]),
  ).toBe("M0 0L5 5");
  expect(
    smooth([
      { x: 0, y: 0 },
      { x: 5, y: 0 },
      { x: 9, y: 9 },
    ]),
  ).toBe("M0 0Q5 0 9 9");
});
