/** Computes a layout beside the page, which stays usable and may give up on it. */
import { Graph, layout } from "@dagrejs/dagre";
import { CHARACTER, loopOf, type Layout, type Place, type Request } from "./layered";

self.onmessage = ({ data }: MessageEvent<Request>) => {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: data.direction, nodesep: 30, ranksep: 44, edgesep: 18 });
  for (const box of data.boxes) graph.setNode(box.id, { width: box.width, height: box.height });
  const between = data.links.filter(({ source, target }) => source !== target);
  for (const { id, source, target, label } of between) {
    const size = label === "" ? {} : { width: label.length * CHARACTER + 8, height: 18, labelpos: "c" };
    graph.setEdge(source, target, size, id);
  }
  layout(graph);
  const found: Layout = { places: {}, routes: {} };
  for (const box of data.boxes) {
    const { x, y } = graph.node(box.id) as Place;
    found.places[box.id] = { x: x - box.width / 2, y: y - box.height / 2 };
  }
  for (const { id, source, target } of between) {
    const edge = graph.edge(source, target, id) as { points?: Place[]; x?: number; y?: number };
    const hasLabel = edge.x !== undefined && edge.y !== undefined;
    found.routes[id] = { points: edge.points ?? [], label: hasLabel ? { x: edge.x!, y: edge.y! } : null };
  }
  for (const { id, source, target, label } of data.links) {
    const box = data.boxes.find((each) => each.id === source);
    if (source === target && box !== undefined)
      found.routes[id] = loopOf(box, found.places[source]!, data.direction, label);
  }
  self.postMessage(found);
};
