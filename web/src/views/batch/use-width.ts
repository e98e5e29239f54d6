import { useEffect, useLayoutEffect, useState, type RefObject } from "react";

/** The width inside an element, also after it has changed. It is known before the first picture is drawn. */
export function useWidth(element: RefObject<HTMLElement | null>, first: number): number {
  const [width, setWidth] = useState(first);
  useLayoutEffect(() => {
    if (element.current === null) return;
    const { paddingLeft, paddingRight } = getComputedStyle(element.current);
    setWidth(Math.max(1, element.current.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight)));
  }, [element]);
  useEffect(() => {
    const watched = element.current;
    if (watched === null) return;
    const observer = new ResizeObserver(([entry]) => entry !== undefined && setWidth(entry.contentRect.width));
    observer.observe(watched);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
