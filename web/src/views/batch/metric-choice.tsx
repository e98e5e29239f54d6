import { arrowOf, type Matrix, type Metric } from "./verdicts";

interface Props {
  matrix: Matrix;
  chosen: Metric;
  choose: (name: string) => void;
  label?: string;
}

/** Chooses a metric of the batch. */
export function MetricChoice({ matrix, chosen, choose, label = "Metric" }: Props) {
  return (
    <div className="toolbar">
      <label>
        {label}
        <MetricSelect matrix={matrix} chosen={chosen} choose={choose} />
      </label>
    </div>
  );
}

export function MetricSelect({ matrix, chosen, choose }: Props) {
  return (
    <select value={chosen.name} onChange={(event) => choose(event.target.value)}>
      {matrix.metrics.map((metric) => (
        <option key={metric.name} value={metric.name}>
          {metric.name} {arrowOf(metric)}
        </option>
      ))}
    </select>
  );
}
