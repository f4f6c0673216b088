// Tests of the dashboard's pure parts: bundles them and runs them in Node.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const folder = mkdtempSync(join(tmpdir(), "firesteel-web-"));
try {
  const outfile = join(folder, "pure.test.mjs");
  await build({ entryPoints: [join(import.meta.dirname, "src/pure.test.ts")], outfile, bundle: true, platform: "node", format: "esm", logLevel: "warning" });
  process.exitCode = spawnSync(process.execPath, ["--test", outfile], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
