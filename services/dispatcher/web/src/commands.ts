// What dialogs do, as commands for a shell. Pure.

export interface Chosen {
  directory: string;
  drain: boolean;
  format: string;
  full: boolean;
}

/** A word for a POSIX shell, whatever is in it. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,.\/-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

const line = (words: string[]): string => words.map(quoted).join(" ");

/** The verb of `firesteel` that does the same with a job. A directory that looks like an option goes behind `--`, or after `=`. */
export function command(kind: "cancel" | "checkpoint" | "savepoint" | "stop", job: string, cluster: string, chosen: Chosen): string {
  const { directory, drain, format, full } = chosen;
  const common = ["firesteel", kind, "-m", cluster];
  const type = format === "CANONICAL" ? [] : ["--type", format];
  if (kind === "cancel") return line([...common, job]);
  if (kind === "checkpoint") return line([...common, ...(full ? ["--full"] : []), job]);
  if (kind === "savepoint") return line([...common, ...type, job, ...(directory.startsWith("-") ? ["--"] : []), ...(directory ? [directory] : [])]);
  return line([...common, ...type, ...(drain ? ["--drain"] : []), ...(directory ? [`--savepointPath=${directory}`] : []), job]);
}

/** The request that runs an uploaded program; the token comes from the cluster's configuration. */
export function runCommand(url: string, program: string, body: unknown): string {
  return posted(`${url.replace(/\/$/, "")}/jars/${encodeURIComponent(program)}/run`, body);
}

/** The request that runs the uploaded program of a job again. */
export function againCommand(url: string, job: string, body: unknown): string {
  return posted(`${url.replace(/\/$/, "")}/jobs/${job}/run-again`, body);
}

/** The command that runs the program of a job that was submitted from outside; without a cluster: where the settings say. */
export function outsideCommand(cluster: string, path: string): string {
  return `${line(["firesteel", "run", ...(cluster ? ["-m", cluster] : []), ...(path ? ["-s", path] : [])])} PROGRAM`;
}

function posted(target: string, body: unknown): string {
  return `curl -X POST -H "Authorization: Bearer $(firesteel token)" -H 'Content-Type: application/json' --data-binary ${quoted(JSON.stringify(body))} ${quoted(target)}`;
}
