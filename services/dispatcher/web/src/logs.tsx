// Log files: only the end is loaded at first, then what is asked for; search, follow, download.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, pollMs, request } from "./api";
import { bytes } from "./format";
import { Trouble } from "./parts";
import { useQuery } from "./router";

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

export function LogView({ path, name }: { path: string; name: string }) {
  const [log, setLog] = useState<Loaded | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [find, setFind] = useQuery("find");
  const [only, setOnly] = useState(false);
  const [follow, setFollow] = useState(true);
  const [whole, setWhole] = useState(false);
  const [at, setAt] = useState(-1);
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
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
      setFollow(false);
      setAt(-1);
      const before = now.current!;
      const piece = lines(await range(path, `bytes=${Math.max(0, before.from - 4 * PIECE)}-${before.from - 1}`));
      setLog({ ...before, from: piece.from, text: piece.text + before.text });
    });
  const rows = useMemo(() => (log?.text ?? "").replace(/\n$/, "").split("\n"), [log?.text]);
  const low = find.toLowerCase();
  const hits = useMemo(() => (low ? rows.flatMap((line, index) => (line.toLowerCase().includes(low) ? [index] : [])) : []), [rows, low]);
  const shown = useMemo(() => (only && low ? hits : rows.map((_, index) => index)), [only, low, hits, rows]);
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log?.text, follow]);
  const place = useRef({ from: 0, rows: 0 });
  useLayoutEffect(() => {
    // what is put in front moves nothing that is read
    if (log && box.current && log.from < place.current.from) box.current.scrollTop += (shown.length - place.current.rows) * LINE;
    place.current = { from: log?.from ?? 0, rows: shown.length };
  }, [log?.from, shown.length]);
  const scrolled = (element: HTMLElement) => {
    setTop(element.scrollTop);
    if (element.scrollHeight - element.scrollTop - element.clientHeight > 2 * LINE) setFollow(false);
  };
  const jump = (step: number) => {
    if (!hits.length) return;
    const next = at < 0 ? (step > 0 ? 0 : hits.length - 1) : (at + step + hits.length) % hits.length;
    setAt(next);
    setFollow(false);
    const row = only ? next : hits[next]!;
    if (box.current) box.current.scrollTop = Math.max(0, row * LINE - box.current.clientHeight / 2);
  };
  const download = () =>
    attempt(async () => {
      saveAs(await (await request(path)).blob(), name);
    });
  const height = box.current?.clientHeight ?? 600;
  const first = Math.max(0, Math.floor(top / LINE) - SPARE);
  const last = Math.min(shown.length, Math.ceil((top + height) / LINE) + SPARE);
  return (
    <div class="log" data-log={name}>
      <Trouble error={error} what="logs" />
      <div class="table-tools">
        <input
          class="find"
          type="search"
          placeholder="Search in what is loaded (Enter: next)"
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
            <label class="check"><input type="checkbox" checked={only} onChange={(event) => setOnly(event.currentTarget.checked)} /> only these</label>
          </>
        )}
        <span class="spring" />
        <label class="check" title="of jobs, vertices and allocations, with all 32 digits"><input type="checkbox" checked={whole} onChange={(event) => setWhole(event.currentTarget.checked)} /> whole ids</label>
        <label class="check"><input type="checkbox" checked={follow} data-toggle="follow" onChange={(event) => setFollow(event.currentTarget.checked)} /> follow</label>
        {log && log.from > 0 && <button type="button" class="plain" onClick={earlier}>Load earlier ({bytes(log.from)} before)</button>}
        <button type="button" class="plain" onClick={download}>Download</button>
      </div>
      <div class="log-box" ref={box} tabIndex={0} onScroll={(event) => scrolled(event.currentTarget)}>
        <div class="log-inner" style={{ height: `${shown.length * LINE}px` }}>
          <div style={{ transform: `translateY(${first * LINE}px)` }}>
            {shown.slice(first, last).map((index) => <Line key={index} text={whole ? rows[index]! : shortIds(rows[index]!)} find={low} current={hits[at] === index && low !== ""} />)}
          </div>
        </div>
      </div>
      <p class="dim">{!log ? "Loading …" : log.size === 0 ? "This file is empty." : `${bytes(log.to - log.from)} of ${bytes(log.size)} loaded`}</p>
    </div>
  );
}

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

function Line({ text, find, current }: { text: string; find: string; current: boolean }) {
  const kind = /\b(ERROR|CRITICAL)\b/.test(text) ? "log-error" : /\bWARN(ING)?\b/.test(text) ? "log-warning" : "";
  if (!find || !text.toLowerCase().includes(find)) return <div class={`log-line ${kind}`}>{text || " "}</div>;
  const pieces = [];
  let from = 0;
  for (let where = text.toLowerCase().indexOf(find); where >= 0; where = text.toLowerCase().indexOf(find, from)) {
    pieces.push(text.slice(from, where), <mark>{text.slice(where, where + find.length)}</mark>);
    from = where + find.length;
  }
  return <div class={`log-line ${kind} ${current ? "current" : ""}`}>{pieces}{text.slice(from)}</div>;
}
