// Keeps the figures of a page up to date and draws the plot. Without it everything works, with figures as of loading.
"use strict";

(() => {
  const EVERY = 2000;
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 44, right: 8, top: 8, bottom: 22 };
  let plotted = null;

  // Figures

  const main = document.querySelector("main[data-live]");

  function show(answer) {
    for (const element of document.querySelectorAll("[data-value]")) {
      const name = element.dataset.value;
      if (name in answer.values) element.textContent = answer.values[name];
      if (name in answer.states) element.dataset.state = answer.states[name];
    }
    plotted = answer.plot;
    draw();
  }

  function tell(what, isSo) {
    const element = document.querySelector(what);
    if (element) element.hidden = !isSo;
  }

  async function look() {
    if (!document.hidden) {
      try {
        const response = await fetch(main.dataset.live, { cache: "no-store", credentials: "same-origin" });
        if (response.status === 401) {
          tell("[data-lost]", false);
          tell("[data-ended]", true);
          return;
        }
        if (!response.ok) throw new Error(String(response.status));
        show(await response.json());
        tell("[data-lost]", false);
      } catch {
        tell("[data-lost]", true);
      }
    }
    setTimeout(look, EVERY);
  }

  // The plot

  function element(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // The next of 1, 2, 5, 10, 20, 50 …
  function rounded(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999999);
  }

  function draw() {
    const svg = document.querySelector("[data-plot]");
    if (!svg || !plotted) return;
    tell("[data-undrawn]", false);
    svg.replaceChildren(element("g", {}));
    const { width, height } = svg.getBoundingClientRect();
    if (!width) return;
    const names = svg.dataset.plot.split(" ");
    const rates = names.map((name) => plotted.series[name].map((count) => count / plotted.seconds));
    const most = rounded(Math.max(1, ...rates.flat()));
    const count = rates[0].length;
    const x = (at) => MARGIN.left + ((width - MARGIN.left - MARGIN.right) * at) / (count - 1);
    const y = (rate) => height - MARGIN.bottom - ((height - MARGIN.top - MARGIN.bottom) * rate) / most;
    const drawn = [];
    for (const rate of [0, most / 2, most]) {
      const at = y(rate).toFixed(1);
      drawn.push(element("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at }));
      const place = { x: MARGIN.left - 6, y: y(rate) + 4, "text-anchor": "end" };
      drawn.push(element("text", place, rate.toLocaleString("en")));
    }
    const minutes = Math.round((count * plotted.seconds) / 60);
    for (const [at, anchor, text] of [
      [0, "start", `${minutes} min ago`],
      [(count - 1) / 2, "middle", `${minutes / 2} min ago`],
      [count - 1, "end", "now"],
    ]) {
      drawn.push(element("text", { x: x(at), y: height - 6, "text-anchor": anchor }, text));
    }
    rates.forEach((series, index) => {
      const points = series.map((rate, at) => `${x(at).toFixed(1)},${y(rate).toFixed(1)}`);
      const around = [`${x(0)},${y(0)}`, ...points, `${x(count - 1)},${y(0)}`].join(" ");
      drawn.push(element("polygon", { class: `area ${names[index]}`, points: around }));
      drawn.push(element("polyline", { class: `line ${names[index]}`, points: points.join(" ") }));
    });
    svg.replaceChildren(...drawn);
  }

  // Forms: fields that depend on another field's value

  function follow(selector, isWanted, apply) {
    for (const group of document.querySelectorAll(selector)) {
      const update = () => apply(group, isWanted(group));
      update();
      document.addEventListener("change", update);
    }
  }

  follow(
    "fieldset[data-needs]",
    (group) => document.getElementById(group.dataset.needs).checked,
    (group, isWanted) => { group.disabled = !isWanted; },
  );
  follow(
    "fieldset[data-when]",
    (group) => {
      const [name, value] = group.dataset.when.split("=");
      return document.getElementById(name).value === value;
    },
    (group, isWanted) => { group.hidden = !isWanted; },
  );

  // A form with errors puts the focus on the list of errors.
  document.querySelector(".problems")?.focus();

  if (main) {
    look();
    window.addEventListener("resize", draw);
  }
})();
