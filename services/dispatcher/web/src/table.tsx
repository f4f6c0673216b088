// Tables: sorted, filtered, and with no more rows in the page than can be seen.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { useQuery } from "./router";
import { phone, useStore } from "./store";

export interface Column<Row> {
  key: string;
  title: string;
  /** By which rows are sorted and filtered. */
  value: (row: Row) => string | number;
  show?: (row: Row) => ComponentChildren;
  number?: boolean;
  help?: string;
  /** Share of the width; 1 = that of a number. */
  wide?: number;
}

interface Props<Row> {
  /** Sets the names of its values in the address apart from those of other tables. */
  name: string;
  columns: Column<Row>[];
  rows: Row[];
  id: (row: Row) => string;
  sort?: string;
  filter?: boolean | string;
  open?: (row: Row) => void;
  chosen?: string;
  empty?: string;
  height?: number;
  tools?: ComponentChildren;
}

const ROW = 34;
/** Height of a row as a card: its first cell, and lines of two cells each. */
const CARD_FIRST = 40;
const CARD_LINE = 42;
const SPARE = 8;
/** Pixels that a column needs for a number. */
const UNIT = 64;

export function sorted<Row>(rows: Row[], column: Column<Row> | undefined, down: boolean): Row[] {
  if (!column) return rows;
  const sign = down ? -1 : 1;
  const missing = (value: string | number) => value === "" || (typeof value === "number" && Number.isNaN(value));
  return rows
    .map((row, index) => ({ row, index, value: column.value(row) }))
    .sort((a, b) => {
      if (missing(a.value) || missing(b.value)) return Number(missing(a.value)) - Number(missing(b.value)) || a.index - b.index;
      const order =
        typeof a.value === "number" && typeof b.value === "number" ? a.value - b.value : String(a.value).localeCompare(String(b.value));
      return order * sign || a.index - b.index;
    })
    .map(({ row }) => row);
}

export function matches(text: string, wanted: string): boolean {
  const found = text.toLowerCase();
  return wanted.toLowerCase().split(/\s+/).every((word) => found.includes(word));
}

export function Table<Row>(props: Props<Row>) {
  const { name, columns, rows, id, height = 560 } = props;
  const [sortText, setSort] = useQuery(`${name}-sort`);
  const [wanted, setWanted] = useQuery(`${name}-find`);
  const chosen = sortText || props.sort || "";
  const down = chosen.startsWith("-");
  const column = columns.find((one) => one.key === chosen.replace("-", ""));
  const shown = useMemo(() => {
    const found = wanted ? rows.filter((row) => matches(columns.map((one) => one.value(row)).join(" "), wanted)) : rows;
    return sorted(found, column, down);
  }, [rows, wanted, chosen]);
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [space, setSpace] = useState(height);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setSpace(element.clientHeight);
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  const cards = useStore(phone);
  const rowHeight = cards ? CARD_FIRST + Math.ceil((columns.length - 1) / 2) * CARD_LINE : ROW;
  const first = Math.max(0, Math.floor(top / rowHeight) - SPARE);
  const last = Math.min(shown.length, Math.ceil((top + space) / rowHeight) + SPARE);
  const total = columns.reduce((sum, one) => sum + (one.wide ?? 1), 0);
  const press = (one: Column<Row>) => {
    const natural = one.number ? `-${one.key}` : one.key;
    const other = one.number ? one.key : `-${one.key}`;
    setSort(chosen === natural ? other : natural);
  };
  return (
    <div class="table-frame">
      {((props.filter && (rows.length > 0 || wanted)) || props.tools || (cards && rows.length > 1)) && (
        <div class="table-tools">
          {props.filter && (rows.length > 0 || wanted) && (
            <input
              class="find"
              type="search"
              placeholder={typeof props.filter === "string" ? props.filter : "Filter"}
              aria-label="Filter"
              value={wanted}
              onInput={(event) => setWanted(event.currentTarget.value)}
            />
          )}
          {props.filter && wanted && (
            <span class="dim">
              {shown.length} of {rows.length}
            </span>
          )}
          {cards && rows.length > 1 && (
            <label class="inline">
              Sort by
              <select value={chosen} onChange={(event) => setSort(event.currentTarget.value)}>
                {!chosen && <option value="">–</option>}
                {columns.flatMap((one) => [one.key, `-${one.key}`].map((key) => <option key={key} value={key}>{one.title || one.help || one.key} {key.startsWith("-") ? "▾" : "▴"}</option>))}
              </select>
            </label>
          )}
          {props.tools}
        </div>
      )}
      <div class="table-box" ref={box} style={{ maxHeight: `${height}px` }} onScroll={(event) => setTop(event.currentTarget.scrollTop)}>
        <table role="table" aria-rowcount={shown.length} data-name={name} class={cards ? "cards" : ""} style={cards ? {} : { minWidth: `${Math.round(total * UNIT)}px` }}>
          <colgroup>
            {columns.map((one) => (
              <col key={one.key} style={{ width: `${((one.wide ?? 1) / total) * 100}%` }} />
            ))}
          </colgroup>
          <thead>
            <tr>
              {columns.map((one) => (
                <th
                  key={one.key}
                  class={one.number ? "number" : ""}
                  aria-sort={column === one ? (down ? "descending" : "ascending") : "none"}
                  title={one.help}
                >
                  <button type="button" onClick={() => press(one)} aria-label={one.title ? undefined : one.help || one.key}>
                    {one.title}
                    <span class="arrow">{column === one ? (down ? "▾" : "▴") : ""}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {first > 0 && <tr class="spacer" style={{ height: `${first * rowHeight}px` }} />}
            {shown.slice(first, last).map((row) => {
              const key = id(row);
              const open = props.open && (() => props.open?.(row));
              return (
                <tr
                  key={key}
                  role="row"
                  data-row={key}
                  style={cards ? { height: `${rowHeight}px` } : undefined}
                  class={`${open ? "opens" : ""} ${key === props.chosen ? "chosen" : ""}`}
                  tabIndex={open ? 0 : undefined}
                  onClick={open && ((event) => (event.target as Element).closest("a, button") || open())}
                  onKeyDown={open && ((event) => event.key === "Enter" && event.target === event.currentTarget && open())}
                >
                  {columns.map((one) => (
                    <td key={one.key} role="cell" class={one.number ? "number" : ""} data-title={cards ? one.title.replaceAll("\u200b", "") : undefined}>
                      {one.show ? one.show(row) : one.value(row)}
                    </td>
                  ))}
                </tr>
              );
            })}
            {last < shown.length && <tr class="spacer" style={{ height: `${(shown.length - last) * rowHeight}px` }} />}
          </tbody>
        </table>
        {shown.length === 0 && <p class="empty">{wanted && rows.length ? "Nothing matches the filter." : (props.empty ?? "Nothing here.")}</p>}
      </div>
    </div>
  );
}
