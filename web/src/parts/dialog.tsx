import { useEffect, useRef, type ReactNode } from "react";

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
}

/** A dialog over the page: the keyboard stays inside, Escape closes it, and the focus returns to where it was. */
export function Dialog({ title, onClose, children }: Props) {
  const shown = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    shown.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog ref={shown} aria-labelledby="dialog-title" onClose={onClose}>
      <header>
        <h2 id="dialog-title">{title}</h2>
        <button type="button" className="plain" onClick={() => shown.current?.close()} aria-label="Close">
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}
