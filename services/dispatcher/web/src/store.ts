// Values that many parts of the page look at.
import { useEffect, useState } from "preact/hooks";

export class Store<T> {
  private listeners = new Set<() => void>();
  constructor(private current: T) {}
  get(): T {
    return this.current;
  }
  set(value: T): void {
    this.current = value;
    for (const listener of [...this.listeners]) listener();
  }
  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

export function useStore<T>(store: Store<T>): T {
  const [value, setValue] = useState(store.get());
  useEffect(() => {
    const changed = () => setValue(() => store.get());
    changed();
    return store.listen(changed);
  }, [store]);
  return value;
}

/** A choice that stays with this browser; never anything secret. */
export function kept(name: string, otherwise: string): Store<string> {
  const key = `firesteel.${name}`;
  let found: string | null = null;
  try {
    found = localStorage.getItem(key);
  } catch {
    // no storage: the choice lasts as long as the tab
  }
  const store = new Store(found ?? otherwise);
  store.listen(() => {
    try {
      localStorage.setItem(key, store.get());
    } catch {
      // see above
    }
  });
  return store;
}

export const theme = kept("theme", "system");
export const zone = kept("zone", "local");

const narrow = matchMedia("(max-width: 640px)");
/** Whether the page is as narrow as on a phone: tables are cards then, and graphs lists. */
export const phone = new Store(narrow.matches);
narrow.addEventListener("change", () => phone.set(narrow.matches));

export interface Config {
  "refresh-interval": number;
  "flink-version": string;
  "firesteel-version"?: string;
  "timezone-name": string;
  "timezone-offset": number;
  features: Record<string, boolean>;
  "firesteel-access"?: { change: boolean; cancel: boolean };
}
export const config = new Store<Config | undefined>(undefined);
export const loginWanted = new Store<"no" | "asked" | "required">("no");

export interface Note {
  id: number;
  kind: "good" | "bad" | "busy";
  text: string;
  detail?: string;
}
export const notes = new Store<Note[]>([]);
let lastNote = 0;

/** Shows a message; with the id of one that is there, in its place. Good ones go by themselves. */
export function note(kind: Note["kind"], text: string, detail?: string, id = ++lastNote): number {
  const others = notes.get().filter((one) => one.id !== id);
  notes.set([...others, { id, kind, text, detail }]);
  if (kind === "good" && !detail) setTimeout(() => dismiss(id), 6000);
  return id;
}

export function dismiss(id: number): void {
  notes.set(notes.get().filter((one) => one.id !== id));
}
