// The page: a dashboard's header, rows and panels on Grafana's grid, painted once from data that stand beside it.
import "@fontsource/inter/400.css";
import "@fontsource/inter/500.css";
import "@fontsource/inter/600.css";
import "@fontsource/roboto-mono/400.css";

import { EventBusSrv, LoadingState, ThemeContext, createTheme, dateTime, dateTimeFormat } from "@grafana/data";
import { GlobalStyles, Icon, PanelChrome, PanelContextProvider } from "@grafana/ui";
import { initPluginTranslations } from "@grafana/i18n";
import { createRoot } from "react-dom/client";

import { isEmpty, painter, prepared } from "./panels";
import { register } from "./registries";

// Grafana's grid: 24 columns; a unit of height is 30 pixels and there are 8 between panels.
const COLUMNS = 24;
const UNIT = 30;
const GAP = 8;
const MARGIN = 16;
const HEADER = 88;

function place({ x, y, w, h }, width) {
  const column = (width - 2 * MARGIN - (COLUMNS - 1) * GAP) / COLUMNS;
  return {
    left: MARGIN + x * (column + GAP), top: HEADER + y * (UNIT + GAP), width: w * column + (w - 1) * GAP, height: h * UNIT + (h - 1) * GAP,
  };
}

function Header({ page, context }) {
  const { colors, typography } = context.theme;
  const pill = { background: colors.background.secondary, border: `1px solid ${colors.border.weak}`, borderRadius: 4, padding: "3px 8px" };
  const at = (time) => dateTimeFormat(time, { timeZone: "utc", format: "YYYY-MM-DD HH:mm:ss" });
  return (
    <div style={{ position: "absolute", left: MARGIN, right: MARGIN, top: 12, color: colors.text.primary }}>
      <div style={{ display: "flex", justifyContent: "space-between", marginBottom: 10 }}>
        <span style={{ ...typography.h3, margin: 0 }}>{page.dashboard.title}</span>
        <span style={{ ...typography.bodySmall, ...pill }}>
          <Icon name="clock-nine" size="sm" /> {at(context.from)} to {at(context.to).slice(11)} UTC
        </span>
      </div>
      <div style={{ display: "flex", gap: 16, ...typography.bodySmall }}>
        {page.variables.map(({ label, shown }) => (
          <span key={label}>
            <span style={{ ...pill, color: colors.text.secondary, borderRight: 0 }}>{label}</span>
            <span style={pill}>{shown}</span>
          </span>
        ))}
        <span style={{ flex: 1 }} />
        {(page.dashboard.links ?? []).map((link) => (
          <span key={link.title} style={{ color: colors.text.link }}>
            <Icon name="external-link-alt" size="sm" /> {link.title}
          </span>
        ))}
      </div>
    </div>
  );
}

function Panel({ panel, ready, box, context }) {
  const Painter = painter(panel.type);
  if (panel.type === "row") {
    return (
      <div style={{ position: "absolute", ...box, ...context.theme.typography.h6, color: context.theme.colors.text.primary, paddingTop: 4 }}>
        <Icon name="angle-down" /> {panel.title}
      </div>
    );
  }
  return (
    <div style={{ position: "absolute", ...box }} data-panel={panel.id}>
      <PanelChrome
        title={panel.title} description={panel.description} width={box.width} height={box.height} loadingState={LoadingState.Done}
        padding={panel.type === "table" ? "none" : "md"} displayMode={panel.transparent ? "transparent" : "default"}
      >
        {(width, height) =>
          isEmpty(panel, ready) ? (
            <div style={{ display: "grid", placeItems: "center", height }}>{panel.fieldConfig?.defaults?.noValue ?? "No data"}</div>
          ) : (
            <Painter panel={panel} ready={ready} width={width} height={height} theme={context.theme} context={context} />
          )
        }
      </PanelChrome>
    </div>
  );
}

async function main() {
  await initPluginTranslations("grafana-ui").catch(() => undefined);
  window.grafanaBootData = { settings: {} };
  window.__grafana_public_path__ = "/public/";
  const page = await (await fetch("page.json")).json();
  register();
  const theme = createTheme({ colors: { mode: page.theme } });
  const from = page.from * 1000;
  const to = page.to * 1000;
  const range = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };
  const shown = Object.fromEntries(page.variables.map(({ name, shown: text }) => [name, text]));
  const replace = (text) => text?.replace(/\$\{(\w+)[^}]*\}|\$(\w+)/g, (whole, a, b) => shown[a ?? b] ?? whole);
  const context = { theme, from, to, range, replace };
  const problems = [];
  const panels = [];
  for (const panel of page.panels) {
    if (panel.type !== "row" && !painter(panel.type)) {
      problems.push(`${panel.title}: no painter for panels of the type ${panel.type}`);
      continue;
    }
    const ready = panel.type === "row" ? null : await prepared(panel, context);
    if (ready && isEmpty(panel, ready)) {
      problems.push(`${panel.title}: empty`);
    }
    panels.push({ panel, ready, box: place(panel.gridPos, page.width) });
  }
  const height = Math.max(...panels.map(({ box }) => box.top + box.height)) + MARGIN;
  createRoot(document.getElementById("root")).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles isExtensionSidebarOpen={false} />
      <PanelContextProvider value={{ eventBus: new EventBusSrv(), eventsScope: "none", sync: () => 0, onToggleSeriesVisibility: () => undefined }}>
        <div style={{ position: "relative", width: page.width, height, background: theme.colors.background.canvas }}>
          <Header page={page} context={context} />
          {panels.map(({ panel, ready, box }) => (
            <Panel key={panel.id} panel={panel} ready={ready} box={box} context={context} />
          ))}
        </div>
      </PanelContextProvider>
    </ThemeContext.Provider>,
  );
  // Plots size themselves after the first paint, and icons and fonts arrive later than that.
  await document.fonts.ready;
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  const clipped = [...document.querySelectorAll("[data-panel] h2, [data-panel] [class*=title]")]
    .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.textContent)
    .map((element) => `${element.textContent}: its title is clipped`);
  window.painted = { height, problems: [...problems, ...new Set(clipped)] };
}

main().catch((error) => {
  window.painted = { height: 0, problems: [`the page failed: ${error.stack ?? error}`] };
});
