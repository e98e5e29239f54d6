/** Forms from the schemas of questions: which fields there are, and which answer they make. */

export type Field =
  | { kind: "choice"; options: readonly unknown[] }
  | { kind: "choices"; options: readonly unknown[] }
  | { kind: "bool" }
  | { kind: "number"; isInteger: boolean; minimum: number | null; maximum: number | null }
  | { kind: "text"; isLong: boolean }
  | { kind: "object"; fields: readonly Named[] }
  | { kind: "json" };

export interface Named {
  name: string;
  title: string;
  description: string | null;
  isRequired: boolean;
  field: Field;
}

/** What stands in a field: a text, the number of an option, a set of them, or the fields of an object. */
export type Raw = string | number | boolean | null | number[] | { [name: string]: Raw };

export type Answer = { value: unknown } | { faults: string[] };

type Schema = Record<string, unknown>;

/** The field for a schema: a list of answers, a JSON schema, or nothing. What no form can ask for is JSON. */
export function fieldOf(schema: unknown): Field {
  if (Array.isArray(schema)) return { kind: "choice", options: schema };
  if (schema === null || schema === undefined) return { kind: "text", isLong: true };
  if (!isSchema(schema)) return { kind: "json" };
  const options = schema["enum"] ?? ("const" in schema ? [schema["const"]] : constants(schema));
  if (Array.isArray(options)) return { kind: "choice", options };
  switch (schema["type"]) {
    case "boolean":
      return { kind: "bool" };
    case "integer":
    case "number":
      return {
        kind: "number",
        isInteger: schema["type"] === "integer",
        minimum: numberOf(schema["minimum"]),
        maximum: numberOf(schema["maximum"]),
      };
    case "string":
      return { kind: "text", isLong: (numberOf(schema["maxLength"]) ?? 1000) > 100 };
    case "array":
      return listField(schema["items"]);
    case "object":
      return objectField(schema);
    default:
      return { kind: "json" };
  }
}

function constants(schema: Schema): unknown[] | null {
  const each = schema["oneOf"] ?? schema["anyOf"];
  if (!Array.isArray(each) || !each.every((one) => isSchema(one) && "const" in one)) return null;
  return each.map((one: Schema) => one["const"]);
}

function listField(items: unknown): Field {
  const inside = isSchema(items) ? fieldOf(items) : null;
  return inside?.kind === "choice" ? { kind: "choices", options: inside.options } : { kind: "json" };
}

function objectField(schema: Schema): Field {
  const properties = schema["properties"];
  if (!isSchema(properties) || "$ref" in schema || "allOf" in schema) return { kind: "json" };
  const required = Array.isArray(schema["required"]) ? schema["required"] : [];
  const fields = Object.entries(properties).map(([name, inner]): Named => {
    const of = isSchema(inner) ? inner : {};
    return {
      name,
      title: typeof of["title"] === "string" ? of["title"] : name,
      description: typeof of["description"] === "string" ? of["description"] : null,
      isRequired: required.includes(name),
      field: fieldOf(of),
    };
  });
  // The names in `properties` come back sorted, those in `required` in the order of who asks.
  const rank = ({ name, isRequired }: Named) => (isRequired ? required.indexOf(name) : required.length);
  const byNeed = [...fields].sort((one, other) => rank(one) - rank(other));
  return fields.length === 0 ? { kind: "json" } : { kind: "object", fields: byNeed };
}

/** What a field begins with. */
export function startOf(field: Field): Raw {
  switch (field.kind) {
    case "choice":
      return -1;
    case "choices":
      return [];
    case "bool":
      return null;
    case "object":
      return Object.fromEntries(field.fields.map((each) => [each.name, startOf(each.field)]));
    default:
      return "";
  }
}

/** The answer that a filled form makes, or what is missing in it. */
export function answerOf(field: Field, raw: Raw, name = "the answer"): Answer {
  switch (field.kind) {
    case "choice":
      return raw === -1 ? fault(`Choose ${name}.`) : { value: field.options[raw as number] };
    case "choices":
      return { value: (raw as number[]).map((at) => field.options[at]) };
    case "bool":
      return raw === null ? fault(`Choose yes or no for ${name}.`) : { value: raw };
    case "number":
      return numberAnswer(field, String(raw).trim(), name);
    case "text":
      return { value: raw };
    case "json":
      return jsonAnswer(String(raw), name);
    case "object":
      return objectAnswer(field.fields, raw as Record<string, Raw>);
  }
}

function numberAnswer(field: Field & { kind: "number" }, text: string, name: string): Answer {
  const value = Number(text);
  if (text === "" || !Number.isFinite(value)) return fault(`Write a number for ${name}.`);
  if (field.isInteger && !Number.isInteger(value)) return fault(`Write a whole number for ${name}.`);
  if (field.minimum !== null && value < field.minimum) return fault(`${name} is at least ${field.minimum}.`);
  if (field.maximum !== null && value > field.maximum) return fault(`${name} is at most ${field.maximum}.`);
  return { value };
}

function jsonAnswer(text: string, name: string): Answer {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return fault(`Write JSON for ${name}; a text needs quotation marks.`);
  }
}

function objectAnswer(fields: readonly Named[], raw: Record<string, Raw>): Answer {
  const value: Record<string, unknown> = {};
  const faults: string[] = [];
  for (const { name, title, isRequired, field } of fields) {
    const typed = raw[name] ?? startOf(field);
    if (!isRequired && isEmpty(typed)) continue;
    const found =
      isEmpty(typed) && field.kind === "text" ? fault(`Write something for ${title}.`) : answerOf(field, typed, title);
    if ("faults" in found) faults.push(...found.faults);
    else value[name] = found.value;
  }
  return faults.length > 0 ? { faults } : { value };
}

function isEmpty(raw: Raw): boolean {
  return raw === "" || raw === -1 || raw === null || (Array.isArray(raw) && raw.length === 0);
}

function fault(text: string): Answer {
  return { faults: [text] };
}

function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function numberOf(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
