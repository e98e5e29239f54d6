import { useId } from "react";
import { lineOf } from "../../checkpoint/state/tagged";
import { startOf, type Field, type Raw } from "./schema-form";

interface Props {
  field: Field;
  raw: Raw;
  label: string;
  onChange: (raw: Raw) => void;
}

/** One field of a form, or the fields of an object. */
export function SchemaField({ field, raw, label, onChange }: Props) {
  const name = useId();
  switch (field.kind) {
    case "choice":
      return <Choice options={field.options} {...{ raw, label, onChange }} />;
    case "choices":
      return <Choices options={field.options} chosen={raw as number[]} {...{ label, onChange }} />;
    case "bool":
      return (
        <fieldset className="choices">
          <legend className="hidden-legend">{label}</legend>
          {[true, false].map((value) => (
            <label key={String(value)}>
              <input type="radio" name={name} checked={raw === value} onChange={() => onChange(value)} />
              {value ? "Yes" : "No"}
            </label>
          ))}
        </fieldset>
      );
    case "number":
      return (
        <input
          aria-label={label}
          type="number"
          step={field.isInteger ? 1 : "any"}
          min={field.minimum ?? undefined}
          max={field.maximum ?? undefined}
          value={String(raw)}
          onChange={(event) => onChange(event.target.value)}
        />
      );
    case "object":
      return <Fields field={field} raw={raw as Record<string, Raw>} onChange={onChange} />;
    default:
      return field.kind === "text" && !field.isLong ? (
        <input aria-label={label} value={String(raw)} onChange={(event) => onChange(event.target.value)} />
      ) : (
        <textarea
          aria-label={label}
          rows={field.kind === "json" ? 5 : 2}
          placeholder={field.kind === "json" ? "JSON" : undefined}
          value={String(raw)}
          onChange={(event) => onChange(event.target.value)}
        />
      );
  }
}

interface FieldsProps {
  field: Field & { kind: "object" };
  raw: Record<string, Raw>;
  onChange: (raw: Raw) => void;
}

function Fields({ field, raw, onChange }: FieldsProps) {
  return (
    <div className="form-fields">
      {field.fields.map((each) => (
        <div key={each.name} className="form-field">
          <span className="form-label">
            {each.title} {!each.isRequired && <span className="quiet">(optional)</span>}
          </span>
          <SchemaField
            field={each.field}
            raw={raw[each.name] ?? startOf(each.field)}
            label={each.title}
            onChange={(value) => onChange({ ...raw, [each.name]: value })}
          />
          {each.description !== null && <span className="quiet">{each.description}</span>}
        </div>
      ))}
    </div>
  );
}

interface ChoiceProps {
  options: readonly unknown[];
  raw: Raw;
  label: string;
  onChange: (raw: Raw) => void;
}

const FEW = 6;

function Choice({ options, raw, label, onChange }: ChoiceProps) {
  const name = useId();
  if (options.length > FEW)
    return (
      <select aria-label={label} value={Number(raw)} onChange={(event) => onChange(Number(event.target.value))}>
        <option value={-1} disabled>
          Choose
        </option>
        {options.map((option, at) => (
          <option key={at} value={at}>
            {lineOf(option)}
          </option>
        ))}
      </select>
    );
  return (
    <fieldset className="choices">
      <legend className="hidden-legend">{label}</legend>
      {options.map((option, at) => (
        <label key={at}>
          <input type="radio" name={name} checked={raw === at} onChange={() => onChange(at)} />
          {lineOf(option)}
        </label>
      ))}
    </fieldset>
  );
}

interface ChoicesProps {
  options: readonly unknown[];
  chosen: readonly number[];
  label: string;
  onChange: (raw: Raw) => void;
}

function Choices({ options, chosen, label, onChange }: ChoicesProps) {
  const put = (at: number, isOn: boolean) => onChange(isOn ? [...chosen, at] : chosen.filter((each) => each !== at));
  return (
    <fieldset className="choices">
      <legend className="hidden-legend">{label}</legend>
      {options.map((option, at) => (
        <label key={at}>
          <input type="checkbox" checked={chosen.includes(at)} onChange={(event) => put(at, event.target.checked)} />
          {lineOf(option)}
        </label>
      ))}
    </fieldset>
  );
}
