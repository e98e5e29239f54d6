import { useQuery } from "@tanstack/react-query";
import { get } from "../../../api/client";
import type { Model, Run } from "../../../api/types";
import { quoted } from "../../../parts/command";

export interface Options {
  before: readonly string[];
  after: readonly string[];
  variants: Readonly<Record<string, string>>;
}

/** The breakpoints and variants that a run has now. */
export function optionsOf(run: Run): Options {
  const names = (value: unknown) => (Array.isArray(value) ? value.map(String) : []);
  return {
    before: names(run.options["break_before"]),
    after: names(run.options["break_after"]),
    variants: run.variants,
  };
}

/** What of the options differs from those of the run, for a request. */
export function changedOptions(run: Run, options: Options): object {
  const had = optionsOf(run);
  return {
    ...(isEqual(had.before, options.before) ? {} : { break_before: options.before }),
    ...(isEqual(had.after, options.after) ? {} : { break_after: options.after }),
    ...(isEqual(had.variants, options.variants) ? {} : { variants: options.variants }),
  };
}

/** The same on the command line. */
export function optionWords(run: Run, options: Options): string {
  const had = optionsOf(run);
  const before = isEqual(had.before, options.before) ? [] : options.before;
  const after = isEqual(had.after, options.after) ? [] : options.after;
  const isCleared = options.before.length + options.after.length === 0 && had.before.length + had.after.length > 0;
  return [
    ...(isCleared ? [" --no-breakpoints"] : []),
    ...before.map((node) => ` --break-before ${quoted(node)}`),
    ...after.map((node) => ` --break-after ${quoted(node)}`),
    ...variantWords(had.variants, options.variants),
  ].join("");
}

export function variantWords(had: Readonly<Record<string, string>>, now: Readonly<Record<string, string>>): string[] {
  return Object.entries(now)
    .filter(([node, name]) => had[node] !== name)
    .map(([node, name]) => ` --variant ${quoted(`${node}=${name}`)}`);
}

function isEqual(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** Where a run pauses. */
export function Breakpoints({
  run,
  options,
  onChange,
}: {
  run: Run;
  options: Options;
  onChange: (options: Options) => void;
}) {
  const graph = useQuery({
    queryKey: ["workflow", run.workflow, "graph"],
    queryFn: ({ signal }) => get<Model<"GraphAnswer">>(["workflows", run.workflow, "graph"], {}, signal),
  });
  const nodes = graph.data?.nodes.map((node) => node.name) ?? [...new Set([...options.before, ...options.after])];
  const put = (list: "before" | "after", node: string, isOn: boolean) =>
    onChange({ ...options, [list]: isOn ? [...options[list], node] : options[list].filter((each) => each !== node) });
  return (
    <fieldset>
      <legend>Pause</legend>
      <div className="scroll break-table">
        <table>
          <thead>
            <tr>
              <th>Node</th>
              <th>Before</th>
              <th>After</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map((node) => (
              <tr key={node}>
                <td>
                  <code>{node}</code>
                </td>
                {(["before", "after"] as const).map((list) => (
                  <td key={list}>
                    <input
                      type="checkbox"
                      aria-label={`Pause ${list} ${node}`}
                      checked={options[list].includes(node)}
                      onChange={(event) => put(list, node, event.target.checked)}
                    />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </fieldset>
  );
}

interface VariantsProps {
  run: Run;
  variants: Readonly<Record<string, string>>;
  onChange: (variants: Readonly<Record<string, string>>) => void;
}

/** Which variant of a node runs. */
export function Variants({ run, variants, onChange }: VariantsProps) {
  const found = useQuery({
    queryKey: ["run", run.id, "variants"],
    queryFn: ({ signal }) => get<Model<"VariantsAnswer">>(["executions", run.id, "variants"], {}, signal),
  });
  const nodes = Object.entries(found.data?.nodes ?? {});
  if (nodes.length === 0) return null;
  const put = (node: string, name: string) => {
    const { [node]: _, ...rest } = variants;
    onChange(name === "" ? rest : { ...rest, [node]: name });
  };
  return (
    <fieldset>
      <legend>Variants</legend>
      <div className="toolbar">
        {nodes.map(([node, names]) => (
          <label key={node}>
            <code>{node}</code>{" "}
            <select value={variants[node] ?? ""} onChange={(event) => put(node, event.target.value)}>
              <option value="">as written</option>
              {names.map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        ))}
      </div>
    </fieldset>
  );
}
