// Prometheus's answers as data frames, in the shape in which Grafana's data source gives them.
import { FieldType, toDataFrame } from "@grafana/data";

const number = (text) => (text === "NaN" ? null : text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text));

// {{label}} is the label's value, as in Grafana; without a format the series is named as PromQL spells it.
function named(format, labels) {
  if (format && format !== "__auto") {
    return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => labels[label] ?? "");
  }
  const { __name__: name = "", ...rest } = labels;
  const pairs = Object.entries(rest).map(([label, value]) => `${label}="${value}"`);
  return pairs.length ? `${name}{${pairs.join(", ")}}` : name || "Value";
}

function series(target, found, stepMs, from, to) {
  const values = new Map(found.values.map(([at, value]) => [Math.round(at * 1000), number(value)]));
  const times = [];
  // A point of the grid without a value is a gap, not a line between its neighbours.
  for (let at = Math.min(...values.keys()); at <= to; at += stepMs) {
    times.push(at);
  }
  const name = named(target.legendFormat, found.metric);
  return toDataFrame({
    refId: target.refId,
    name,
    meta: { type: "timeseries-multi" },
    fields: [
      { name: "Time", type: FieldType.time, values: times, config: { interval: stepMs } },
      {
        name: "Value",
        type: FieldType.number,
        labels: found.metric,
        values: times.map((at) => values.get(at) ?? null),
        config: { displayNameFromDS: name },
      },
    ],
  });
}

function sample(target, found) {
  const name = named(target.legendFormat, found.metric);
  const [at, value] = found.value;
  return toDataFrame({
    refId: target.refId,
    name,
    fields: [
      { name: "Time", type: FieldType.time, values: [at * 1000] },
      { name: "Value", type: FieldType.number, labels: found.metric, values: [number(value)], config: { displayNameFromDS: name } },
    ],
  });
}

function table(target, result) {
  const labels = [...new Set(result.flatMap((found) => Object.keys(found.metric)))].sort();
  return toDataFrame({
    refId: target.refId,
    meta: { preferredVisualisationType: "table" },
    fields: [
      { name: "Time", type: FieldType.time, values: result.map((found) => found.value[0] * 1000) },
      ...labels.map((label) => ({
        name: label, type: FieldType.string, values: result.map((found) => found.metric[label] ?? ""), config: { filterable: true },
      })),
      {
        name: result.length && target.refId !== "A" ? `Value #${target.refId}` : "Value",
        type: FieldType.number,
        values: result.map((found) => number(found.value[1])),
      },
    ],
  });
}

export function frames(panel, from, to) {
  return panel.answers.flatMap((answer) => {
    if (answer.instant) {
      return answer.format === "table" ? [table(answer, answer.result)] : answer.result.map((found) => sample(answer, found));
    }
    return answer.result.map((found) => series(answer, found, answer.step * 1000, from, to));
  });
}
