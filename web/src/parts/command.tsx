import { useState } from "react";

/** The command that does or shows the same, to be copied. */
export function Command({ text, label = "On the command line" }: { text: string; label?: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <p className="command">
      <span className="quiet">{label}:</span> <code>{text}</code>{" "}
      <button type="button" className="plain" onClick={() => void copy()} aria-label={`Copy the command: ${text}`}>
        {isCopied ? "Copied" : "Copy"}
      </button>
    </p>
  );
}

/** Return a word as a shell takes it. */
export function quoted(word: string): string {
  return /^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
