// Flame graphs as trees. Pure.
export interface Frame {
  name: string;
  value: number;
  children: Frame[];
}

/** Frames that are none of the program's own: they are pale, and folded. */
export const isOurs = (name: string): boolean => /^(root$|(firesteel|pyspark|runpy|threading|asyncio)\.|__main__\.(<module>|main|serve):)/.test(name);

/** Where nothing but one frame is below another one, and both are none of the program's, the lower one stands for both. */
export function folded(frame: Frame): { tree: Frame; hidden: number } {
  let at = frame;
  let hidden = 0;
  for (;;) {
    const [only, ...others] = at.children;
    if (!only || others.length || only.value < at.value || !only.children.length || !isOurs(at.name) || !isOurs(only.name)) break;
    at = only;
    hidden += 1;
  }
  const below = at.children.map(folded);
  return { tree: { name: at.name, value: at.value, children: below.map(({ tree }) => tree) }, hidden: hidden + below.reduce((sum, one) => sum + one.hidden, 0) };
}

/** What a narrow frame has room for comes first: the function and its class, or its file, then where they are. */
export function label(name: string): string {
  const parts = name.split(".").filter((part) => part !== "<locals>");
  return parts.length > 2 ? `${parts.slice(-2).join(".")}  ${parts.slice(0, -2).join(".")}` : name;
}

/** Rows that a frame and all above it take. */
export function depthOf(frame: Frame): number {
  let depth = 0;
  for (let row = [frame]; row.length; row = row.flatMap((one) => one.children)) depth += 1;
  return depth;
}
