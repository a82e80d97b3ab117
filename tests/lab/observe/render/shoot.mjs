// Takes a picture of each page: shoot.mjs PAGES OUT, where PAGES holds NAME.json and OUT gets NAME.png.
// Prints one JSON line for each: its name, and what is wrong with it. Ends its browser whatever happens.
import { createServer } from "node:http";
import { existsSync } from "node:fs";
import { mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import puppeteer from "puppeteer-core";

const HERE = import.meta.dirname;
const PUBLIC = join(HERE, "node_modules/@grafana/ui/dist/public");
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json" };
// No phoning home: this browser shows one page of this machine.
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb", "--disable-dev-shm-usage",
];

async function browserPath() {
  const named = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
  return named.find((path) => path && existsSync(path)) ?? (await (await import("@sparticuz/chromium")).default.executablePath());
}

function fileFor(path, page) {
  if (path === "/page.json") {
    return page;
  }
  // Icons: Grafana's server has them under public/build.
  const icon = path.match(/public\/build\/(img\/.*)$/);
  return icon ? join(PUBLIC, normalize(icon[1])) : join(HERE, "dist", normalize(path === "/" ? "/index.html" : path));
}

async function main([pages, out]) {
  let page = "";
  const server = createServer(async (request, response) => {
    try {
      const file = fileFor(decodeURIComponent(new URL(request.url, "http://localhost").pathname), page);
      const content = await readFile(file);
      response.writeHead(200, { "content-type": TYPES[extname(file)] ?? "application/octet-stream" }).end(content);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const profile = await mkdtemp(join(tmpdir(), "observe-"));
  // A locale such as C or POSIX becomes a language tag that Intl refuses.
  const env = { ...process.env, LANG: "en_US.UTF-8", LC_ALL: "en_US.UTF-8", LANGUAGE: "en_US" };
  const browser = await puppeteer.launch({ executablePath: await browserPath(), args: FLAGS, userDataDir: profile, headless: true, env });
  try {
    for (const name of (await readdir(pages)).filter((file) => file.endsWith(".json")).sort()) {
      page = join(pages, name);
      const { width } = JSON.parse(await readFile(page, "utf8"));
      const tab = await browser.newPage();
      const errors = [];
      tab.on("pageerror", (error) => errors.push(String(error.stack ?? error)));
      if (process.env.OBSERVE_DEBUG) {
        tab.on("console", (message) => console.error(message.text()));
        tab.on("requestfailed", (request) => console.error("failed", request.url()));
      }
      await tab.setViewport({ width, height: 1000, deviceScaleFactor: 1 });
      await tab.goto(`http://127.0.0.1:${server.address().port}/`, { waitUntil: "load" });
      await tab.waitForFunction("window.painted", { timeout: 20_000, polling: 100 }).catch((error) => {
        throw new Error(`${name} was not painted: ${errors.join("; ") || error.message}`);
      });
      const { height, problems } = await tab.evaluate("window.painted");
      await tab.setViewport({ width, height: Math.max(Math.ceil(height), 100), deviceScaleFactor: 1 });
      await new Promise((resolve) => setTimeout(resolve, 500));
      const picture = name.replace(/json$/, "png");
      await tab.screenshot({ path: join(out, picture), type: "png" });
      await tab.close();
      console.log(JSON.stringify({ name: picture, problems: [...problems, ...errors] }));
    }
  } finally {
    await browser.close();
    server.close();
    await rm(profile, { recursive: true, force: true });
  }
}

await main(process.argv.slice(2));
