// The REST API: one place that asks, with the token in the memory of this tab only.
import { useEffect, useRef, useState } from "preact/hooks";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly path: string,
  ) {
    super(message);
  }
}

let token = "";
let refused: () => void = () => {};

/** The token of all further requests; "" = none. It is never written anywhere. */
export function useToken(value: string): void {
  token = value;
}

export function hasToken(): boolean {
  return token !== "";
}

/** Called whenever the server wants a token for what was asked. */
export function onRefused(callback: () => void): void {
  refused = callback;
}

/** Asks; throws ApiError (status 0 = no answer at all). */
export async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  let response: Response;
  try {
    response = await fetch(`.${path}`, { ...init, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The Dispatcher does not answer.", path);
  }
  if (response.ok || response.status === 416) return response;
  if (response.status === 401) refused();
  const text = await response.text();
  let message = text;
  try {
    message = (JSON.parse(text).errors ?? [text]).join("\n");
  } catch {
    // what is no JSON is shown as it is
  }
  throw new ApiError(response.status, message || `HTTP ${response.status}`, path);
}

export async function ask<T>(path: string, init?: RequestInit): Promise<T> {
  return (await (await request(path, init)).json()) as T;
}

export function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "Content-Type": "application/json" };
  }
  return ask<T>(path, init);
}

/** A path of the API from its pieces, each escaped. */
export function at(...pieces: string[]): string {
  return `/${pieces.map(encodeURIComponent).join("/")}`;
}

export let pollMs = 3000;
export function pollEvery(ms: number): void {
  pollMs = Math.max(500, ms);
}

export interface Polled<T> {
  data: T | undefined;
  error: ApiError | undefined;
  refresh: () => void;
}

/** Asks again and again while the tab is visible; what was heard last stays while an answer is missing. */
export function usePolled<T>(path: string | null, every: number | null = pollMs): Polled<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; error?: ApiError }>({ path });
  const again = useRef<() => void>(() => {});
  useEffect(() => {
    if (path === null) return;
    const control = new AbortController();
    let timer = 0;
    let asking = false;
    const once = async () => {
      clearTimeout(timer);
      if (asking) return;
      asking = true;
      try {
        const data = await ask<T>(path, { signal: control.signal });
        if (!control.signal.aborted) setState({ path, data });
      } catch (error) {
        if (control.signal.aborted) return;
        const known = error instanceof ApiError ? error : new ApiError(-1, String(error), path);
        setState((before) => ({ path, data: before.path === path ? before.data : undefined, error: known }));
      }
      asking = false;
      if (!control.signal.aborted && every !== null && !document.hidden) timer = window.setTimeout(once, every);
    };
    const seen = () => {
      if (!document.hidden) void once();
    };
    again.current = once;
    void once();
    if (every !== null) document.addEventListener("visibilitychange", seen);
    return () => {
      control.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, every]);
  const current = state.path === path;
  return {
    data: current ? state.data : undefined,
    error: current ? state.error : undefined,
    refresh: () => again.current(),
  };
}
