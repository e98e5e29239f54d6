import { countText } from "../../parts/format";
import { markOf, type Matrix } from "./verdicts";

/** The answer in words, before any figure; then what to keep in mind. */
export function Conclusion({ matrix }: { matrix: Matrix }) {
  const { headline, detail, finding } = matrix.conclusion;
  const mark = markOf(finding);
  const failed = matrix.jobs.failed;
  const apart = Object.keys(matrix.measured_apart).length;
  return (
    <section className={`conclusion conclusion-${mark?.tone ?? "idle"}`} aria-label="Conclusion">
      <p className="headline">
        {mark !== null && <span aria-hidden="true">{mark.sign} </span>}
        {headline}
      </p>
      {detail !== "" && <p>{detail}</p>}
      {failed > 0 && (
        <p className="conclusion-errors">
          ✕ {countText(failed, "run")} failed. A failed run never counts as good: it scores worst, or its case is lost.
        </p>
      )}
      {matrix.evaluation_failures.map((each) => (
        <p key={each.evaluator} className="conclusion-errors">
          ! Evaluator {each.evaluator} failed on {countText(each.failed, "run")}.
        </p>
      ))}
      {matrix.not_taken_back.length > 0 && (
        <p className="conclusion-errors">
          ! Calls of {countText(matrix.not_taken_back.length, "run")} could not be taken back.
        </p>
      )}
      {matrix.notes.map((note) => (
        <p key={note} className="quiet">
          {note}
        </p>
      ))}
      {apart > 0 && (
        <p className="quiet">
          Latency or cost of {countText(apart, "combination")} was not measured together with the baseline: differences
          in these may come from that.
        </p>
      )}
      {matrix.unpriced.length > 0 && (
        <p className="quiet">
          No price is known for {matrix.unpriced.join(", ")}: their cost is missing from all figures.
        </p>
      )}
    </section>
  );
}
