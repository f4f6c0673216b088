import { at, usePolled } from "../api";
import { Answer, Card, Copy, Facts } from "../parts";
import { config, useStore } from "../store";
import { Table, type Column } from "../table";

interface Row {
  key: string;
  value: string;
  origin?: string;
}
interface Config {
  "execution-config": { "restart-strategy": string; "job-parallelism": number; "object-reuse-mode": boolean; "user-config": Record<string, string> };
  "firesteel-config"?: (Row & Record<string, unknown>)[] | Record<string, { value: string; origin?: string }>;
  "firesteel-vertices"?: { id: string; name: string; parallelism: number; maxParallelism: number; slotSharingGroupId: string }[];
}

export const OPTION_COLUMNS: Column<Row>[] = [
  { key: "key", title: "Option", value: (row) => row.key, wide: 3, show: (row) => <code>{row.key}</code> },
  { key: "value", title: "Value", value: (row) => row.value, wide: 3, show: (row) => <span title={row.value}>{row.value}</span> },
];

export function ConfigurationTab({ id }: { id: string }) {
  const of = usePolled<Config>(at("jobs", id, "config"), null);
  const history = useStore(config)?.features["web-history"] ?? false;
  return (
    <Answer of={of} what="settings of a job">
      {(found) => {
        const settings = found["execution-config"];
        const all = found["firesteel-config"] ?? {};
        const rows: Row[] = Array.isArray(all) ? all : Object.entries(all).map(([key, row]) => ({ key, ...row }));
        const columns: Column<Row>[] = [...OPTION_COLUMNS, { key: "origin", title: "From", value: (row) => row.origin ?? "", wide: 1.5 }];
        rows.sort((a, b) => Number(a.origin === "default") - Number(b.origin === "default") || a.key.localeCompare(b.key)); // first what somebody has set
        return (
          <>
            <Card title="In short">
              <Facts
                of={[
                  ["Restart strategy", settings["restart-strategy"]],
                  ["Parallelism", settings["job-parallelism"]],
                  ["Object reuse", settings["object-reuse-mode"] ? "on" : "off"],
                  ["Set by the program or the cluster", Object.keys(settings["user-config"]).length],
                ]}
              />
            </Card>
            {history && <Cluster id={id} />}
            <Card title="Every option that holds for this job" name="options">
              <Table name="options" columns={columns} rows={rows} id={(row) => row.key} filter="Filter options" height={640} />
            </Card>
          </>
        );
      }}
    </Answer>
  );
}

/** What an archive keeps of the cluster that the job ran on. */
function Cluster({ id }: { id: string }) {
  const of = usePolled<{ jvm: { version: string; arch: string } }>(at("jobs", id, "jobmanager", "environment"), null);
  const log = usePolled<{ url: string }>(at("jobs", id, "jobmanager", "log-url"), null);
  return (
    <Card title="The cluster it ran on" name="cluster">
      <Answer of={of} what="the environment of a job">
        {({ jvm }) => <Facts of={[["Version", jvm.version], ["Architecture", jvm.arch], ["Log of its JobMaster", log.data ? <Copy text={log.data.url} /> : log.error ? "not told" : "…"]]} />}
      </Answer>
    </Card>
  );
}
