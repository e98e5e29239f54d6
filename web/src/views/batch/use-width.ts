import { useEffect, useState, type RefObject } from "react";

/** The width of an element, also after it has changed. */
export function useWidth(element: RefObject<HTMLElement | null>, first: number): number {
  const [width, setWidth] = useState(first);
  useEffect(() => {
    const watched = element.current;
    if (watched === null) return;
    const observer = new ResizeObserver(([entry]) => entry !== undefined && setWidth(entry.contentRect.width));
    observer.observe(watched);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
