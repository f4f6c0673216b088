// Builds the dashboard: src/ -> ../src/firesteel_dispatcher/dashboard/. `./build` checks types first and installs what is needed.
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const here = import.meta.dirname;
const target = process.argv[2] ?? join(here, "../src/firesteel_dispatcher/dashboard");
const shipped = ["@dagrejs/dagre", "@dagrejs/graphlib", "preact", "uplot"];

rmSync(target, { recursive: true, force: true });
mkdirSync(target, { recursive: true });
await build({
  entryPoints: { app: join(here, "src/main.tsx") },
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome111", "firefox113", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  logLevel: "warning",
});
await build({
  entryPoints: { app: join(here, "src/app.css") },
  outdir: target,
  bundle: true,
  minify: true,
  target: ["chrome111", "firefox113", "safari16.4"],
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) copyFileSync(join(here, "src", name), join(target, name));

const notices = shipped.map((name) => {
  const folder = join(here, "node_modules", name);
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  if (!file) throw new Error(`${name} has no licence`);
  const text = readFileSync(join(folder, file), "utf8");
  return `${name} ${version}\n\n${text.trim()}\n`;
});
writeFileSync(join(target, "licences.txt"), `The dashboard contains these programs.\n\n${notices.join("\n----\n\n")}`);

// What the build was made from, and what it is: tests/house compares both without Node.
const sha = (path) => createHash("sha256").update(readFileSync(path)).digest("hex");
const sources = [
  ...readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((one) => one.isFile())
    .map((one) => join(one.parentPath, one.name)),
  ...["build.mjs", "package.json", "package-lock.json", "tsconfig.json"].map((name) => join(here, name)),
];
const record = (paths, base) => Object.fromEntries(paths.map((path) => [path.slice(base.length + 1).replaceAll("\\", "/"), sha(path)]).sort());
const files = readdirSync(target).map((name) => join(target, name));
writeFileSync(join(target, "build.json"), `${JSON.stringify({ sources: record(sources, here), files: record(files, target) }, null, 1)}\n`);
