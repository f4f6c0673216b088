// Small pieces that many pages use.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useTitle } from "./title";
import type { ApiError, Polled } from "./api";
import { bytes, count, DASH, exact, isNumber, percent, shortTime, time } from "./format";
import { href } from "./router";
import { config, useStore, zone } from "./store";

const TONES: Record<string, string> = {
  RUNNING: "good", FINISHED: "done", FAILED: "bad", FAILING: "bad", CANCELED: "off", CANCELLING: "warn", CANCELING: "warn",
  RESTARTING: "warn", INITIALIZING: "warn", DEPLOYING: "warn", SCHEDULED: "warn", CREATED: "off", SUSPENDED: "off", RECONCILING: "warn",
  COMPLETED: "good", IN_PROGRESS: "warn", completed: "good", pending_or_failed: "warn",
}; // prettier-ignore

export const tone = (state: string): string => TONES[state] ?? "off";

export function Badge({ state }: { state: string }) {
  return <span class={`badge ${tone(state)}`}>{state}</span>;
}

export function useTime(): (ms: number | undefined | null) => string {
  const chosen = useStore(zone);
  const offset = useStore(config)?.["timezone-offset"] ?? 0;
  return (ms) => time(ms, chosen, offset);
}

/** A moment; `short`: without its date if that is today's. */
export function When({ ms, short }: { ms: number | undefined | null; short?: boolean }) {
  const chosen = useStore(zone);
  const offset = useStore(config)?.["timezone-offset"] ?? 0;
  const full = time(ms, chosen, offset);
  const text = short && full !== DASH ? shortTime(ms, Date.now(), chosen, offset) : full;
  return <span title={isNumber(ms) && ms > 0 ? `${full} (${new Date(ms).toISOString()})` : ""}>{text}</span>;
}

export const Count = ({ of }: { of: number | undefined | null }) => <span title={exact(of)}>{count(of)}</span>;
export const Bytes = ({ of }: { of: number | undefined | null }) => <span title={isNumber(of) ? `${exact(of)} bytes` : ""}>{bytes(of)}</span>;

/** A share of time, as a bar with its number. */
export function Share({ of, kind }: { of: number | undefined; kind: "busy" | "held" | "idle" }) {
  if (!isNumber(of)) return <span class="dim">{DASH}</span>;
  return (
    <span class="share">
      <span class="track">
        <span class={`fill ${kind}`} style={{ width: `${Math.min(100, of / 10)}%` }} />
      </span>
      <span class="share-number">{percent(of)}</span>
    </span>
  );
}

/** The heading of a page, which is its title as well; `name`: where the heading shows more than the name. */
export function PageTitle({ name, children }: { name?: string; children?: ComponentChildren }) {
  useTitle(0, name ?? String(children));
  return <h1>{children ?? name}</h1>;
}

export function Tabs({ path, tabs, now }: { path: string[]; tabs: [string, string][]; now: string }) {
  useTitle(path.length, tabs.find(([key]) => key === now)?.[1] ?? "");
  return (
    <nav class="tabs" aria-label={path.length > 2 ? "Of the vertex" : "Of the page"}>
      {tabs.map(([key, title]) => (
        <a key={key} href={href([...path, key])} class={key === now ? "now" : ""} aria-current={key === now ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** What went wrong with a question; nothing if nothing did. */
export function Trouble({ error, what }: { error: ApiError | undefined; what?: string }) {
  if (!error) return null;
  const missing = error.status === 404 && error.message.startsWith("Not found:");
  const text = missing ? `This cluster does not offer ${what ?? "this"} (${error.path} is not there).` : error.message;
  return (
    <p class={`trouble ${missing ? "quiet" : ""}`} role="status">
      {error.status === 0 ? `${text} What is shown is what was heard last.` : text}
    </p>
  );
}

/** The answer of a question, or why there is none. */
export function Answer<T>({ of, what, children }: { of: Polled<T>; what?: string; children: (data: T) => ComponentChildren }) {
  return (
    <>
      <Trouble error={of.error} what={what} />
      {of.data !== undefined ? children(of.data) : !of.error && <p class="empty">Loading …</p>}
    </>
  );
}

export function Card({ title, children, wide, name }: { title?: ComponentChildren; children: ComponentChildren; wide?: boolean; name?: string }) {
  return (
    <section class={`card ${wide ? "wide" : ""}`} data-card={name}>
      {title && <h2>{title}</h2>}
      {children}
    </section>
  );
}

export function Figure({ title, value, note, tone: kind, name }: { title: string; value: ComponentChildren; note?: ComponentChildren; tone?: string; name?: string }) {
  return (
    <div class={`figure ${kind ?? ""}`} data-figure={name}>
      <div class="figure-title">{title}</div>
      <div class="figure-value">{value}</div>
      {note !== undefined && <div class="figure-note">{note}</div>}
    </div>
  );
}

/** Pairs of a name and a value. */
export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Copy({ text, label }: { text: string; label?: string }) {
  const copy = async (event: Event) => {
    const button = event.currentTarget as HTMLElement;
    await navigator.clipboard?.writeText(text);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  };
  return (
    <button type="button" class="copy" title={`Copy ${text.slice(0, 80)}`} onClick={copy}>
      {label ?? text}
    </button>
  );
}

/** A dialog in front of everything; Escape closes it. */
export function Dialog({ title, close, children, name }: { title: string; close: () => void; children: ComponentChildren; name: string }) {
  const box = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {  // at once: a key that is pressed before the next paint is the dialog's already
    const before = document.activeElement;
    box.current?.showModal();
    return () => before instanceof HTMLElement && before.focus(); // the browser gives it back only to who closes, not to who removes
  }, []);
  return (
    <dialog ref={box} data-dialog={name} aria-label={title} onClose={close} onClick={(event) => event.target === box.current && close()}>
      <div class="dialog-body">
        <h2>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
