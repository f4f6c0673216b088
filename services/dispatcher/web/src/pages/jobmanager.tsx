import { usePolled } from "../api";
import { Answer, Card, Facts, PageTitle, Tabs } from "../parts";
import { Table } from "../table";
import { OPTION_COLUMNS } from "./configuration";
import { Logs, Stdout, Profiles, ThreadDump } from "./process";
import { Metrics } from "./taskmanagers";

const TABS: [string, string][] = [["configuration", "Configuration"], ["environment", "Environment"], ["logs", "Logs"], ["stdout", "Stdout"], ["metrics", "Metrics"], ["threads", "Stacks"]];

export function JobManagerPage({ tab, rest }: { tab: string; rest: string[] }) {
  const now = TABS.some(([key]) => key === tab) ? tab : "configuration";
  return (
    <>
      <PageTitle>JobManager</PageTitle>
      <Tabs path={["jobmanager"]} tabs={TABS} now={now} />
      {now === "configuration" && <Configuration />}
      {now === "environment" && <Environment />}
      {now === "logs" && <Logs base="/jobmanager" route={["jobmanager"]} rest={rest} />}
      {now === "stdout" && <Stdout base="/jobmanager" />}
      {now === "metrics" && <Metrics base="/jobmanager" />}
      {now === "threads" && <><Profiles base="/jobmanager" /><ThreadDump base="/jobmanager" /></>}
    </>
  );
}

function Configuration() {
  const of = usePolled<{ key: string; value: string }[]>("/jobmanager/config", null);
  return (
    <Card title="Settings of the cluster">
      <Answer of={of} what="its settings">{(found) => <Table name="options" columns={OPTION_COLUMNS} rows={found} id={(row) => row.key} sort="key" filter="Filter options" height={700} />}</Answer>
    </Card>
  );
}

function Environment() {
  const of = usePolled<{ jvm: { version: string; arch: string; options: string[] }; classpath: string[] }>("/jobmanager/environment", null);
  return (
    <Answer of={of} what="its environment">
      {(found) => (
        <>
          <Card title="Runtime"><Facts of={[["Version", found.jvm.version], ["Architecture", found.jvm.arch], ["Options", found.jvm.options.join(" ") || "–"]]} /></Card>
          <Card title="Where modules come from"><ul class="plain-list">{found.classpath.map((one) => <li key={one}><code>{one}</code></li>)}</ul></Card>
        </>
      )}
    </Answer>
  );
}
