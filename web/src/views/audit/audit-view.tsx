import { Tabs, useTab } from "../../parts/tabs";
import "./audit.css";
import { Chain } from "./chain";
import { Entries } from "./entries";
import { Summary } from "./summary";
import { ToolStatistics } from "./tools";

const TABS = ["trail", "summary", "tools", "chain"] as const;

/** Who did what, how often what happened, what tools did, and whether the log can be trusted. */
export default function AuditView() {
  const tab = useTab(TABS);
  return (
    <>
      <h1>Audit</h1>
      <Tabs
        label="Audit"
        chosen={tab}
        tabs={[
          { name: "trail", label: "Who did what" },
          { name: "summary", label: "Summary" },
          { name: "tools", label: "Tools" },
          { name: "chain", label: "Verify the log" },
        ]}
      />
      {tab === "trail" && <Entries />}
      {tab === "summary" && <Summary />}
      {tab === "tools" && <ToolStatistics />}
      {tab === "chain" && <Chain />}
    </>
  );
}
