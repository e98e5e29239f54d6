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
    // Escape and the cross leave it to React to take the dialog away. One that has closed itself is out of sight before
    // its event comes, and a key in between that opens the next one would be lost.
    <dialog
      ref={shown}
      aria-labelledby="dialog-title"
      onClose={onClose}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header>
        <h2 id="dialog-title">{title}</h2>
        <button type="button" className="plain" onClick={onClose} aria-label="Close">
          ✕
        </button>
      </header>
      {children}
    </dialog>
  );
}
