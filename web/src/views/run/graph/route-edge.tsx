import { BaseEdge, getBezierPath, type Edge, type EdgeProps } from "@xyflow/react";
import type { Place, Route } from "./layered";

export type RouteEdge = Edge<{ route: Route | undefined }, "route">;

/** An edge along the way that the layout found for it, so that it passes beside the nodes, not behind them. */
export function RouteLine(props: EdgeProps<RouteEdge>) {
  const route = props.data?.route;
  const [straight, straightX, straightY] = getBezierPath(props);
  const hasRoute = route !== undefined && route.points.length > 1;
  return (
    <BaseEdge
      id={props.id}
      path={hasRoute ? smooth(route.points) : straight}
      markerEnd={props.markerEnd}
      label={props.label === "" ? undefined : props.label}
      labelX={route?.label?.x ?? straightX}
      labelY={route?.label?.y ?? straightY}
    />
  );
}

/** Return a line through points whose corners are round. */
export function smooth(points: readonly Place[]): string {
  const [first, ...rest] = points;
  if (first === undefined) return "";
  const last = rest.at(-1) ?? first;
  const curves = rest.slice(0, -1).map((point, at) => {
    const next = rest[at + 1] ?? point;
    const isEnd = at === rest.length - 2;
    const to = isEnd ? last : { x: (point.x + next.x) / 2, y: (point.y + next.y) / 2 };
    return `Q${point.x} ${point.y} ${to.x} ${to.y}`;
  });
  return `M${first.x} ${first.y}${curves.length === 0 ? `L${last.x} ${last.y}` : curves.join("")}`;
}
