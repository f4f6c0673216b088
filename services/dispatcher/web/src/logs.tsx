// Lines of logs: search, follow, wrap, download. Of a file, only the end is loaded at first, then what is asked for.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, pollMs, request } from "./api";
import { bytes } from "./format";
import { Trouble } from "./parts";
import { useQuery } from "./router";
import { phone, useStore } from "./store";

const PIECE = 256 * 1024;
const LINE = 18;
const SPARE = 30;

interface Loaded {
  /** Where the text begins and ends in the file, and how long the file is; in bytes. */
  from: number;
  to: number;
  size: number;
  text: string;
}

interface Piece {
  from: number;
  size: number;
  data: Uint8Array;
  whole: boolean;
}

const BREAK = 10;

async function range(path: string, header: string): Promise<Piece> {
  const response = await request(path, { headers: { Range: header } });
  const data = response.status === 416 ? new Uint8Array() : new Uint8Array(await response.arrayBuffer());
  const [, from, size] = /bytes (?:(\d+)-\d+|\*)\/(\d+)/.exec(response.headers.get("Content-Range") ?? "") ?? [];
  if (response.status === 416) return { from: Number(size ?? 0), size: Number(size ?? 0), data, whole: false };
  if (response.status !== 206 || from === undefined) return { from: 0, size: data.length, data, whole: true };
  return { from: Number(from), size: Number(size), data, whole: false };
}

/** Whole lines of a piece: a line that is not complete comes with the next one. */
function lines(piece: Piece, skip = 0): Loaded {
  const { data, from, size } = piece;
  const first = from > 0 && !skip ? data.indexOf(BREAK) + 1 : skip;
  const last = data.lastIndexOf(BREAK) + 1;
  const end = last > first ? last : from + data.length >= size && !skip ? data.length : first;
  return { from: from + first, to: from + end, size, text: new TextDecoder().decode(data.subarray(first, end)) };
}

interface LinesProps {
  name: string;
  rows: string[];
  /** Whether anything is loaded yet, and what stands below the lines. */
  note: string;
  follow: boolean;
  setFollow: (value: boolean) => void;
  /** A row to begin with, in the middle of the page; -1: the end. */
  start?: number;
  /** Loads more in front of what is there. */
  earlier?: { label: string; load: () => void };
  download: () => void;
  tools?: ComponentChildren;
  /** What "only these" does where more than the loaded lines can be searched. */
  searchAll?: { on: boolean; set: (text: string) => void };
}

const MOST_WRAPPED = 2000;

