// Hash routes: "#/jobs/<id>/overview?sort=busy". What is chosen on a page is in its address, so links can be shared.
import { Store, useStore } from "./store";

export interface Route {
  path: string[];
  query: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const pieces = path.split("/").filter(Boolean);
  return { path: pieces.map(decoded), query: new URLSearchParams(query) };
}

function decoded(piece: string): string {
  try {
    return decodeURIComponent(piece);
  } catch {
    return piece;
  }
}

export function href(path: string[], query?: Record<string, string>): string {
  const text = query ? new URLSearchParams(query).toString() : "";
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

const route = new Store<Route>({ path: [], query: new URLSearchParams() });

export function startRouter(): void {
  const read = () => route.set(parse(location.hash));
  addEventListener("hashchange", read);
  read();
}

export function useRoute(): Route {
  return useStore(route);
}

/** A value in the address; "" = not there. Setting it makes no entry in the browser's history. */
export function useQuery(name: string): [string, (value: string) => void] {
  const { query } = useRoute();
  const set = (value: string) => {
    const { path, query: now } = parse(location.hash);
    if (value) now.set(name, value);
    else now.delete(name);
    history.replaceState(null, "", href(path, Object.fromEntries(now)));
    route.set(parse(location.hash));
  };
  return [query.get(name) ?? "", set];
}

export function go(path: string[], query?: Record<string, string>): void {
  location.hash = href(path, query);
}
