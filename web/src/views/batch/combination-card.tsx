import { Link } from "react-router";
import type { Model } from "../../api/types";
import { durationText } from "../../parts/format";
import { toRun } from "../../parts/links";
import type { Answer, CombinationAnswers } from "./case-answers";
import { ScoreText } from "./cell-dialog";
import { LongText } from "./long-text";

type Result = Model<"JobResultAnswer">;

interface Props {
  found: CombinationAnswers;
  /** The answer of the baseline, whose words are not marked; null for the baseline itself. */
  base: string | null;
  isBaseline: boolean;
  chosen: readonly string[];
  toggle: (run: string) => void;
}

/** What one combination made of a case: every answer once, and every repeat with its scores and its run. */
export function CombinationCard({ found, base, isBaseline, chosen, toggle }: Props) {
  return (
    <section className={`card side ${isBaseline ? "is-baseline" : ""}`} aria-label={found.combination}>
      <h2>
        {found.combination} {isBaseline && <span className="quiet">baseline</span>}
      </h2>
      {found.answers.map((answer) => (
        <AnswerText key={answer.text} answer={answer} of={found.results.length} base={base} />
      ))}
      <ul className="side-runs">
        {found.results.map((result) => (
          <li key={result.repeat} className={result.error === null ? "" : "has-errors"}>
            <RunLine result={result} isOnly={found.results.length === 1} chosen={chosen} toggle={toggle} />
          </li>
        ))}
      </ul>
    </section>
  );
}

function AnswerText({ answer, of, base }: { answer: Answer; of: number; base: string | null }) {
  const isSame = base !== null && answer.text === base;
  return (
    <div className="answer">
      <p className="quiet">
        {answer.results.length < of && `${answer.results.length} of ${of} repeats. `}
        {isSame && "The same as the baseline."}
      </p>
      <LongText text={answer.text} base={base} size={answer.size} />
    </div>
  );
}

interface RunLineProps {
  result: Result;
  isOnly: boolean;
  chosen: readonly string[];
  toggle: (run: string) => void;
}

function RunLine({ result, isOnly, chosen, toggle }: RunLineProps) {
  const { run } = result;
  const name = `${result.combination}, repeat ${result.repeat + 1}`;
  return (
    <>
      <span className="run-line">
        {!isOnly && <strong>Repeat {result.repeat + 1}</strong>}
        {run !== null && (
          <>
            <Link to={toRun(run)} aria-label={`Open run of ${name}`}>
              Open run
            </Link>
            <label>
              <input
                type="checkbox"
                checked={chosen.includes(run)}
                onChange={() => toggle(run)}
                aria-label={`compare the run of ${name}`}
              />
              compare
            </label>
          </>
        )}
        {result.latency_s != null && <span className="quiet">{durationText(result.latency_s)}</span>}
      </span>
      {result.error !== null && (
        <span className="errors">
          ✕ {String(result.error["type"])}: {String(result.error["message"])}
          {result.is_dead && " (given up: it lost its worker too often)"}
        </span>
      )}
      <span className="score-line">
        {Object.entries(result.scores).map(([metric, score]) => (
          <span key={metric}>
            <span className="quiet">{metric}</span> <ScoreText score={score} />
          </span>
        ))}
      </span>
      {Object.entries(result.not_taken_back).map(([each, why]) => (
        <span key={each} className="errors">
          ! Calls were not taken back: {why}
        </span>
      ))}
    </>
  );
}
