import type { Batch, Model, Page } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { Empty } from "../../parts/empty";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import type { Tone } from "../../parts/status";
import { useResults } from "./batch-queries";
import { changeText, IntervalPlot, type PlotLine } from "./interval-plot";
import { MetricChoice } from "./metric-choice";
import { metricOf, type Matrix, type Metric } from "./verdicts";

type Effect = Model<"EffectRow">;

interface Props {
  batch: Batch;
  matrix: Matrix;
  id: string;
  isRunning: boolean;
}

/** Which node matters: the effect of each variant, averaged over the variants of all other nodes. */
export default function Effects({ batch, matrix, id, isRunning }: Props) {
  const [name, setName] = useChoice("metric", matrix.primary);
  const metric = metricOf(matrix, name);
  const found = useResults<Page<Effect>>(id, "effects", { metric: metric.name }, isRunning);
  const effects = found.data?.items ?? [];
  const main = effects.filter((each) => each.variants.length === 1 && each.difference !== null);
  const together = effects.filter((each) => each.variants.length > 1 && each.shown);
  const hidden = effects.filter((each) => each.confounded_with.length > 0 && each.variants.length === 1);
  return (
    <>
      <MetricChoice matrix={matrix} chosen={metric} choose={setName} />
      {found.isPending && <Loading what="the effects" />}
      {found.error !== null && <ProblemNote error={found.error} retry={() => void found.refetch()} />}
      {found.isSuccess && main.length === 0 && (
        <Empty title="No effect can be told">
          Effects need a node with at least two variants that ran on the same cases.
        </Empty>
      )}
      {main.length > 0 && (
        <>
          <p className="quiet">
            The effect of a variant is its score less that of the node’s default on the same case, averaged over the
            variants of all other nodes. All effects on a metric are tested together.
          </p>
          <IntervalPlot lines={main.map((each) => lineOf(each, metric))} label={`Effects on ${metric.name} by node`} />
        </>
      )}
      {together.length > 0 && (
        <>
          <h2>Interactions</h2>
          <p className="quiet">The effect of one variant changes with another one.</p>
          <IntervalPlot
            lines={together.map((each) => ({ ...lineOf(each, metric), group: undefined, name: nameOf(each) }))}
            label={`Interactions on ${metric.name}`}
          />
        </>
      )}
      {hidden.length > 0 && (
        <p className="note note-warn">
          With these combinations, {hidden.map(nameOf).join("; ")} cannot be told apart from other variants.
        </p>
      )}
      <Command text={`wtb effects ${quoted(batch.name)} --metric ${quoted(metric.name)}`} />
    </>
  );
}

const nameOf = (effect: Effect) => effect.variants.map((each) => `${each.node}=${each.variant}`).join(" with ");

function lineOf(effect: Effect, metric: Metric): PlotLine {
  const isGain = (effect.difference ?? 0) > 0 === (metric.direction === "higher");
  const tone: Tone = !effect.shown ? "idle" : isGain ? "good" : "bad";
  const word = !effect.shown ? "· no evidence" : isGain ? "▲ better" : "▼ worse";
  return {
    key: nameOf(effect),
    name: effect.variants[0]?.variant ?? "",
    group: effect.variants[0]?.node ?? "",
    difference: effect.difference,
    interval: effect.interval,
    tone,
    words: `${word} ${changeText(effect.difference, effect.interval)}`,
  };
}
