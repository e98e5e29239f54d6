/** A drawing of nodes and edges that can be moved, zoomed, and walked through with the keyboard. */
import {
  Background,
  Controls,
  Handle,
  MarkerType,
  Position,
  ReactFlow,
  type Node,
  type NodeProps,
} from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { useMemo } from "react";
import { Loading } from "../../../parts/loading";
import type { Layout, Request } from "./layered";
import type { Drawing, Link, Shape } from "./model";
import { RouteLine, type RouteEdge } from "./route-edge";
import { useLayout } from "./use-layout";
import "./graph.css";

const WIDTH = 150;
const END_WIDTH = 84;
const HEIGHT = 50;

type ShapeNode = Node<{ shape: Shape }, "shape">;
const NODE_TYPES = { shape: ShapeCard };
const EDGE_TYPES = { route: RouteLine };
/** On wide screens the graph goes from the left to the right. */
const WIDE_PX = 900;
/** So many screens of nodes can still be read when they are made to fit into one. */
const SCREENS = 4;
const FEW = 12;

interface Props {
  drawing: Drawing;
  /** The id of the chosen shape. */
  chosen: string | null;
  onChoose?: (shape: Shape) => void;
  /** Whether the graph goes from the top down also on wide screens. */
  isTall?: boolean;
}

export function Flow({ drawing, chosen, onChoose, isTall = false }: Props) {
  const direction: Request["direction"] = !isTall && window.innerWidth >= WIDE_PX ? "LR" : "TB";
  const request = useMemo(
    () => ({
      boxes: drawing.shapes.map((shape) => ({ id: shape.id, width: widthOf(shape), height: HEIGHT })),
      links: drawing.links.map((link) => ({ ...link, label: labelOf(link, direction) })),
      direction,
    }),
    [drawing, direction],
  );
  const layout = useLayout(request);
  const nodes = useMemo(
    () =>
      drawing.shapes.map((shape): ShapeNode => ({
        id: shape.id,
        type: "shape",
        position: layout?.places[shape.id] ?? { x: 0, y: 0 },
        data: { shape },
        width: widthOf(shape),
        height: HEIGHT,
        selected: shape.id === chosen,
        focusable: onChoose !== undefined && shape.node !== "",
        ariaLabel: `${shape.title}${shape.text === "" ? "" : `: ${shape.text}`}`,
      })),
    [drawing, layout, chosen, onChoose],
  );
  const edges = useMemo(
    () => drawing.links.map((link) => edgeOf(link, layout, direction)),
    [drawing, layout, direction],
  );
  if (layout === null) return <Loading what="the layout of the graph" />;
  return (
    <>
      {layout.isSimple && (
        <p className="note note-warn">The layout took too long. The graph is drawn in simple layers instead.</p>
      )}
      <div className="graph-frame" style={{ aspectRatio: ratioOf(layout) }}>
        <ReactFlow<ShapeNode, RouteEdge>
          nodes={nodes}
          edges={edges}
          nodeTypes={NODE_TYPES}
          edgeTypes={EDGE_TYPES}
          fitView
          fitViewOptions={{ padding: 0.12, maxZoom: 1.1, nodes: firstOf(drawing, layout) }}
          minZoom={0.05}
          nodesDraggable={false}
          nodesConnectable={false}
          edgesFocusable={false}
          preventScrolling={false}
          zoomOnScroll={false}
          panOnScroll={false}
          onlyRenderVisibleElements={drawing.shapes.length > 200}
          onNodeClick={(_, node) => onChoose?.(node.data.shape)}
          onKeyDown={(event) => {
            const id = (event.target as HTMLElement).dataset["id"];
            const shape = drawing.shapes.find((each) => each.id === id);
            if ((event.key === "Enter" || event.key === " ") && shape !== undefined) onChoose?.(shape);
          }}
          aria-label="Graph; Tab moves between the nodes, Enter shows one"
        >
          <Background />
          <Controls showInteractive={false} />
        </ReactFlow>
      </div>
    </>
  );
}

function edgeOf(link: Link, layout: Layout | null, direction: Request["direction"]): RouteEdge {
  return {
    id: link.id,
    type: "route",
    source: link.source,
    target: link.target,
    data: { route: layout?.routes[link.id] },
    label: labelOf(link, direction),
    className: link.isJoin ? "graph-join" : undefined,
    markerEnd: { type: MarkerType.ArrowClosed, width: 16, height: 16, color: "var(--quiet)" },
  };
}

function widthOf(shape: Shape): number {
  return shape.node === "" ? END_WIDTH : WIDTH;
}

/** A graph that would be too small to be read as a whole is shown from its beginning; undefined for all others. */
function firstOf(drawing: Drawing, layout: Layout): { id: string }[] | undefined {
  const places = Object.values(layout.places);
  const isLarge =
    Math.max(...places.map((place) => place.x)) > SCREENS * window.innerWidth ||
    Math.max(...places.map((place) => place.y)) > SCREENS * window.innerHeight;
  return isLarge ? drawing.shapes.slice(0, FEW).map(({ id }) => ({ id })) : undefined;
}

/** The frame has the form of the graph, within limits that the sheet sets. */
function ratioOf(layout: Layout): number {
  const places = Object.values(layout.places);
  const width = Math.max(...places.map((place) => place.x)) + WIDTH;
  const height = Math.max(...places.map((place) => place.y)) + HEIGHT;
  return (width * 1.1) / (height + 120);
}

/** The label of an edge, cut to the room that it has: beside a box there is less than between two. */
function labelOf({ label, source, target }: Link, direction: Request["direction"]): string {
  const most = source === target && direction === "TB" ? 14 : 30;
  return label.length > most ? `${label.slice(0, most)} …` : label;
}

function ShapeCard({ data: { shape }, selected }: NodeProps<ShapeNode>) {
  return (
    <div className={`graph-node graph-${shape.tone} ${shape.node === "" ? "graph-end" : ""}`} data-chosen={selected}>
      <Handle type="target" position={Position.Top} isConnectable={false} />
      <strong title={shape.title}>{shape.title}</strong>
      {shape.text !== "" && <span>{shape.text}</span>}
      <Handle type="source" position={Position.Bottom} isConnectable={false} />
    </div>
  );
}