/** Lines of a log: search, follow, whole ids; wrapped, or with no more lines in the page than can be seen. */
export function LogLines({ name, rows, note, follow, setFollow, start = -1, earlier, download, tools, searchAll }: LinesProps) {
  const narrow = useStore(phone);
  const [find, setFind] = useQuery("find");
  const [onlyLocal, setOnly] = useState(false);
  const [whole, setWhole] = useState(false);
  const [wrapQuery, setWrap] = useQuery("wrap");
  const wrap = wrapQuery ? wrapQuery === "yes" : narrow;
  const [at, setAt] = useState(-1);
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const only = searchAll ? searchAll.on : onlyLocal;
  const low = find.toLowerCase();
  const hits = useMemo(() => (low ? rows.flatMap((line, index) => (line.toLowerCase().includes(low) ? [index] : [])) : []), [rows, low]);
  const shown = useMemo(() => (onlyLocal && low ? hits : rows.map((_, index) => index)), [onlyLocal, low, hits, rows]);
  const height = box.current?.clientHeight ?? 600;
  const first = wrap ? Math.max(0, shown.length - MOST_WRAPPED) : Math.max(0, Math.floor(top / LINE) - SPARE);
  const last = wrap ? shown.length : Math.min(shown.length, Math.ceil((top + height) / LINE) + SPARE);
  const goTo = (row: number) => {
    if (!box.current) return;
    const line = wrap ? box.current.querySelector<HTMLElement>(`[data-line="${row}"]`) : null;
    const from = line ? line.offsetTop - box.current.offsetTop : row * LINE;
    box.current.scrollTop = Math.max(0, from - box.current.clientHeight / 2);
  };
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [rows, follow, wrap]);
  useLayoutEffect(() => {
    if (start >= 0) goTo(start);
  }, [start >= 0]);
  const place = useRef({ first: "", rows: 0 });
  useLayoutEffect(() => {
    // what is put in front moves nothing that is read
    const { first: before, rows: count } = place.current;
    if (!wrap && !follow && box.current && count && rows[0] !== before && shown.length > count) box.current.scrollTop += (shown.length - count) * LINE;
    place.current = { first: rows[0] ?? "", rows: shown.length };
  }, [rows[0], shown.length]);
  const scrolled = (element: HTMLElement) => {
    const isUp = element.scrollTop < top; // else the lines have got other heights, as where they are wrapped
    setTop(element.scrollTop);
    if (isUp && element.scrollHeight - element.scrollTop - element.clientHeight > 2 * LINE) setFollow(false);
  };
  const jump = (step: number) => {
    if (!hits.length) return;
    const next = at < 0 ? (step > 0 ? 0 : hits.length - 1) : (at + step + hits.length) % hits.length;
    setAt(next);
    setFollow(false);
    goTo(onlyLocal ? next : hits[next]!);
  };
  return (
    <div class="log" data-log={name}>
      <div class="table-tools">
        <input
          class="find"
          type="search"
          placeholder="Search in what is loaded (Enter: next)"
          aria-label="Search in what is loaded"
          value={find}
          onInput={(event) => {
            setAt(-1);
            setFind(event.currentTarget.value);
          }}
          onKeyDown={(event) => event.key === "Enter" && jump(event.shiftKey ? -1 : 1)}
        />
        {find && <span class="dim" data-hits={hits.length}>{at < 0 ? "" : `${at + 1} of `}{hits.length} {hits.length === 1 ? "line" : "lines"}</span>}
        {find && (
          <>
            <button type="button" class="plain" onClick={() => jump(-1)} title="Previous">↑</button>
            <button type="button" class="plain" onClick={() => jump(1)} title="Next">↓</button>
          </>
        )}
        {(find || only) && <label class="check"><input type="checkbox" checked={only} data-toggle="only" onChange={(event) => (searchAll ? searchAll.set(event.currentTarget.checked ? find : "") : setOnly(event.currentTarget.checked))} /> only these</label>}
        {tools}
        <span class="spring" />
        <label class="check"><input type="checkbox" checked={wrap} data-toggle="wrap" onChange={(event) => setWrap(event.currentTarget.checked ? "yes" : "no")} /> wrap</label>
        <label class="check" title="of jobs, vertices and allocations, with all 32 digits"><input type="checkbox" checked={whole} onChange={(event) => setWhole(event.currentTarget.checked)} /> whole ids</label>
        <label class="check"><input type="checkbox" checked={follow} data-toggle="follow" onChange={(event) => setFollow(event.currentTarget.checked)} /> follow</label>
        {earlier && <button type="button" class="plain" data-action="earlier" onClick={() => (setFollow(false), setAt(-1), earlier.load())}>{earlier.label}</button>}
        <button type="button" class="plain" onClick={download}>Download</button>
      </div>
      <div class={`log-box ${wrap ? "wrapped" : ""}`} ref={box} tabIndex={0} role="region" aria-label={`Lines of ${name}`} onScroll={(event) => scrolled(event.currentTarget)}>
        <div class="log-inner" style={wrap ? {} : { height: `${shown.length * LINE}px` }}>
          <div style={wrap ? {} : { transform: `translateY(${first * LINE}px)` }}>
            {shown.slice(first, last).map((index) => <Line key={index} index={index} text={whole ? rows[index]! : shortIds(rows[index]!)} find={low} current={(hits[at] === index && low !== "") || index === start} />)}
          </div>
        </div>
      </div>
      <p class="dim">{note}{wrap && first > 0 && `; the last ${MOST_WRAPPED} lines are shown wrapped`}</p>
    </div>
  );
}

