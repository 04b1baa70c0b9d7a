// The page of a graph: move and zoom, choose nodes, colours, train and test sets. Text from the data
// reaches the document only through textContent and attribute setters, never as markup.
(function () {
  "use strict";

  const SVG = "http://www.w3.org/2000/svg";
  const MOST_IMAGES = 24;
  const LABEL = { size: 12, letter: 6.5, line: 16 };

  const { all, one, make } = dom;

  const data = JSON.parse(one("#data").textContent);
  const nodes = data.nodes;
  const models = new Map(data.models.map((model) => [model.name, model]));
  // Members are written as differences of rising places.
  const members = nodes.map((node) => {
    let place = 0;
    return node.members.map((step) => (place += step));
  });
  const known = members.every((list, i) => list.length === nodes[i].size);
  const community = new Array(nodes.length).fill(0);
  data.communities.forEach((group, number) => group.forEach((place) => { community[place] = number; }));

  const minus = (text) => text.replace("-", "−");
  const countText = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const valueText = (value) => (data.share ? (100 * value).toFixed(1) + " %" : minus(value.toFixed(data.digits)));
  const rangeText = (low, high) => {
    if (low === null || high === null) return "";
    const text = (value) => (data.share ? (100 * value).toFixed(1) : minus(value.toFixed(data.digits)));
    return text(low) + "–" + text(high);
  };
  const images = (n) => countText(n) + (n === 1 ? " image" : " images");

  // ---- sets of images ----------------------------------------------------------------------------

  function union(places) {
    const set = new Set();
    for (const place of places) for (const image of members[place]) set.add(image);
    return set;
  }

  const nodesOf = new Map();
  members.forEach((list, place) => list.forEach((image) => {
    if (!nodesOf.has(image)) nodesOf.set(image, []);
    nodesOf.get(image).push(place);
  }));
  const linked = new Array(nodes.length).fill(false);
  for (const [a, b] of data.edges) linked[a] = linked[b] = true;

  // Each image of a set spreads evenly over the nodes that it is in: those with an edge, and the
  // set's own. The profile is the mean over images.
  function collection(places) {
    const rows = new Map();
    for (const image of union(places)) {
      rows.set(image, nodesOf.get(image).filter((place) => linked[place] || places.has(place)));
    }
    const profile = new Array(nodes.length).fill(0);
    for (const row of rows.values()) for (const place of row) profile[place] += 1 / row.length / rows.size;
    return { rows, profile, size: rows.size };
  }
  const xlog2 = (x) => (x > 0 ? x * Math.log2(x) : 0);
  const term = (p, q) => 0.5 * (xlog2(p) + xlog2(q)) - xlog2(0.5 * (p + q));
  const terms = (p, q) => p.map((value, place) => term(value, q[place]));
  const sum = (list) => list.reduce((total, value) => total + value, 0);

  // The square root of the Jensen-Shannon divergence in bits, corrected by the jackknife over images:
  // n J - (n - 1) mean(J without image i). Limits: 1.96 jackknife errors about it, null without any.
  function divergence(a, b) {
    const same = a.size === b.size && Array.from(a.rows).every(([image, row]) =>
      b.rows.has(image) && String(b.rows.get(image)) === String(row));
    if (same) return { value: 0, low: null, high: null };
    const plain = sum(terms(a.profile, b.profile));
    const bounded = (value) => Math.sqrt(Math.min(1, Math.max(0, value)));
    if (Math.min(a.size, b.size) < 2) return { value: bounded(plain), low: null, high: null };
    const without = (set) => set.profile.map((value) => (value * set.size) / (set.size - 1));
    const [p1, q1] = [without(a), without(b)];
    const bases = { a: terms(p1, b.profile), b: terms(a.profile, q1), both: terms(p1, q1) };
    const totals = { a: sum(bases.a), b: sum(bases.b), both: sum(bases.both) };
    const left = [];
    const images = new Set([...a.rows.keys(), ...b.rows.keys()]);
    for (const image of images) {
      const mine = a.rows.get(image);
      const other = b.rows.get(image);
      const kind = mine && other ? "both" : mine ? "a" : "b";
      const p = mine ? p1 : a.profile;
      const q = other ? q1 : b.profile;
      let value = totals[kind];
      for (const place of new Set([...(mine || []), ...(other || [])])) {
        const less = (set, row, at) => (row && row.includes(place)
          ? Math.max(at[place] - 1 / row.length / (set.size - 1), 0) : at[place]);
        value += term(less(a, mine, p), less(b, other, q)) - bases[kind][place];
      }
      left.push(value);
    }
    const n = left.length;
    const mean = sum(left) / n;
    const corrected = n * plain - (n - 1) * mean;
    const error = Math.sqrt(((n - 1) / n) * sum(left.map((value) => (value - mean) ** 2)));
    return { value: bounded(corrected), low: bounded(corrected - 1.96 * error), high: bounded(corrected + 1.96 * error) };
  }

  function distance(a, b) {
    if (!known || !a.size || !b.size) return null;
    return divergence(collection(a), collection(b));
  }

  // ---- moving and zooming ------------------------------------------------------------------------

  const svg = one("#graph");
  const view = one("#view");
  const state = { x: 0, y: 0, k: 1, fitted: true };
  const limits = { least: 0.1, most: 8 };

  function frame() {
    const box = svg.getBoundingClientRect();
    return { width: Math.max(box.width, 1), height: Math.max(box.height, 1), left: box.left, top: box.top };
  }
  let waiting = false;
  function apply() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      view.setAttribute("transform", `translate(${state.x} ${state.y}) scale(${state.k})`);
      view.style.setProperty("--k", String(state.k));
      thin();
    });
  }
  function fit() {
    const box = frame();
    svg.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const [width, height] = data.size;
    state.k = Math.min(box.width / width, box.height / height, 1.6);
    limits.least = state.k / 2;
    state.x = (box.width - state.k * width) / 2;
    state.y = (box.height - state.k * height) / 2;
    state.fitted = true;
    apply();
  }
  function zoom(factor, x, y) {
    const k = Math.min(limits.most, Math.max(limits.least, state.k * factor));
    state.x = x - ((x - state.x) * k) / state.k;
    state.y = y - ((y - state.y) * k) / state.k;
    state.k = k;
    state.fitted = false;
    apply();
  }
  function zoomMiddle(factor) {
    const box = frame();
    zoom(factor, box.width / 2, box.height / 2);
  }
  function show(place) {
    const [x, y] = nodes[place].at;
    const box = frame();
    const at = [state.x + state.k * x, state.y + state.k * y];
    const inside = at[0] > 40 && at[0] < box.width - 40 && at[1] > 40 && at[1] < box.height - 60;
    if (inside && state.k > 0.55) return;
    state.k = Math.max(state.k, 0.9);
    state.x = box.width / 2 - state.k * x;
    state.y = box.height / 2 - state.k * y;
    state.fitted = false;
    apply();
  }

  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = frame();
    const step = event.deltaMode === 1 ? 24 : 1;
    zoom(Math.exp(-event.deltaY * step * 0.0016), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });

  const fingers = new Map();
  let moved = 0;
  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 1) moved = 0;
  });
  svg.addEventListener("pointermove", (event) => {
    const from = fingers.get(event.pointerId);
    if (!from) return;
    const to = [event.clientX, event.clientY];
    const box = frame();
    if (fingers.size === 1) {
      moved += Math.hypot(to[0] - from[0], to[1] - from[1]);
      if (moved > 4) {
        if (!svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
        svg.classList.add("moving");
        state.x += to[0] - from[0];
        state.y += to[1] - from[1];
        state.fitted = false;
        apply();
      }
    } else if (fingers.size === 2) {
      const [other] = Array.from(fingers).filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const before = Math.hypot(from[0] - other[0], from[1] - other[1]);
      const after = Math.hypot(to[0] - other[0], to[1] - other[1]);
      moved = 99;
      if (before > 0) {
        zoom(after / before, (to[0] + other[0]) / 2 - box.left, (to[1] + other[1]) / 2 - box.top);
      }
    }
    fingers.set(event.pointerId, to);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    svg.addEventListener(name, (event) => {
      fingers.delete(event.pointerId);
      if (!fingers.size) svg.classList.remove("moving");
    });
  }
  const zooms = { in: () => zoomMiddle(1.4), out: () => zoomMiddle(1 / 1.4), fit };
  for (const button of all("[data-zoom]")) button.addEventListener("click", zooms[button.dataset.zoom]);
  addEventListener("resize", () => { if (state.fitted) fit(); });

  // ---- names that fit ----------------------------------------------------------------------------

  const drawn = new Array(nodes.length);
  for (const element of all(".node", view)) drawn[Number(element.dataset.node)] = element;
  const shownName = drawn.map((element) => one(".name", element).textContent);

  // Names keep their size on the screen; where they would lie over one another the larger node wins.
  function thin() {
    const first = (i) => (i === selected || chosen.train.has(i) || chosen.test.has(i) ? 0 : 1);
    const order = nodes.map((_, i) => i).sort((a, b) => first(a) - first(b) || nodes[b].size - nodes[a].size || a - b);
    const cells = new Map();
    const step = 60;
    for (const i of order) {
      const [x, y, r] = nodes[i].at;
      const half = (LABEL.letter * shownName[i].length) / 2;
      const left = state.x + state.k * x - half;
      const top = state.y + state.k * (y + r);
      const box = [left, top, left + 2 * half, top + LABEL.line];
      const near = [];
      for (let cx = Math.floor(box[0] / step); cx <= Math.floor(box[2] / step); cx += 1) {
        for (let cy = Math.floor(box[1] / step); cy <= Math.floor(box[3] / step); cy += 1) near.push(cx + "," + cy);
      }
      const clash = near.some((cell) => (cells.get(cell) || []).some((other) =>
        box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]));
      drawn[i].classList.toggle("crowded", clash);
      if (clash) continue;
      for (const cell of near) {
        if (!cells.has(cell)) cells.set(cell, []);
        cells.get(cell).push(box);
      }
    }
  }

  // ---- colours -----------------------------------------------------------------------------------

  const form = one(".controls");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.colour.append(make("option", { value: "", text: "community" }));
  data.models.forEach((model, number) => {
    form.elements.colour.append(make("option", { value: String(number), text: model.name }));
  });

  function mixed(first, second, part) {
    const channel = (colour, at) => parseInt(colour.slice(at, at + 2), 16);
    return "#" + [1, 3, 5].map((at) => {
      const value = Math.round(channel(first, at) + part * (channel(second, at) - channel(first, at)));
      return value.toString(16).padStart(2, "0");
    }).join("");
  }
  const model = () => (form.elements.colour.value === "" ? null : data.models[Number(form.elements.colour.value)]);
  function scoreColour(by, value) {
    const part = Math.max(-1, Math.min(1, (value - by.middle) / by.spread));
    return mixed(data.ramp[1], data.ramp[part > 0 ? 2 : 0], Math.abs(part));
  }
  function colour(place) {
    const by = model();
    if (!by) return data.colours[place];
    const score = nodes[place].scores[by.name];
    return score ? scoreColour(by, score[0]) : data.ramp[1];
  }
  function paint() {
    const by = model();
    drawn.forEach((element, place) => {
      one(".body", element).setAttribute("fill", colour(place));
      const score = by && nodes[place].scores[by.name];
      const apart = score && by.known && score[1] !== null && (score[2] < by.middle || score[1] > by.middle);
      element.classList.toggle("apart", Boolean(apart));
    });
    view.classList.toggle("scored", Boolean(by));
    const key = one(".key");
    if (by) {
      const low = data.share ? Math.max(0, by.middle - by.spread) : by.middle - by.spread;
      const high = data.share ? Math.min(1, by.middle + by.spread) : by.middle + by.spread;
      const middle = (100 * (by.middle - low)) / Math.max(1e-9, high - low);
      const ramp = make("span", { class: "ramp" });
      ramp.style.background = `linear-gradient(90deg, ${scoreColour(by, low)}, ${data.ramp[1]} ${middle}%, ${scoreColour(by, high)})`;
      key.replaceChildren(
        valueText(low), ramp, valueText(high),
        make("div", { text: data.metric + ", " + by.name + (by.known ? ": middle is " + valueText(by.middle) + " on everything; ringed, where the interval leaves it out" : "") }),
      );
    } else {
      key.replaceChildren("Area: images. Line: " + data.weight + ". Numbers: communities.");
    }
    listAll();
  }
  form.elements.colour.addEventListener("change", paint);

  // ---- choosing nodes ----------------------------------------------------------------------------

  let selected = null;
  let words = "";
  const chosen = { train: new Set(), test: new Set() };

  function matches(place) {
    return words !== "" && (nodes[place].name + " " + nodes[place].label).toLowerCase().includes(words);
  }
  function light() {
    const lit = new Set();
    if (words) nodes.forEach((_, place) => { if (matches(place)) lit.add(place); });
    else if (selected !== null) lit.add(selected);
    const dim = lit.size > 0 || words !== "";
    view.classList.toggle("dimmed", dim);
    for (const line of all(".edge", view)) {
      const [a, b] = data.edges[Number(line.dataset.edge)];
      const on = !words && selected !== null && (a === selected || b === selected);
      line.classList.toggle("lit", on);
      if (on) { lit.add(a); lit.add(b); }
    }
    for (const side of ["train", "test"]) for (const place of chosen[side]) lit.add(place);
    drawn.forEach((element, place) => {
      element.classList.toggle("lit", lit.has(place));
      element.classList.toggle("train", chosen.train.has(place));
      element.classList.toggle("test", chosen.test.has(place));
      element.setAttribute("aria-pressed", String(place === selected));
    });
    thin();
  }
  function select(place) {
    selected = place;
    if (place !== null) {
      words = "";
      form.elements.words.value = "";
      rove(place);
    }
    light();
    detail();
    listAll();
  }
  function take(side, place) {
    const other = side === "train" ? "test" : "train";
    chosen[other].delete(place);
    if (!chosen[side].delete(place)) chosen[side].add(place);
    light();
    split();
    detail();
  }

  // One tab stop for all nodes; arrows go to the nearest node that way.
  function rove(place) {
    for (const element of drawn) element.tabIndex = -1;
    drawn[place].tabIndex = 0;
  }
  function beside(place, dx, dy) {
    const [x, y] = nodes[place].at;
    let best = null;
    let least = Infinity;
    nodes.forEach((node, other) => {
      const along = (node.at[0] - x) * dx + (node.at[1] - y) * dy;
      const across = Math.abs((node.at[0] - x) * dy) + Math.abs((node.at[1] - y) * dx);
      const cost = along + 2.2 * across;
      if (other !== place && along > 1 && cost < least) { least = cost; best = other; }
    });
    return best;
  }
  const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  drawn.forEach((element, place) => {
    const [x, y, r] = nodes[place].at;
    const ring = document.createElementNS(SVG, "circle");
    for (const [name, value] of [["class", "ring"], ["cx", x], ["cy", y], ["r", r + 4]]) ring.setAttribute(name, value);
    element.insertBefore(ring, one(".name", element));
    element.setAttribute("role", "button");
    element.setAttribute("aria-label", nodes[place].name + ", " + images(nodes[place].size));
    element.addEventListener("click", () => { if (moved <= 4) select(place === selected ? null : place); });
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const acts = { Enter: () => select(place), " ": () => select(place), t: () => take("train", place), e: () => take("test", place) };
      if (ARROWS[event.key]) {
        const to = beside(place, ...ARROWS[event.key]);
        if (to !== null) { rove(to); drawn[to].focus({ preventScroll: true }); show(to); }
      } else if (acts[event.key]) {
        acts[event.key]();
      } else {
        return;
      }
      event.preventDefault();
    });
  });
  svg.addEventListener("keydown", (event) => {
    const acts = { "+": zooms.in, "=": zooms.in, "-": zooms.out, 0: fit };
    if (acts[event.key] && !event.ctrlKey && !event.metaKey) { acts[event.key](); event.preventDefault(); }
  });
  svg.addEventListener("click", (event) => {
    if (!event.target.closest(".node") && moved <= 4 && selected !== null) select(null);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && (selected !== null || words)) {
      words = "";
      form.elements.words.value = "";
      select(null);
    }
  });
  form.elements.words.addEventListener("input", () => {
    words = form.elements.words.value.trim().toLowerCase();
    light();
    listAll();
  });
  form.elements.words.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const found = order().find((place) => !words || matches(place));
    if (found !== undefined && words) { select(found); show(found); }
  });

  // ---- train and test ----------------------------------------------------------------------------

  function split() {
    for (const side of ["train", "test"]) {
      const list = one(`[data-chosen="${side}"]`);
      const items = Array.from(chosen[side]).sort((a, b) => a - b).map((place) => make("li", {},
        make("button", { type: "button", class: "go", text: nodes[place].label, onclick: () => { select(place); show(place); } }),
        make("button", { type: "button", "aria-label": "remove " + nodes[place].name + " from " + side, text: "×", onclick: () => take(side, place) })));
      list.replaceChildren(...(items.length ? items : [make("li", { class: "none", text: "none yet" })]));
    }
    const holder = one("[data-split]");
    delete holder.dataset.distance;
    if (!chosen.train.size && !chosen.test.size) {
      holder.replaceChildren(make("p", { class: "quiet", text: "Open a node and take it for training or testing." }));
      return;
    }
    if (!known) {
      holder.replaceChildren(make("p", { class: "quiet", text: "The images of these nodes are not in this page, so sizes of unions are not known." }));
      return;
    }
    const train = union(chosen.train);
    const test = union(chosen.test);
    let both = 0;
    for (const image of train) if (test.has(image)) both += 1;
    const apart = distance(chosen.train, chosen.test);
    const facts = [
      ["train images", countText(train.size), ""],
      ["test images", countText(test.size), ""],
      ["in both", countText(both), ""],
    ];
    if (apart !== null) facts.unshift(["distance", apart.value.toFixed(3), "lead"]);
    holder.replaceChildren(make("dl", { class: "numbers" }, ...facts.map(([name, value, kind]) =>
      make("div", { class: kind || null }, make("dt", { text: name }), make("dd", { text: value })))));
    if (apart !== null) holder.dataset.distance = String(apart.value);
    if (apart !== null && apart.low !== null) {
      holder.append(make("p", { class: "quiet", text: `Distance ${apart.low.toFixed(2)} to ${apart.high.toFixed(2)} by the jackknife over images; 0: they are alike, 1: nothing in common.` }));
    }
    if (train.size && test.size) {
      const said = both ? `Without the ${countText(both)} shared, training has ${countText(train.size - both)}. ` : "";
      holder.append(make("p", { class: "quiet" }, said,
        make("button", { type: "button", class: "plain", text: "Save the two lists", onclick: () => save(train, test) })));
    }
  }
  const quoted = (text) => (/[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text);
  function save(train, test) {
    const rows = ["image,part"];
    const sorted = (set) => Array.from(set).sort((a, b) => a - b);
    for (const image of sorted(train)) if (!test.has(image)) rows.push(quoted(data.images[image]) + ",train");
    for (const image of sorted(test)) rows.push(quoted(data.images[image]) + ",test");
    const href = URL.createObjectURL(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }));
    const link = make("a", { href, download: "split.csv" });
    document.body.append(link);
    link.click();
    link.remove();
  }

  // ---- one node ----------------------------------------------------------------------------------

  function detail() {
    const holder = one("[data-selected]");
    if (selected === null) {
      holder.replaceChildren(make("h2", { text: "No node chosen" }),
        make("p", { class: "quiet", text: "Choose one in the picture or in the table below." }));
      return;
    }
    const node = nodes[selected];
    const group = data.communities[community[selected]];
    const parts = [
      make("h2", { text: node.name }),
      make("p", { class: "quiet", text: images(node.size) + ", " + (group.length > 1 ? `community ${community[selected] + 1} with ${group.length - 1} other${group.length > 2 ? "s" : ""}` : "a community of its own") }),
      make("div", { class: "pick" }, ...["train", "test"].map((side) => make("button", {
        type: "button",
        "data-take": side,
        "aria-pressed": String(chosen[side].has(selected)),
        text: chosen[side].has(selected) ? "in " + side : side === "train" ? "Take for training" : "Take for testing",
        onclick: () => { const place = selected; take(side, place); one(`[data-take="${side}"]`).focus(); },
      }))),
    ];
    const scored = Object.entries(node.scores);
    if (scored.length) {
      parts.push(make("h3", { text: data.metric.charAt(0).toUpperCase() + data.metric.slice(1) }), scores(scored));
    }
    if (node.traits.length) {
      parts.push(make("h3", { text: "What is unusual here" }), rows(node.traits.map(([label, lift, low, high]) => [
        label, lift.toFixed(1) + "×", low === null || high === null ? "" : low.toFixed(1) + "–" + high.toFixed(1)])));
    } else if (nodes.some((other) => other.traits.length)) {
      parts.push(make("h3", { text: "What is unusual here" }),
        make("p", { class: "quiet", text: "Nothing is surely more frequent than in all images of the graph." }));
    }
    for (const [name, title] of [["nearest", "Nearest"], ["farthest", "Farthest"]]) {
      if (node[name].length) parts.push(make("h3", { text: title }), siblings(node[name]));
    }
    parts.push(...pictures(members[selected]));
    holder.replaceChildren(...parts);
  }
  function scores(scored) {
    const body = make("tbody");
    for (const [name, [value, low, high]] of scored) {
      const bar = make("div", { class: "bar" });
      if (data.share) {
        const reach = make("i");
        reach.style.left = 100 * (low === null ? value : low) + "%";
        reach.style.width = 100 * (low === null ? 0 : high - low) + "%";
        const at = make("b");
        at.style.left = `calc(${100 * value}% - 1px)`;
        bar.append(reach, at);
      }
      body.append(make("tr", {}, make("td", { text: name }), make("td", {}, bar),
        make("td", { class: "number" }, valueText(value) + " ", make("small", { text: rangeText(low, high) }))));
    }
    return make("table", { class: "rows" }, body);
  }
  function rows(list) {
    return make("table", { class: "rows" }, make("tbody", {}, ...list.map(([label, value, range]) => make("tr", {},
      make("td", { text: label }), make("td", { class: "number" }, value + " ", make("small", { text: range }))))));
  }
  function siblings(list) {
    return make("table", { class: "rows" }, make("tbody", {}, ...list.map(([place, far]) => make("tr", {},
      make("td", {}, make("button", { type: "button", class: "plain", text: nodes[place].label, onclick: () => { select(place); show(place); } })),
      make("td", { class: "number", text: far.toFixed(3) })))));
  }
  function pictures(list) {
    const there = list.filter((image) => data.thumbnails[image] !== undefined).slice(0, MOST_IMAGES);
    if (there.length) {
      return [make("h3", { text: `Images, ${there.length} of ${countText(list.length)}` }),
        make("div", { class: "thumbs" }, ...there.map((image) => make("img", {
          src: data.thumbnails[image], alt: data.images[image], title: data.images[image], loading: "lazy" })))];
    }
    if (!list.length || !data.images.length) return [];
    const shown = list.slice(0, 12).map((image) => data.images[image]).join(", ");
    return [make("h3", { text: "Images" }),
      make("p", { class: "quiet", text: shown + (list.length > 12 ? " and " + countText(list.length - 12) + " more" : "") })];
  }

  // ---- all nodes as a table ----------------------------------------------------------------------

  const sort = { key: "size", direction: -1 };
  const keys = {
    name: (place) => nodes[place].label.toLowerCase(),
    size: (place) => nodes[place].size,
    score: (place) => { const by = model(); const score = by && nodes[place].scores[by.name]; return score ? score[0] : -Infinity; },
  };
  function order() {
    const key = keys[sort.key === "score" && !model() ? "size" : sort.key];
    return nodes.map((_, place) => place).sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return (x < y ? -1 : x > y ? 1 : 0) * sort.direction || a - b;
    });
  }
  function listAll() {
    const table = one("[data-all]");
    table.className = "rows";
    const by = model();
    const heads = [["name", "Name", ""], ["size", "images", "number"], ...(by ? [["score", by.name, "number"]] : [])];
    const head = make("tr", {}, ...heads.map(([key, text, kind]) => make("th", {
      scope: "col",
      class: kind || null,
      "aria-sort": sort.key === key ? (sort.direction > 0 ? "ascending" : "descending") : null,
    }, make("button", { type: "button", text, onclick: () => {
      sort.direction = sort.key === key ? -sort.direction : key === "name" ? 1 : -1;
      sort.key = key;
      listAll();
    } }))));
    const body = make("tbody", {}, ...order().filter((place) => !words || matches(place)).map((place) => {
      const dot = make("span", { class: "dot" });
      dot.style.background = colour(place);
      const score = by && nodes[place].scores[by.name];
      return make("tr", { class: place === selected ? "on" : null },
        make("td", {}, dot, make("button", { type: "button", class: "go", text: nodes[place].label, onclick: () => { select(place); show(place); } })),
        make("td", { class: "number", text: countText(nodes[place].size) }),
        ...(by ? [make("td", { class: "number" }, score ? valueText(score[0]) + " " : "", make("small", { text: score ? rangeText(score[1], score[2]) : "" }))] : []));
    }));
    table.replaceChildren(make("thead", {}, head), body);
  }

  // ---- light and dark ----------------------------------------------------------------------------

  one("[data-theme-switch]").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  rove(order()[0]);
  fit();
  paint();
  light();
  split();
  detail();
  document.documentElement.dataset.ready = "true";
}());
