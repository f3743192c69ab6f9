// Uncertainty over time, one chart a stream.
"use strict";

(() => {
  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const HUES = ["--accent", "--hot", "--good", "--control", "--warn", "--bad"];

  function chart(element) {
    const told = JSON.parse(document.getElementById(element.dataset.timeline).textContent);
    const heads = Object.keys(told.heads);
    const axis = { stroke: token("--soft"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const size = () => ({ width: element.clientWidth, height: element.clientHeight - 34 });
    const plot = new uPlot({
      ...size(),
      scales: { x: { time: false }, y: { range: [0, 1] } },
      cursor: { points: { size: 7 } },
      axes: [
        { ...axis, values: (_, values) => values.map((value) => `${value} s`) },
        { ...axis, size: 48, values: (_, values) => values.map((value) => `${Math.round(value * 100)}%`) },
      ],
      series: [
        { label: told.stream, value: (_, value) => (value === null ? "–" : `${value.toFixed(2)} s`) },
        ...heads.map((head, place) => ({
          label: head.replaceAll("_", " "),
          stroke: token(HUES[place % HUES.length]),
          width: 2,
          dash: place >= HUES.length ? [6, 4] : undefined,
          points: { size: 5 },
          value: (_, value) => (value === null ? "–" : `${Math.round(value * 100)}%`),
        })),
      ],
    }, [told.seconds, ...heads.map((head) => told.heads[head])], element);
    new ResizeObserver(() => plot.setSize(size())).observe(element);
    return plot;
  }

  let plots = [];
  const elements = () => [...document.querySelectorAll("[data-timeline]")];
  const drawAll = () => {
    for (const plot of plots) plot.destroy();
    plots = elements().map(chart);
  };
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", drawAll) : drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
})();
