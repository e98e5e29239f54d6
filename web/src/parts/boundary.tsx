import { Component, type ReactNode } from "react";

/** Shows a fault of the page itself where it happened, so that the rest stays usable. */
export class Boundary extends Component<{ children: ReactNode }, { fault: Error | null }> {
  override state = { fault: null as Error | null };

  static getDerivedStateFromError(fault: Error) {
    return { fault };
  }

  override render() {
    if (this.state.fault === null) return this.props.children;
    return (
      <section className="note note-error" role="alert">
        <h2>This view cannot be shown</h2>
        <p>{this.state.fault.message}</p>
        <button type="button" onClick={() => location.reload()}>
          Load the page again
        </button>
      </section>
    );
  }
}
