// Builds the page that paints a dashboard. Nothing is served by vite itself: shoot.mjs serves what is built.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic" },
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
  build: { chunkSizeWarningLimit: 20_000, sourcemap: false, minify: false, target: "chrome120" },
  logLevel: "warn",
});
