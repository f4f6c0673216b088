// Where the vertices of a job's graph stand: from left to right, by dagre.
import * as dagre from "@dagrejs/dagre";
import type { PlanNode } from "./types";

export const WIDTH = 284;
export const HEIGHT = 148;

export interface Place {
  id: string;
  x: number;
  y: number;
}
export interface Link {
  from: string;
  to: string;
  strategy: string;
  points: { x: number; y: number }[];
}
export interface Layout {
  places: Place[];
  links: Link[];
  width: number;
  height: number;
}

/** Places are upper left corners; links end at the edges of their vertices. */
export function layout(nodes: PlanNode[]): Layout {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: 36, ranksep: 120, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) graph.setNode(node.id, { width: WIDTH, height: HEIGHT });
  const known = new Set(nodes.map((node) => node.id));
  const edges: { from: string; to: string; name: string; strategy: string }[] = [];
  for (const node of nodes)
    (node.inputs ?? []).forEach((input, index) => {
      if (known.has(input.id)) edges.push({ from: input.id, to: node.id, name: String(index), strategy: input.ship_strategy ?? "" });
    });
  for (const edge of edges) graph.setEdge(edge.from, edge.to, {}, edge.name);
  dagre.layout(graph);
  const size = graph.graph() as { width?: number; height?: number };
  return {
    places: nodes.map((node) => {
      const { x, y } = graph.node(node.id) as { x: number; y: number };
      return { id: node.id, x: x - WIDTH / 2, y: y - HEIGHT / 2 };
    }),
    links: edges.map(({ from, to, name, strategy }) => {
      const { points } = graph.edge({ v: from, w: to, name }) as { points: { x: number; y: number }[] };
      return { from, to, strategy, points };
    }),
    width: size.width ?? 0,
    height: size.height ?? 0,
  };
}

/** A smooth line through points. */
export function path(points: { x: number; y: number }[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let text = `M${first.x},${first.y}`;
  let before = first;
  for (const point of rest) {
    const middle = (before.x + point.x) / 2;
    text += ` C${middle},${before.y} ${middle},${point.y} ${point.x},${point.y}`;
    before = point;
  }
  return text;
}
