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
/** The width of a letter of a label. */
export const CHARACTER = 7;

/** The way of an edge from a box back to itself, on a side that other edges leave free. */
export function loopOf(box: Box, at: Place, direction: Request["direction"], label: string): Route {
  return direction === "LR" ? loopBelow(box, at) : loopBeside(box, at, label);
}

/** Out at the right, below the middle, and in above it. */
function loopBeside(box: Box, at: Place, label: string): Route {
  const right = at.x + box.width;
  const [low, high] = [at.y + box.height * 0.75, at.y + box.height * 0.25];
  const points = [
    { x: right, y: low },
    { x: right + DROP, y: low },
    { x: right + DROP, y: high },
    { x: right, y: high },
  ];
  const below = { x: right - DROP / 2 + (label.length * CHARACTER) / 2, y: at.y + box.height + 12 };
  return { points, label: below };
}

/** Out of the bottom at the right, and in at the left. */
function loopBelow(box: Box, at: Place): Route {
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
