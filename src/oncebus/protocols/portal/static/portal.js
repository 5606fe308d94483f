// Keeps a page up to date, draws the plot and opens the panel. Without it everything works, as of loading the page.
"use strict";

(() => {
  const EVERY = 2000;
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { left: 62, right: 6, top: 12, bottom: 18 };

  const main = document.querySelector("main[data-live]");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  function tell(selector, isSo) {
    for (const element of all(selector)) element.hidden = !isSo;
  }

  // Figures

  let plotted = null;

  function show(answer) {
    for (const element of all("[data-value]")) {
      const name = element.dataset.value;
      if (name in answer.values) element.textContent = answer.values[name];
      if (name in answer.states) element.dataset.state = answer.states[name];
      else delete element.dataset.state;
    }
    for (const line of all("[data-spark]")) {
      const points = answer.sparks?.[line.dataset.spark];
      if (points !== undefined) line.setAttribute("points", points);
    }
    plotted = answer.plot;
    draw();
  }

  async function ask(address) {
    try {
      const response = await fetch(address, { cache: "no-store", credentials: "same-origin" });
      tell("[data-ended]", response.status === 401);
      tell("[data-lost]", !response.ok && response.status !== 401);
      return response.ok ? response : null;
    } catch {
      tell("[data-lost]", true);
      return null;
    }
  }

  async function look() {
    if (!document.hidden) {
      const response = await ask(main.dataset.live);
      if (response) show(await response.json());
      else if (!document.querySelector("[data-ended]")?.hidden) return;
    }
    setTimeout(look, EVERY);
  }

  // The plot: incoming messages above the line, split into new ones and duplicates; outgoing ones below it

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

  const rate = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });

  function series(name) {
    const counts = plotted.series[name];
    return counts?.map((count) => (count === null ? null : count / plotted.seconds));
  }

  // Pieces without unknown values, each as [[place, low, high], …].
  function pieces(low, high) {
    const found = [];
    let piece = null;
    high.forEach((value, at) => {
      const base = low ? low[at] : 0;
      if (value === null || base === null) piece = null;
      else {
        if (!piece) found.push((piece = []));
        piece.push([at, base, base + value]);
      }
    });
    return found;
  }

  function draw() {
    const svg = document.querySelector("[data-plot]");
    if (!svg || !plotted) return;
    tell("[data-undrawn]", false);
    svg.replaceChildren(element("g", {}));
    const { width, height } = svg.getBoundingClientRect();
    if (!width) return;
    const fresh = series("new");
    const duplicates = series("duplicates");
    const outgoing = series("outgoing");
    const count = (fresh ?? outgoing).length;
    const highest = (...several) =>
      Math.max(0, ...Array.from({ length: count }, (_, at) => several.reduce((sum, one) => sum + (one?.[at] ?? 0), 0)));
    const up = fresh ? rounded(Math.max(0.1, highest(fresh, duplicates))) : 0;
    const down = outgoing ? rounded(Math.max(0.1, highest(outgoing))) : 0;
    // One scale for both directions, so that heights can be compared.
    const scale = (height - MARGIN.top - MARGIN.bottom) / (up + down);
    const zero = MARGIN.top + up * scale;
    const wide = (width - MARGIN.left - MARGIN.right) / count;
    const x = (at) => (MARGIN.left + wide * at).toFixed(1);
    const y = (value) => (zero - value * scale).toFixed(1);
    const drawn = [];
    const level = (value, kind, word = "") => {
      drawn.push(element("line", { class: kind, x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }));
      const place = { x: MARGIN.left - 6, y: Number(y(value)) + 4, "text-anchor": "end" };
      drawn.push(element("text", place, `${word} ${rate(Math.abs(value))}`));
    };
    const area = (name, low, high, sign) => {
      for (const piece of pieces(low, high)) {
        const over = piece.flatMap(([at, , top]) => [`${x(at)},${y(sign * top)}`, `${x(at + 1)},${y(sign * top)}`]);
        const under = piece.flatMap(([at, base]) => [`${x(at)},${y(sign * base)}`, `${x(at + 1)},${y(sign * base)}`]);
        drawn.push(element("polygon", { class: `area ${name}`, points: [...over, ...under.reverse()].join(" ") }));
      }
    };
    if (up * scale > 14) level(up, "grid", "in");
    if (down * scale > 14) level(-down, "grid", "out");
    if (fresh) area("new", null, fresh, 1);
    if (duplicates) area("duplicates", fresh, duplicates, 1);
    if (outgoing) area("outgoing", null, outgoing, -1);
    level(0, "zero");
    const moments = width < 500 ? 2 : 5;
    for (let step = 0; step <= moments; step += 1) {
      const at = (count * step) / moments;
      const anchor = step === 0 ? "start" : step === moments ? "end" : "middle";
      drawn.push(element("text", { x: x(at), y: height - 4, "text-anchor": anchor }, clock(at, moments === step)));
    }
    const cursor = document.querySelector("[data-cursor]");
    if (cursor) {
      cursor.hidden = false;
      cursor.max = count - 1;
      if (!cursor.dataset.used) cursor.value = count - 1;
      const at = Number(cursor.value);
      if (cursor.dataset.used) {
        const middle = x(at + 0.5);
        drawn.push(element("line", { class: "cursor", x1: middle, x2: middle, y1: MARGIN.top, y2: height - MARGIN.bottom }));
      }
      cursor.setAttribute("aria-valuetext", told(at, fresh, duplicates, outgoing));
      document.querySelector("[data-readout]").textContent = told(at, fresh, duplicates, outgoing);
    }
    svg.replaceChildren(...drawn);
  }

  function clock(at, isLast) {
    const count = (plotted.series.new ?? plotted.series.outgoing).length;
    const time = new Date((plotted.end - (count - at) * plotted.seconds) * 1000).toISOString();
    return isLast ? "now" : time.slice(11, plotted.seconds * count < 3000 ? 19 : 16);
  }

  function told(at, fresh, duplicates, outgoing) {
    const parts = [];
    if (fresh) {
      const [first, second] = [fresh[at], duplicates?.[at] ?? 0];
      if (first === null) return `${clock(at)} UTC: unknown`;
      const incoming = first + second;
      const share = incoming ? ` (${((100 * second) / incoming).toFixed(second ? 1 : 0)}%)` : "";
      parts.push(`incoming ${rate(incoming)}/s`, `new ${rate(first)}/s`, `duplicates ${rate(second)}/s${share}`);
    }
    if (outgoing) parts.push(outgoing[at] === null ? "outgoing unknown" : `outgoing ${rate(outgoing[at])}/s`);
    return `${clock(at)} UTC: ${parts.join(", ")}`;
  }

  for (const cursor of all("[data-cursor]")) {
    const use = (place) => {
      cursor.dataset.used = "yes";
      if (place !== undefined) cursor.value = place;
      draw();
    };
    cursor.addEventListener("input", () => use());
    cursor.addEventListener("focus", () => use());
    cursor.addEventListener("pointermove", (event) => {
      const { left, width } = cursor.getBoundingClientRect();
      const within = (event.clientX - left - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
      use(Math.min(Math.max(Math.floor(within * (Number(cursor.max) + 1)), 0), Number(cursor.max)));
    });
    for (const name of ["pointerleave", "blur"]) {
      cursor.addEventListener(name, () => {
        if (document.activeElement === cursor) return;
        delete cursor.dataset.used;
        draw();
      });
    }
  }

  // Parts of a page that are read again as HTML

  async function fetched(address) {
    const response = await ask(address);
    return response && new DOMParser().parseFromString(await response.text(), "text/html");
  }

  tell("[data-scripted]", true);
  for (const box of all("[data-follow]")) {
    const region = () => document.querySelector(`[data-region="${box.dataset.follow}"]`);
    const again = async () => {
      if (!box.checked) return;
      if (!document.hidden && !region().contains(document.activeElement)) {
        const address = new URL(location.href);
        address.searchParams.set("poll", "1");
        const page = await fetched(address);
        const part = page?.querySelector(`[data-region="${box.dataset.follow}"]`);
        if (part && box.checked) region().replaceWith(part);
      }
      setTimeout(again, EVERY);
    };
    box.addEventListener("change", again);
    again();
  }

  // The panel beside a table

  async function open(address, isFocused) {
    const page = await fetched(address);
    const panel = page?.querySelector("#panel");
    if (!panel) {
      location.href = address;
      return;
    }
    document.querySelector("#panel").replaceWith(panel);
    const shown = new URL(address).searchParams.get("show");
    for (const link of all("[data-panel]")) {
      const isCurrent = shown !== null && new URL(link.href).searchParams.get("show") === shown;
      link.closest("tr").classList.toggle("current", isCurrent);
    }
    history.replaceState(null, "", address);
    // Beside the table the panel is in view already. On a phone it comes before the table.
    const isBeside = getComputedStyle(panel).position === "sticky";
    if (isFocused && !panel.hidden) panel.focus({ preventScroll: isBeside });
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-panel], [data-close]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    close.from = link.matches("[data-panel]") ? link : null;
    open(link.href, true);
  });

  function close() {
    const link = document.querySelector("#panel [data-close]");
    if (!link) return;
    const from = document.querySelector("tr.current [data-panel]");
    open(link.href, false).then(() => from?.focus());
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });

  // Forms

  for (const box of all("[data-choose-all]")) {
    const boxes = () => all('tbody input[type="checkbox"]', box.closest("table"));
    box.hidden = false;
    box.addEventListener("change", () => boxes().forEach((each) => { each.checked = box.checked; }));
    box.closest("table").addEventListener("change", () => {
      const chosen = boxes().filter((each) => each.checked).length;
      box.checked = chosen === boxes().length;
      box.indeterminate = chosen > 0 && !box.checked;
    });
  }

  // Buttons that copy a text. A browser offers the clipboard only to pages over TLS or of this machine.
  for (const button of navigator.clipboard ? all("[data-copy]") : []) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  }

  // Fields that depend on another field's value
  function follow(selector, isWanted) {
    for (const group of all(selector)) {
      const update = () => {
        group.hidden = !isWanted(group);
        group.disabled = group.hidden;
      };
      update();
      document.addEventListener("change", update);
    }
  }

  follow("fieldset[data-needs]", (group) => document.getElementById(group.dataset.needs).checked);
  follow("fieldset[data-when]", (group) => {
    const [name, value] = group.dataset.when.split("=");
    return document.getElementById(name).value === value;
  });

  // A form with errors puts the focus on the list of errors.
  document.querySelector(".problems")?.focus();

  if (main) {
    look();
    window.addEventListener("resize", draw);
  }
})();
