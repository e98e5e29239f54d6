import { useEffect, useState } from "react";

type Theme = "system" | "light" | "dark";
const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const KEY = "wtb-theme";

/** Changes between the colours of the system, light and dark ones. */
export function ThemeButton() {
  const [theme, setTheme] = useState<Theme>(stored);
  useEffect(() => {
    localStorage.setItem(KEY, theme);
    showTheme();
  }, [theme]);
  return (
    <button
      type="button"
      className="plain theme"
      onClick={() => setTheme(NEXT[theme])}
      title="Change the colours of the page"
      aria-label={`Colours: ${theme}`}
    >
      <span className="wide-only">Colours: </span>
      {theme}
    </button>
  );
}

/** Show the colours that were chosen: also before anything is drawn, so that a dark page does not begin white. */
export function showTheme(): void {
  const theme = stored();
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
}

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}
