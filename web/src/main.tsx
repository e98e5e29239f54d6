import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ProblemError } from "./api/problems";
import { App } from "./app";
import { showTheme } from "./parts/theme";
import "./style.css";

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // The feed says what has changed; reading again by itself would load the server for nothing.
      staleTime: 60_000,
      refetchOnWindowFocus: false,
      retry: (failures, error) => failures < 3 && error instanceof ProblemError && error.status === 0,
    },
  },
});

showTheme();
const root = document.getElementById("page");
if (root === null) throw new Error("index.html has no element #page");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <App />
    </QueryClientProvider>
  </StrictMode>,
);
