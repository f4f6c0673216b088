// Which log file is shown. Pure.
/** What is shown first: the log of the process itself, else one with something in it. */
export function mainLog<File extends { name: string; size: number }>(files: File[]): File | undefined {
  return files.find((file) => /(taskmanager|dispatcher|jobmanager).*\.log$/.test(file.name) && file.size > 0) ?? files.find((file) => file.name.endsWith(".log") && file.size > 0) ?? files[0];
}
