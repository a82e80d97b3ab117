// What Grafana's server-side application registers before it paints: field options and transformations. The packages
// bring the registries; an application that uses them fills them. The options are those that our panels may set.
import {
  FieldType,
  displayNameOverrideProcessor,
  identityOverrideProcessor,
  numberOverrideProcessor,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  thresholdsOverrideProcessor,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from "@grafana/data";

const STANDARD = {
  unit: unitOverrideProcessor,
  min: numberOverrideProcessor,
  max: numberOverrideProcessor,
  fieldMinMax: identityOverrideProcessor,
  decimals: numberOverrideProcessor,
  displayName: displayNameOverrideProcessor,
  color: identityOverrideProcessor,
  noValue: displayNameOverrideProcessor,
  mappings: valueMappingsOverrideProcessor,
  thresholds: thresholdsOverrideProcessor,
  filterable: identityOverrideProcessor,
};

const CUSTOM = [
  "align", "axisBorderShow", "axisCenteredZero", "axisColorMode", "axisGridShow", "axisLabel", "axisPlacement",
  "axisSoftMax", "axisSoftMin", "axisWidth", "barAlignment", "barMaxWidth", "barWidthFactor", "cellOptions",
  "drawStyle", "fillBelowTo", "fillColor", "fillOpacity", "filterable", "gradientMode", "hidden", "hideFrom", "inspect",
  "insertNulls", "lineColor", "lineInterpolation", "lineStyle", "lineWidth", "minWidth", "pointSize", "pointSymbol",
  "scaleDistribution", "showPoints", "showValues", "spanNulls", "stacking", "thresholdsStyle", "transform", "width",
];

const entry = (id, path, process, isCustom) => ({
  id, path, name: id, description: "", process, isCustom, shouldApply: () => true, settings: {},
  editor: () => null, override: () => null,
});

export function register() {
  standardFieldConfigEditorRegistry.setInit(() => [
    ...Object.entries(STANDARD).map(([id, process]) => entry(id, id, process, false)),
    ...CUSTOM.map((path) => entry(`custom.${path}`, path, identityOverrideProcessor, true)),
  ]);
  // Some stand there under two names.
  const transformers = [...new Map(Object.values(standardTransformers).map((one) => [one.id, one])).values()];
  standardTransformersRegistry.setInit(() =>
    transformers.map((transformation) => ({ id: transformation.id, name: transformation.name, transformation: async () => transformation, editor: () => null })),
  );
}

// What a time series panel has where its JSON says nothing: the defaults of Grafana's own panel.
export const SERIES_DEFAULTS = {
  drawStyle: "line", lineInterpolation: "linear", lineWidth: 1, fillOpacity: 0, gradientMode: "none", pointSize: 5,
  showPoints: "auto", barAlignment: 0, barWidthFactor: 0.6, axisPlacement: "auto", axisColorMode: "text",
  axisBorderShow: false, axisCenteredZero: false, axisLabel: "", scaleDistribution: { type: "linear" },
  hideFrom: { legend: false, tooltip: false, viz: false }, spanNulls: false, insertNulls: false,
  stacking: { mode: "none", group: "A" }, thresholdsStyle: { mode: "off" },
};

export const isNumber = (field) => field.type === FieldType.number;
