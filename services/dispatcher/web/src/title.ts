// The title of a page, for the tab bar and the history of the browser: "Checkpoints · Orders by customer · Firesteel". Pure but for the hook.
import { useLayoutEffect } from "preact/hooks";

const parts = new Map<number, string>();

/** Parts by their depth, the deepest one first: a narrow tab shows what tells pages apart. */
export function joinedTitle(found: Map<number, string>): string {
  const texts = [...found].sort(([a], [b]) => b - a).map(([, text]) => text);
  return [...texts.filter((text, index) => text && text !== texts[index + 1]), "Firesteel"].join(" · ");
}

/** A part of the page's title as long as the component is shown; `depth`: of its place in the address. */
export function useTitle(depth: number, text: string): void {
  useLayoutEffect(() => {
    parts.set(depth, text);
    document.title = joinedTitle(parts);
    return () => {
      if (parts.get(depth) === text) parts.delete(depth);
      document.title = joinedTitle(parts);
    };
  }, [depth, text]);
}