/** A file of a process: its end is loaded at first. */
export function LogView({ path, name }: { path: string; name: string }) {
  const [log, setLog] = useState<Loaded | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [follow, setFollow] = useState(true);
  const now = useRef<Loaded | undefined>(undefined);
  now.current = log;
  const attempt = async (work: () => Promise<void>) => {
    try {
      await work();
      setError(undefined);
    } catch (problem) {
      setError(problem instanceof ApiError ? problem : new ApiError(-1, String(problem), path));
    }
  };
  useEffect(() => {
    let alive = true;
    setLog(undefined);
    void attempt(async () => {
      const found = lines(await range(path, `bytes=-${PIECE}`));
      if (alive) setLog(found);
    });
    return () => {
      alive = false;
    };
  }, [path]);
  useEffect(() => {
    if (!follow) return;
    const timer = setInterval(() => {
      const before = now.current;
      if (!before || document.hidden) return;
      void attempt(async () => {
        const at = Math.max(0, before.to - 1); // the break that is known: so there is always something to answer
        const piece = await range(path, `bytes=${at}-`);
        if (now.current !== before) return;
        if (piece.whole || piece.from !== at || piece.size < before.to) setLog(lines(await range(path, `bytes=-${PIECE}`)));
        else {
          const more = lines(piece, before.to - at);
          if (more.to > before.to) setLog({ ...before, to: more.to, size: more.size, text: before.text + more.text });
        }
      });
    }, pollMs);
    return () => clearInterval(timer);
  }, [path, follow]);
  const earlier = () =>
    attempt(async () => {
      const before = now.current!;
      const piece = lines(await range(path, `bytes=${Math.max(0, before.from - 4 * PIECE)}-${before.from - 1}`));
      setLog({ ...before, from: piece.from, text: piece.text + before.text });
    });
  const rows = useMemo(() => linesOf(log?.text ?? ""), [log?.text]);
  const download = () =>
    attempt(async () => {
      saveAs(await (await request(path)).blob(), name);
    });
  return (
    <>
      <Trouble error={error} what="logs" />
      <LogLines
        name={name} rows={rows} follow={follow} setFollow={setFollow} download={download}
        note={!log ? (error ? "" : "Loading …") : log.size === 0 ? "This file is empty." : `${bytes(log.to - log.from)} of ${bytes(log.size)} loaded`}
        earlier={log && log.from > 0 ? { label: `Load earlier (${bytes(log.from)} before)`, load: earlier } : undefined}
      />
    </>
  );
}

const linesOf = (text: string): string[] => text.replace(/\n$/, "").split("\n");

/** As a file of the browser's. */
export function saveAs(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Ids of jobs and vertices have 32 digits: the first ones tell them apart, and leave room for what is said. */
const shortIds = (line: string): string => line.replace(/\b([0-9a-f]{6})[0-9a-f]{26}\b/g, "$1…");

function Line({ text, index, find, current }: { text: string; index: number; find: string; current: boolean }) {
  const kind = /\b(ERROR|CRITICAL)\b/.test(text) ? "log-error" : /\bWARN(ING)?\b/.test(text) ? "log-warning" : "";
  if (!find || !text.toLowerCase().includes(find)) return <div class={`log-line ${kind} ${current ? "current" : ""}`} data-line={index}>{text || " "}</div>;
  const pieces = [];
  let from = 0;
  for (let where = text.toLowerCase().indexOf(find); where >= 0; where = text.toLowerCase().indexOf(find, from)) {
    pieces.push(text.slice(from, where), <mark>{text.slice(where, where + find.length)}</mark>);
    from = where + find.length;
  }
  return <div class={`log-line ${kind} ${current ? "current" : ""}`} data-line={index}>{pieces}{text.slice(from)}</div>;
}
