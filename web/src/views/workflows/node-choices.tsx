import type { Model } from "../../api/types";
import type { Choice } from "./input";

interface Props {
  nodes: readonly Model<"GraphNode">[];
  choice: Choice;
  /** Called with what changes the choice as it is then. */
  onChange: (changed: (now: Choice) => Choice) => void;
}

/** Which variant each node uses, and where the run pauses. */
export function NodeChoices({ nodes, choice, onChange }: Props) {
  const hasVariants = nodes.some((node) => node.variants.length > 0);
  const toggled = (names: readonly string[], node: string) =>
    names.includes(node) ? names.filter((each) => each !== node) : [...names, node];
  const withVariant = (now: Choice, node: string, name: string) => {
    const { [node]: _, ...others } = now.variants;
    return { ...now, variants: name === "" ? others : { ...others, [node]: name } };
  };
  return (
    <div className="scroll workflows-nodes" tabIndex={0} role="group" aria-label="Variants and breakpoints">
      <table>
        <thead>
          <tr>
            <th>Node</th>
            {hasVariants && <th>Variant</th>}
            <th>Pause before</th>
            <th>Pause after</th>
          </tr>
        </thead>
        <tbody>
          {nodes.map(({ name, variants }) => (
            <tr key={name}>
              <td className="workflows-name">{name}</td>
              {hasVariants && (
                <td>
                  {variants.length > 0 && (
                    <select
                      aria-label={`Variant of ${name}`}
                      value={choice.variants[name] ?? ""}
                      onChange={(event) => onChange((now) => withVariant(now, name, event.target.value))}
                    >
                      <option value="">as it is</option>
                      {variants.map((variant) => (
                        <option key={variant}>{variant}</option>
                      ))}
                    </select>
                  )}
                </td>
              )}
              <td>
                <input
                  type="checkbox"
                  aria-label={`Pause before ${name}`}
                  checked={choice.before.includes(name)}
                  onChange={() => onChange((now) => ({ ...now, before: toggled(now.before, name) }))}
                />
              </td>
              <td>
                <input
                  type="checkbox"
                  aria-label={`Pause after ${name}`}
                  checked={choice.after.includes(name)}
                  onChange={() => onChange((now) => ({ ...now, after: toggled(now.after, name) }))}
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
