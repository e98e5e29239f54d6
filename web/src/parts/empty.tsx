import type { ReactNode } from "react";

/** What stands where nothing is to be seen yet: what that means, and what to do first. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <section className="empty">
      <h2>{title}</h2>
      {children !== undefined && <div>{children}</div>}
    </section>
  );
}
