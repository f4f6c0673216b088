// Flame graphs as trees. Pure.
export interface Frame {
  name: string;
  value: number;
  children: Frame[];
}

/** Frames from the root down that all samples have in common, but for the last frame of all: they tell nothing. */
export function trunk(root: Frame): Frame[] {
  const found = [root];
  for (let frame = root; ; frame = frame.children[0]!) {
    const [only, ...others] = frame.children;
    if (!only || others.length || only.value < frame.value || !only.children.length) return found;
    found.push(only);
  }
}

/** Rows that a frame and all above it take. */
export function depthOf(frame: Frame): number {
  let depth = 0;
  for (let row = [frame]; row.length; row = row.flatMap((one) => one.children)) depth += 1;
  return depth;
}
