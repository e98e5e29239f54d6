import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

/** The page is built into the Python package, which serves it under a policy that allows only files of its own. */
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/wtb/api/page_files",
    emptyOutDir: true,
    assetsInlineLimit: 0, // nothing inline: the policy allows no data: scripts, styles or fonts
    modulePreload: { polyfill: false },
    target: "es2022",
    license: false,
  },
  server: {
    // `npm run dev` beside `wtb serve`: the session's cookie and the checks of Host and Origin stay as they are.
    proxy: { "/api": { target: "http://127.0.0.1:8383", changeOrigin: true, ws: true } },
  },
  test: { include: ["tests/**/*.test.{ts,tsx}"] },
});
