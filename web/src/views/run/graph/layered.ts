/** A layout that always ends: layers by the distance from the start, and places in a layer by order. */
export interface Box {
  id: string;
  width: number;
  height: number;
}

export interface Place {
  x: number;
  y: number;
}

export interface Request {
  boxes: readonly Box[];
  links: readonly { id: string; source: string; target: string; label: string }[];
  /** From the left to the right, or from the top down. */
  direction: "LR" | "TB";
}

export type Places = Record<string, Place>;

/** The way of an edge, and the middle of its label. */
export interface Route {
  points: readonly Place[];
  label: Place | null;
}

export interface Layout {
  places: Places;
  /** The ways of the edges by their ids; an edge without one is drawn straight. */
  routes: Record<string, Route>;
}

const GAP_X = 40;
const GAP_Y = 50;

export function layered({ boxes, links, direction }: Request): Layout {
  const following = new Map<string, string[]>();
  const hasSource = new Set<string>();
  for (const { source, target } of links) {
    following.set(source, [...(following.get(source) ?? []), target]);
    hasSource.add(target);
  }
  const layers = new Map<string, number>();
  const visit = (begin: string) => {
    const waiting: [string, number][] = [[begin, 0]];
    for (let entry = waiting.shift(); entry !== undefined; entry = waiting.shift()) {
      const [id, layer] = entry;
      if (layers.has(id)) continue;
      layers.set(id, layer);
      for (const next of following.get(id) ?? []) waiting.push([next, layer + 1]);
    }
  };
  for (const box of boxes) if (!hasSource.has(box.id)) visit(box.id);
  for (const box of boxes) visit(box.id); // those that only lie on circles
  return { places: placed(boxes, layers, direction), routes: {} };
}

const DROP = 30;

/** The way of an edge from a box back to itself: out of its bottom at the right, and in at the left. */
export function loopBelow(box: Box, at: Place): Route {
  const bottom = at.y + box.height;
  const [right, left] = [at.x + box.width * 0.75, at.x + box.width * 0.25];
  const points = [
    { x: right, y: bottom },
    { x: right, y: bottom + DROP },
    { x: left, y: bottom + DROP },
    { x: left, y: bottom },
  ];
  return { points, label: { x: at.x + box.width / 2, y: bottom + DROP } };
}

function placed(boxes: readonly Box[], layers: ReadonlyMap<string, number>, direction: Request["direction"]): Places {
  const widths = new Map<number, number>();
  const places: Places = {};
  for (const box of boxes) {
    const layer = layers.get(box.id) ?? 0;
    const along = widths.get(layer) ?? 0;
    const isDown = direction === "TB";
    const across = layer * ((isDown ? box.height : box.width) + GAP_Y);
    places[box.id] = isDown ? { x: along, y: across } : { x: across, y: along };
    widths.set(layer, along + (isDown ? box.width : box.height) + GAP_X);
  }
  return places;
}
