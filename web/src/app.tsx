/** The frame of the page: who is signed in, the navigation, and the view of an address. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, type ReactNode } from "react";
import { BrowserRouter, Link, Navigate, NavLink, Route, Routes, useLocation, useParams } from "react-router";
import { get, send } from "./api/client";
import { FeedProvider, useFeedState } from "./api/live";
import { ProblemError } from "./api/problems";
import type { Session } from "./api/types";
import { Boundary } from "./parts/boundary";
import { Empty } from "./parts/empty";
import { Loading } from "./parts/loading";
import { usePlace } from "./parts/place";
import { ProblemNote } from "./parts/problem";
import { SessionContext } from "./parts/session";
import { ThemeButton } from "./parts/theme";
import { SignIn } from "./views/sign-in";

const RunsView = lazy(() => import("./views/runs/runs-view"));
const RunView = lazy(() => import("./views/run/run-view"));
const CheckpointView = lazy(() => import("./views/checkpoint/checkpoint-view"));
const DiffView = lazy(() => import("./views/checkpoint/diff-view"));
const BatchesView = lazy(() => import("./views/batches/batches-view"));
const NewBatchView = lazy(() => import("./views/batches/new-batch-view"));
const BatchView = lazy(() => import("./views/batch/batch-view"));
const CaseView = lazy(() => import("./views/batch/case-view"));
const WorkflowsView = lazy(() => import("./views/workflows/workflows-view"));
const WorkflowView = lazy(() => import("./views/workflows/workflow-view"));
const AuditView = lazy(() => import("./views/audit/audit-view"));

const SECTIONS = [
  { to: "/runs", label: "Runs" },
  { to: "/batches", label: "Batches" },
  { to: "/workflows", label: "Workflows" },
  { to: "/audit", label: "Audit" },
] as const;

export function App() {
  const session = useQuery({ queryKey: ["session"], queryFn: ({ signal }) => get<Session>(["session"], {}, signal) });
  if (session.isPending) return <Loading what="the page" />;
  if (session.error instanceof ProblemError && session.error.status === 401) return <SignIn />;
  if (session.error !== null) return <ProblemNote error={session.error} retry={() => void session.refetch()} />;
  return (
    <SessionContext value={session.data}>
      <FeedProvider>
        <BrowserRouter>
          <a className="skip" href="#content">
            Skip to the content
          </a>
          <Bar session={session.data} />
          <main id="content" tabIndex={-1}>
            <Views />
          </main>
        </BrowserRouter>
      </FeedProvider>
    </SessionContext>
  );
}

function Bar({ session }: { session: Session }) {
  const signOut = async () => {
    await send("DELETE", ["session"]);
    location.reload(); // so that nothing of this person stays
  };
  return (
    <header className="bar">
      <Link to="/runs" className="brand">
        <img src="/assets/icon.svg" alt="" width="22" height="22" /> WTB
      </Link>
      <nav aria-label="Sections">
        {SECTIONS.map(({ to, label }) => (
          <NavLink key={to} to={to}>
            {label}
          </NavLink>
        ))}
      </nav>
      <span className="bar-end">
        <FeedMark />
        <span className="who" title={`You are signed in as ${session.name}, with the role ${session.role}`}>
          {session.name} <span className="quiet">({session.role})</span>
        </span>
        <ThemeButton />
        <button type="button" className="plain" onClick={() => void signOut()}>
          Sign out
        </button>
      </span>
    </header>
  );
}

const FEED_TEXT = {
  connecting: "Connecting",
  live: "Live",
  lost: "Reconnecting",
  ended: "Signed out",
} as const;

function FeedMark() {
  const state = useFeedState();
  const client = useQueryClient();
  useEffect(() => {
    if (state === "ended") void client.invalidateQueries({ queryKey: ["session"] });
  }, [state, client]);
  return (
    <span className={`feed feed-${state}`} role="status">
      {FEED_TEXT[state]}
    </span>
  );
}

function Views() {
  const { pathname } = useLocation();
  usePlace(pathname);
  return (
    <Boundary key={pathname}>
      <Suspense fallback={<Loading what="this view" />}>
        <Routes>
          <Route path="/" element={<Navigate to="/runs" replace />} />
          <Route path="/runs" element={<RunsView />} />
          <Route path="/runs/:run" element={<Keyed view={({ run = "" }) => <RunView key={run} id={run} />} />} />
          <Route path="/runs/:run/diff" element={<Keyed view={({ run = "" }) => <DiffView key={run} id={run} />} />} />
          <Route
            path="/runs/:run/checkpoints/:target"
            element={
              <Keyed
                view={({ run = "", target = "" }) => (
                  <CheckpointView key={`${run} ${target}`} id={run} target={target} />
                )}
              />
            }
          />
          <Route path="/batches" element={<BatchesView />} />
          <Route path="/batches/new" element={<NewBatchView />} />
          <Route
            path="/batches/:batch"
            element={<Keyed view={({ batch = "" }) => <BatchView key={batch} id={batch} />} />}
          />
          <Route
            path="/batches/:batch/cases/:case"
            element={
              <Keyed
                view={(names) => (
                  <CaseView key={`${names.batch} ${names.case}`} id={names.batch ?? ""} caseId={names.case ?? ""} />
                )}
              />
            }
          />
          <Route path="/workflows" element={<WorkflowsView />} />
          <Route
            path="/workflows/:name"
            element={<Keyed view={({ name = "" }) => <WorkflowView key={name} name={name} />} />}
          />
          <Route path="/audit" element={<AuditView />} />
          <Route
            path="*"
            element={
              <Empty title="There is no page here">
                Go to the <Link to="/runs">runs</Link> or the <Link to="/batches">batches</Link>.
              </Empty>
            }
          />
        </Routes>
      </Suspense>
    </Boundary>
  );
}

/** Gives a view the names in its address, so that views have plain properties and a new one begins for each name. */
function Keyed({ view }: { view: (names: Readonly<Record<string, string | undefined>>) => ReactNode }) {
  return view(useParams());
}
