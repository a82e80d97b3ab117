// One painter for each panel type that our dashboards use. Each is Grafana's own component, fed as Grafana feeds it.
import {
  VizOrientation,
  applyFieldOverrides,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderMarkdown,
  standardTransformersRegistry,
  transformDataFrame,
} from "@grafana/data";
import { BarGauge, BigValue, Table, TimeSeries, VizRepeater } from "@grafana/ui";
import { firstValueFrom } from "rxjs";

import { frames } from "./frames";
import { SERIES_DEFAULTS, isNumber } from "./registries";

const LEGEND = { displayMode: "list", placement: "bottom", calcs: [], showLegend: true };
const REDUCE = { calcs: ["lastNotNull"], fields: "", values: false };

function defaulted(panel) {
  const config = structuredClone(panel.fieldConfig ?? { defaults: {}, overrides: [] });
  const { defaults } = config;
  // JSON has no infinity: the lowest threshold is written as null.
  for (const step of defaults.thresholds?.steps ?? []) {
    step.value ??= -Infinity;
  }
  for (const rule of config.overrides ?? []) {
    for (const property of rule.properties) {
      for (const step of property.id === "thresholds" ? property.value.steps : []) {
        step.value ??= -Infinity;
      }
    }
  }
  const palette = panel.type === "timeseries" ? "palette-classic" : "thresholds";
  defaults.color ??= { mode: palette };
  defaults.thresholds ??= { mode: "absolute", steps: [{ value: -Infinity, color: "green" }] };
  if (panel.type === "timeseries") {
    defaults.custom = { ...SERIES_DEFAULTS, ...defaults.custom };
  }
  return config;
}

export async function prepared(panel, context) {
  const { from, to, theme } = context;
  const steps = (panel.transformations ?? []).filter((step) => !step.disabled);
  for (const step of steps) {
    if (!standardTransformersRegistry.getIfExists(step.id)) {
      throw new Error(`unknown transformation ${step.id}`);
    }
  }
  const raw = frames(panel, from, to);
  const transformed = steps.length ? await firstValueFrom(transformDataFrame(steps, raw)) : raw;
  const fieldConfig = defaulted(panel);
  const replaceVariables = (text) => context.replace(text);
  const data = applyFieldOverrides({ data: transformed, fieldConfig, theme, timeZone: "utc", replaceVariables });
  return { data, fieldConfig, replaceVariables };
}

export const isEmpty = (panel, { data }) =>
  panel.type !== "text" && !data.some((frame) => frame.fields.some((field) => isNumber(field) && field.values.some((value) => value != null)));

function values(panel, { data, fieldConfig, replaceVariables }, theme, sparkline) {
  return getFieldDisplayValues({
    fieldConfig, reduceOptions: { ...REDUCE, ...panel.options?.reduceOptions }, replaceVariables, theme, data, sparkline, timeZone: "utc",
  });
}

function Stat({ panel, ready, width, height, theme }) {
  const { options = {} } = panel;
  return (
    <VizRepeater
      source={ready.data} width={width} height={height} renderCounter={1} autoGrid itemSpacing={3}
      orientation={options.orientation ?? VizOrientation.Auto}
      getValues={() => values(panel, ready, theme, (options.graphMode ?? "area") !== "none")}
      getAlignmentFactors={(found) => getDisplayValueAlignmentFactors(found)}
      renderValue={({ value, width: inner, height: high, alignmentFactors, count }) => (
        <BigValue
          value={value.display} sparkline={value.sparkline} count={count} width={inner} height={high} theme={theme}
          colorMode={options.colorMode ?? "value"} graphMode={options.graphMode ?? "area"} text={options.text}
          justifyMode={options.justifyMode ?? "auto"} textMode={options.textMode ?? "auto"}
          alignmentFactors={alignmentFactors} disableWideLayout={!(options.wideLayout ?? true)}
        />
      )}
    />
  );
}

function Bars({ panel, ready, width, height, theme }) {
  const { options = {} } = panel;
  const found = () => values(panel, ready, theme, false);
  const given = options.orientation ?? "auto";
  const orientation = given === "auto" ? (width > height ? VizOrientation.Vertical : VizOrientation.Horizontal) : given;
  return (
    <VizRepeater
      source={ready.data} width={width} height={height} renderCounter={1} orientation={orientation} getValues={found}
      itemSpacing={10} minVizWidth={options.minVizWidth ?? 8} minVizHeight={options.minVizHeight ?? 16}
      maxVizHeight={options.maxVizHeight ?? 300}
      getAlignmentFactors={(all) => getDisplayValueAlignmentFactors(all)}
      renderValue={({ value, width: inner, height: high, alignmentFactors, orientation: turned }) => (
        <BarGauge
          value={value.display} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex)}
          width={inner} height={high} theme={theme} orientation={turned} displayMode={options.displayMode ?? "gradient"}
          alignmentFactors={alignmentFactors} showUnfilled={options.showUnfilled ?? true} text={options.text}
          valueDisplayMode={options.valueMode ?? "color"} namePlacement={options.namePlacement ?? "auto"} itemSpacing={10} lcdCellWidth={12}
        />
      )}
    />
  );
}

const PAINTERS = {
  timeseries: ({ panel, ready, width, height, context }) => (
    <TimeSeries
      frames={ready.data} width={width} height={height} timeZone="utc" timeRange={context.range}
      legend={{ ...LEGEND, ...panel.options?.legend }} options={panel.options}
    />
  ),
  stat: Stat,
  bargauge: Bars,
  table: ({ ready, width, height }) =>
    ready.data.length ? <Table data={ready.data[0]} width={width} height={height} cellHeight="sm" timeRange={undefined} /> : null,
  text: ({ panel }) => (
    <div className="markdown-html" dangerouslySetInnerHTML={{ __html: renderMarkdown(panel.options?.content ?? "") }} />
  ),
};

export const painter = (type) => PAINTERS[type];
