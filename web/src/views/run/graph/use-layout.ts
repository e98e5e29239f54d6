import { useEffect, useState } from "react";
import { layered, type Layout, type Request } from "./layered";

const DEADLINE_MS = 3_000;

export interface Shown extends Layout {
  /** Whether the good layout took too long, so that a simple one is shown. */
  isSimple: boolean;
}

/** Return the layout of a drawing, computed by a worker. Until a new one is known the last one stays; null at first. */
export function useLayout(request: Request): Shown | null {
  const text = JSON.stringify(request);
  const [shown, setShown] = useState<Shown | null>(null);
  useEffect(() => {
    const wanted = JSON.parse(text) as Request;
    const worker = new Worker(new URL("./layout-worker.ts", import.meta.url), { type: "module" });
    const end = (layout: Layout, isSimple: boolean) => {
      clearTimeout(timer);
      worker.terminate();
      setShown({ ...layout, isSimple });
    };
    const timer = setTimeout(() => end(layered(wanted), true), DEADLINE_MS);
    worker.onmessage = ({ data }: MessageEvent<Layout>) => end(data, false);
    worker.onerror = () => end(layered(wanted), true);
    worker.postMessage(wanted);
    return () => {
      clearTimeout(timer);
      worker.terminate();
    };
  }, [text]);
  return shown;
}
