import { lazy, Suspense } from "react";
import { Link } from "react-router";
import type { Batch } from "../../api/types";
import { useChoice } from "../../parts/choice";
import { Command, quoted } from "../../parts/command";
import { countText } from "../../parts/format";
import { toWorkflow } from "../../parts/links";
import { Loading } from "../../parts/loading";
import { ProblemNote } from "../../parts/problem";
import { Status } from "../../parts/status";
import { Tabs, useTab } from "../../parts/tabs";
import { When } from "../../parts/times";
import { Actions } from "./actions";
import { isMoving, useBatch, useMatrix } from "./batch-queries";
import "./batch.css";
import { Conclusion } from "./conclusion";
import { Failures } from "./failures";
import { MatrixTable } from "./matrix";
import { Progress } from "./progress";
import type { Matrix } from "./verdicts";

const Grid = lazy(() => import("./grid"));
const Forest = lazy(() => import("./forest"));
const TradeOff = lazy(() => import("./trade-off"));
const Effects = lazy(() => import("./effects"));
const Baselines = lazy(() => import("./baselines"));

const TABS = ["matrix", "cases", "differences", "trade-off", "effects", "failures", "baselines"] as const;
type Tab = (typeof TABS)[number];

/** One batch: how far it has come, what it found, and its results in several pictures. */
export default function BatchView({ id }: { id: string }) {
  const batch = useBatch(id);
  if (batch.isPending)
    return (
      <>
        <h1>Batch</h1>
        <Loading what="the batch" />
      </>
    );
  if (batch.error !== null && batch.data === undefined)
    return <ProblemNote error={batch.error} retry={() => void batch.refetch()} />;
  return (
    <>
      <Header batch={batch.data} />
      {batch.error !== null && <ProblemNote error={batch.error} />}
      <Progress batch={batch.data} />
      <Results batch={batch.data} id={id} />
    </>
  );
}

function Header({ batch }: { batch: Batch }) {
  return (
    <header className="batch-head">
      <div className="batch-title">
        <h1>Batch {batch.name}</h1>
        <Status status={batch.status} />
        <span className="quiet">
          <When at={batch.updated_at} />
        </span>
      </div>
      <p className="quiet">
        <Link to={toWorkflow(batch.workflow)}>{batch.workflow}</Link>: {countText(batch.combinations, "combination")} ×{" "}
        {countText(batch.cases, "case")}
        {batch.repeats > 1 && ` × ${countText(batch.repeats, "repeat")}`}, compared with <em>{batch.baseline}</em>
      </p>
      <Actions batch={batch} />
    </header>
  );
}

function Results({ batch, id }: { batch: Batch; id: string }) {
  const tab = useTab(TABS);
  const [tag] = useChoice("tag");
  const isRunning = isMoving(batch.status);
  // The grid filters by tag itself; the statistics of a tag are another reading.
  const matrix = useMatrix(id, tab === "cases" ? "" : tag, isRunning);
  if (matrix.isPending) return <Loading what="the results" />;
  if (matrix.data === undefined) return <ProblemNote error={matrix.error} retry={() => void matrix.refetch()} />;
  const failures = matrix.data.failures.length + matrix.data.evaluation_failures.length;
  return (
    <>
      <Conclusion matrix={matrix.data} />
      <Tabs label="Results" chosen={tab} tabs={tabsOf(batch, failures)} />
      <Suspense fallback={<Loading what="this part" />}>
        <Part tab={tab} batch={batch} matrix={matrix.data} id={id} />
      </Suspense>
    </>
  );
}

function tabsOf(batch: Batch, failures: number): { name: Tab; label: string; count?: number }[] {
  return [
    { name: "matrix", label: "Scores" },
    { name: "cases", label: "Cases", count: batch.cases },
    { name: "differences", label: "Differences" },
    { name: "trade-off", label: "Trade-off" },
    { name: "effects", label: "Effects" },
    { name: "failures", label: "Failures", count: failures },
    { name: "baselines", label: "Baselines and gate" },
  ];
}

interface PartProps {
  tab: Tab;
  batch: Batch;
  matrix: Matrix;
  id: string;
}

function Part({ tab, batch, matrix, id }: PartProps) {
  const isRunning = isMoving(batch.status);
  const name = quoted(batch.name);
  switch (tab) {
    case "matrix":
      return (
        <>
          <MatrixTable matrix={matrix} tags={Object.keys(matrix.exploratory_means_by_tag)} />
          <Command text={`wtb batch show ${name}`} />
        </>
      );
    case "cases":
      return <Grid batch={batch} matrix={matrix} id={id} isRunning={isRunning} />;
    case "differences":
      return <Forest batch={batch} matrix={matrix} />;
    case "trade-off":
      return <TradeOff batch={batch} matrix={matrix} id={id} isRunning={isRunning} />;
    case "effects":
      return <Effects batch={batch} matrix={matrix} id={id} isRunning={isRunning} />;
    case "failures":
      return <Failures batch={batch} matrix={matrix} />;
    case "baselines":
      return <Baselines batch={batch} matrix={matrix} />;
  }
}
