// Draws what a model said over the pictures. Each [data-frame] holds an <img> and a <canvas>; the head toggles in
// #overlays say what is shown. Predictions are fetched when a picture comes into view and something is to be drawn.
"use strict";

const Overlay = (() => {
  const PALETTE = ["#4cc9f0", "#ffd166", "#f72585", "#80ed99", "#ff9f1c", "#c77dff", "#00f5d4", "#ff6b6b", "#a0c4ff", "#e9ff70"];
  const NOTHING = 255, LEVELS = 254;
  const documents = new Map(); // "frame model" -> promise of its predictions
  const seen = new WeakSet();
  const toggles = () => [...document.querySelectorAll("#overlays [data-head]")];
  const shown = () => new Set(toggles().filter((box) => box.checked).map((box) => box.value));

  function predictions(element) {
    const { frame, model } = element.dataset;
    const key = `${frame} ${model ?? ""}`;
    if (!documents.has(key)) {
      const address = `/frames/${frame}/predictions${model ? `?model=${model}` : ""}`;
      documents.set(key, fetch(address).then((answer) => (answer.ok ? answer.json() : { heads: [] })));
    }
    return documents.get(key);
  }

  async function refresh(element) {
    const canvas = element.querySelector("canvas"), heads = shown();
    if (!heads.size) return clear(canvas);
    draw(canvas, await predictions(element), shown());
  }

  function clear(canvas) {
    canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
    canvas.dataset.drawn = "";
  }

  /** Draws the heads of a predictions document that are in `heads`, dense ones first so that they hide nothing. */
  function draw(canvas, told, heads) {
    const box = canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(box.width * scale);
    canvas.height = Math.round(box.height * scale);
    const to = canvas.getContext("2d");
    to.scale(scale, scale);
    const order = ["dense_scalar", "dense_vector", "mask", "polylines", "boxes", "choice"];
    const wanted = told.heads.filter((head) => heads.has(head.name));
    wanted.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind));
    const offset = { choice: 0 };
    for (const head of wanted) DRAW[head.kind]?.(to, head, box.width, box.height, told.heads.indexOf(head), offset);
    canvas.dataset.drawn = wanted.map((head) => head.name).join(" ");
  }

  const color = (head, name, place) => PALETTE[(place * 3 + Math.max(0, head.classes.indexOf(name))) % PALETTE.length];

  // What the model says with less than this is kept, since average precision needs it; a person would only be in its way.
  const SURE_ENOUGH = 0.3;
  const sure = (thing) => thing.score === undefined || thing.score >= SURE_ENOUGH;

  const DRAW = {
    boxes(to, head, width, height, place) {
      to.lineWidth = 2;
      for (const object of head.value.objects.filter(sure)) {
        const [x0, y0, x1, y1] = object.box, tone = color(head, object.class, place);
        to.strokeStyle = tone;
        to.globalAlpha = object.score === undefined ? 1 : Math.max(0.35, object.score);
        to.strokeRect(x0 * width, y0 * height, (x1 - x0) * width, (y1 - y0) * height);
        to.globalAlpha = 1;
        const score = object.score === undefined ? "" : ` ${Math.round(object.score * 100)}%`;
        tag(to, object.class + score, x0 * width, y0 * height, tone, width);
      }
    },
    polylines(to, head, width, height, place) {
      to.lineWidth = 3;
      to.lineJoin = to.lineCap = "round";
      for (const line of head.value.lines.filter(sure)) {
        to.strokeStyle = color(head, line.class, place);
        to.globalAlpha = line.score === undefined ? 1 : Math.max(0.35, line.score);
        to.beginPath();
        for (const [x, y] of line.points) to.lineTo(x * width, y * height);
        to.stroke();
      }
      to.globalAlpha = 1;
    },
    mask(to, head, width, height, place) {
      const [rows, columns] = head.value.size, image = new ImageData(columns, rows);
      let cell = 0;
      for (const [index, length] of head.value.runs) {
        if (index > 0 && index < NOTHING) {
          const [r, g, b] = rgb(color(head, head.classes[index - 1], place));
          for (let i = cell; i < cell + length; i++) image.data.set([r, g, b, 105], i * 4);
        }
        cell += length;
      }
      stretch(to, image, width, height, true);
    },
    choice(to, head, width, height, place, offset) {
      const score = head.value.score === undefined ? "" : ` ${Math.round(head.value.score * 100)}%`;
      offset.choice += 20;
      tag(to, `${head.name.replaceAll("_", " ")}: ${head.value.choice}${score}`, 6, 6 + offset.choice, color(head, head.value.choice, place), width);
    },
    dense_scalar(to, head, width, height) {
      const { size, data } = head.grid, cells = bytes(data), image = new ImageData(size[1], size[0]);
      cells.forEach((level, i) => {
        if (level !== NOTHING) image.data.set([...turbo(level / LEVELS), 145], i * 4);
      });
      stretch(to, image, width, height, true);
      if (head.low !== null) scaleBar(to, head, width, height);
    },
    dense_vector(to, head, width, height) {
      const { size, data } = head.grid, cells = bytes(data), image = new ImageData(size[1], size[0]);
      for (let i = 0; i < size[0] * size[1]; i++) {
        if (cells[i * 3] !== NOTHING) image.data.set([cells[i * 3], cells[i * 3 + 1], cells[i * 3 + 2], 175], i * 4);
      }
      stretch(to, image, width, height, true);
    },
  };

  function stretch(to, image, width, height, smooth) {
    const small = new OffscreenCanvas(image.width, image.height);
    small.getContext("2d").putImageData(image, 0, 0);
    to.imageSmoothingEnabled = smooth;
    to.drawImage(small, 0, 0, width, height);
  }

  function tag(to, text, x, y, tone, width) {
    to.font = "600 11px system-ui, sans-serif";
    const wide = to.measureText(text).width + 8, left = Math.max(0, Math.min(x - 1, width - wide)), top = Math.max(0, y - 15);
    to.fillStyle = tone;
    to.fillRect(left, top, wide, 15);
    to.fillStyle = "#10141a";
    to.fillText(text, left + 4, top + 11.5);
  }

  function scaleBar(to, head, width, height) {
    const wide = Math.min(140, width * 0.4), left = width - wide - 8, top = height - 22;
    for (let i = 0; i < wide; i++) {
      to.fillStyle = `rgb(${turbo(i / wide).join(",")})`;
      to.fillRect(left + i, top + 12, 1.5, 5);
    }
    to.font = "600 11px system-ui, sans-serif";
    to.fillStyle = "#fff";
    to.shadowColor = "#000";
    to.shadowBlur = 3;
    const unit = head.unit ? ` ${head.unit}` : "";
    const short = (value) => (Math.abs(value) >= 10 ? Math.round(value).toString() : value.toPrecision(2));
    to.fillText(short(head.low), left, top + 9);
    const end = short(head.high) + unit;
    to.fillText(end, left + wide - to.measureText(end).width, top + 9);
    to.shadowBlur = 0;
  }

  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

  /** A polynomial fit of the Turbo colour map (A. Mikhailov, 2019): near is blue, far is red. */
  function turbo(t) {
    const r = 34.61 + t * (1172.33 - t * (10793.56 - t * (33300.12 - t * (38394.49 - t * 14825.05))));
    const g = 23.31 + t * (557.33 + t * (1225.33 - t * (3574.96 - t * (1073.77 + t * 707.56))));
    const b = 27.2 + t * (3211.1 - t * (15327.97 - t * (27814 - t * (22569.18 - t * 6838.66))));
    return [r, g, b].map((value) => Math.max(0, Math.min(255, Math.round(value))));
  }

  const inView = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      isIntersecting ? seen.add(target) : seen.delete(target);
      if (isIntersecting) refresh(target);
    }
  }, { rootMargin: "200px" });
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) if (seen.has(target)) refresh(target);
  });

  function watch(root) {
    for (const element of root.querySelectorAll("[data-frame]")) {
      if (element.dataset.watched) continue;
      element.dataset.watched = "yes";
      inView.observe(element);
      resized.observe(element);
    }
  }

  function refreshAll() {
    localStorage.setItem("longtail.heads", JSON.stringify([...shown()]));
    for (const element of document.querySelectorAll("[data-frame]")) if (seen.has(element)) refresh(element);
    document.dispatchEvent(new CustomEvent("overlay:changed"));
  }

  function start() {
    let kept = null;
    try { kept = JSON.parse(localStorage.getItem("longtail.heads")); } catch { /* what was kept is not ours */ }
    // Until somebody chooses, the heads that people are asked for are shown.
    for (const box of toggles()) box.checked = kept ? kept.includes(box.value) : "wanted" in box.dataset;
    document.addEventListener("change", (event) => { if (event.target.matches("#overlays [data-head]")) refreshAll(); });
    document.addEventListener("htmx:after:process", () => watch(document));
    watch(document);
  }
  document.readyState === "loading" ? document.addEventListener("DOMContentLoaded", start) : start();

  return { draw, predictions, shown, toggles, refreshAll };
})();
