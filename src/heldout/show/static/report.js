// The page's own script: figures, tables, provenance, downloads. Text from the data reaches the
// document only through textContent and attribute setters, never as markup.
(function () {
  "use strict";

  const NARROW = 520;
  const LETTER = 6.3;
  const PAGE_ROWS = 50;
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#a04c82"];
  const SLOT_MARKS = ["M6 1a5 5 0 1 0 .01 0z", "M1.5 1.5h9v9h-9z", "M6 1l5.3 9.5H.7z", "M6 .3L11.7 6 6 11.7.3 6z"];

  const { all, one, make } = dom;

  // ---- records ---------------------------------------------------------------------------------

  const packed = JSON.parse(one("#records").textContent);

  function column(kind, name) {
    const table = packed[kind];
    const stored = table.columns[table.fields.indexOf(name)];
    if (Array.isArray(stored)) return (row) => stored[row];
    if (Array.isArray(stored.codes)) return (row) => stored.values[stored.codes[row]];
    return () => stored.values[0];
  }

  function records(kind) {
    const table = packed[kind];
    if (!table) return [];
    const columns = table.fields.map((name) => [name, column(kind, name)]);
    return Array.from({ length: table.rows }, (_, row) => {
      const record = { record: kind };
      for (const [name, get] of columns) record[name] = get(row);
      return record;
    });
  }

  const scoreColumns = packed.score
    ? Object.fromEntries(packed.score.fields.map((name) => [name, column("score", name)]))
    : {};
  // A rank or a forgiven accuracy is another number than the metric itself: top1, top1_rank.
  const scoreName = (row) => scoreColumns.metric(row) +
    (scoreColumns.statistic(row) === "value" ? "" : "_" + scoreColumns.statistic(row));
  // Metrics that are not shares, with their decimals; all others are shown in percent.
  const PLAIN = new Map(Object.entries(JSON.parse(one("#plain").textContent)));

  const minus = (text) => text.replace("-", "−");
  const numberText = (metric, value, digits) =>
    minus(PLAIN.has(metric) ? value.toFixed(PLAIN.get(metric)) : (100 * value).toFixed(digits));
  const countText = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

  function facts(row) {
    const get = (name) => scoreColumns[name](row);
    const metric = scoreName(row);
    const share = PLAIN.has(metric) ? "" : " %";
    const list = make("dl", { class: "facts" });
    const add = (name, value, hash) => {
      if (value === null || value === "") return;
      list.append(make("dt", { text: name }), make("dd", { text: value, class: hash ? "hash" : null }));
    };
    add("score", numberText(metric, get("value"), 3) + share + " of " + countText(get("n")) + " images");
    if (get("low") !== null && get("high") !== null) {
      const level = get("level") === null ? "" : minus(String(+(100 * get("level")).toPrecision(4))) + " % ";
      const ends = numberText(metric, get("low"), 2) + " to " + numberText(metric, get("high"), 2) + share;
      add("interval", ends + " (" + level + (get("interval") || "") + ")");
    }
    for (const name of ["model", "testset", "metric", "slice", "truth", "label_map"]) {
      add(name === "testset" ? "test set" : name.replace("_", " "), name === "metric" ? metric : get(name));
    }
    add("test set hash", get("testset_hash"), true);
    add("predictions hash", get("predictions_hash"), true);
    return list;
  }

  // ---- floating cards --------------------------------------------------------------------------

  function place(card, x, y) {
    card.hidden = false;
    const box = card.getBoundingClientRect();
    const left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8));
    const below = y + 18;
    const top = below + box.height > innerHeight - 8 ? Math.max(8, y - box.height - 14) : below;
    card.style.left = left + "px";
    card.style.top = top + "px";
  }

  const card = one("#card");
  function showCard(target) {
    card.replaceChildren(facts(Number(target.dataset.score)));
    const box = target.getBoundingClientRect();
    place(card, box.left, box.bottom - 12);
    target.setAttribute("aria-describedby", "card");
  }
  function hideCard() {
    card.hidden = true;
    for (const element of all("[aria-describedby=card]")) element.removeAttribute("aria-describedby");
  }
  const scored = (event) => (event.target.closest ? event.target.closest("[data-score]") : null);
  for (const [name, act] of [["pointerover", showCard], ["focusin", showCard], ["click", showCard]]) {
    document.addEventListener(name, (event) => {
      const target = scored(event);
      if (target) act(target);
      else if (name === "click") hideCard();
    });
  }
  for (const name of ["pointerout", "focusout"]) {
    document.addEventListener(name, (event) => { if (scored(event)) hideCard(); });
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideCard(); });
  addEventListener("scroll", () => { if (!card.hidden) hideCard(); }, { passive: true });

  // One tab stop a table; arrows move between its scores.
  for (const table of all("table.board")) {
    const first = one("[data-score]", table);
    for (const cell of all("[data-score]", table)) cell.tabIndex = cell === first ? 0 : -1;
    table.addEventListener("keydown", (event) => {
      const from = scored(event);
      const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
      if (!from || !step) return;
      const rows = all("tbody tr", table).map((row) => all("[data-score]", row));
      const y = rows.findIndex((row) => row.includes(from));
      const row = rows[y + step[0]];
      const to = row && row[Math.min(rows[y].indexOf(from) + step[1], row.length - (step[0] ? 1 : 0))];
      if (!to) return;
      from.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
      event.preventDefault();
    });
  }

  // ---- figures ---------------------------------------------------------------------------------

  const tip = make("div", { id: "tip", role: "tooltip", hidden: true });
  document.body.append(tip);
  const tooltip = (titles) => (handler, event, item, value) => {
    if (!value || typeof value !== "object") { tip.hidden = true; return; }
    const list = make("dl", { class: "facts" });
    for (const [field, text] of Object.entries(value)) {
      list.append(make("dt", { text: titles[field] || field }), make("dd", { text: String(text) }));
    }
    tip.replaceChildren(list);
    place(tip, event.clientX, event.clientY);
  };

  // Nothing may be loaded from a figure: its data are inside it.
  const refuse = () => Promise.reject(new Error("figures load nothing"));
  const loader = Object.assign(vega.loader(), { load: refuse, sanitize: refuse, http: refuse, file: refuse });

  const drawings = new Map();
  let shown = null;
  let chosen = null;

  function fitted(spec, width) {
    const fit = structuredClone(spec);
    const meta = fit.usermeta;
    fit.width = meta.square ? Math.min(width, 480) : Math.min(width, 980);
    if (meta.square) fit.height = fit.width;
    fit.config.axis.titleLimit = Math.round(0.86 * fit.width);
    if (width < NARROW) {
      fit.config.axis.labelLimit = Math.round(width * 0.34);
      fit.config.legend.labelLimit = Math.round(width * 0.8);
    }
    for (const change of meta.narrow) {
      if (width >= change.below) continue;
      for (const [path, value] of Object.entries(change.set)) {
        const keys = path.split(".");
        const last = keys.pop();
        keys.reduce((part, key) => part[key], fit)[last] = value;
      }
    }
    const models = (fit.params || []).find((param) => param.name === "shown");
    if (models && shown) models.value = shown.slice();
    const single = (fit.params || []).find((param) => param.name === "chosen");
    if (single && chosen !== null) single.value = chosen;
    const names = meta.names.length && models ? models.value : meta.names;
    const widest = LETTER * Math.max(1, ...names.map((name) => name.length)) + 44;
    fit.config.legend.columns = Math.max(1, Math.floor((0.68 * fit.width) / widest));
    // The page names the figure above it; a still picture does so in its own heading.
    const heading = (fit.params || []).find((param) => param.name === "heading");
    if (heading) heading.value = "";
    return fit;
  }

  async function draw(plot) {
    const figure = plot.closest("figure");
    const width = Math.floor(plot.clientWidth);
    const known = drawings.get(plot);
    if (!width || (known && known.width === width)) return;
    if (known) known.view.finalize();
    const entry = { width, view: { finalize() {} } };
    drawings.set(plot, entry);
    try {
      const spec = JSON.parse(one("script.spec", figure).textContent);
      const compiled = vegaLite.compile(fitted(spec, width)).spec;
      const runtime = vega.parse(compiled, null, { ast: true });
      const view = new vega.View(runtime, { loader, renderer: "svg", expr: vegaInterpreter.expressionInterpreter });
      view.tooltip(tooltip(spec.usermeta.titles)).initialize(plot).hover();
      await view.runAsync();
      entry.view = view;
      // The figure is one picture with one description; its parts are not read out one by one.
      const svg = one("svg", plot);
      if (svg) svg.setAttribute("aria-hidden", "true");
      plot.dataset.drawn = "true";
    } catch (error) {
      plot.replaceChildren(make("p", { class: "failed", text: "This figure could not be drawn." }));
      console.error(error);
    }
  }

  const plots = all(".plot");
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "500px 0px" });
  const visible = (plot) => !plot.closest("[hidden]");
  function redraw() {
    for (const plot of plots) if (drawings.has(plot) && visible(plot)) draw(plot);
  }
  let pause = 0;
  addEventListener("resize", () => { clearTimeout(pause); pause = setTimeout(redraw, 150); });
  addEventListener("beforeprint", () => { for (const plot of plots) if (visible(plot)) draw(plot); });

  function save(name, format) {
    const plot = plots.find((candidate) => candidate.dataset.figure === name);
    draw(plot).then(async () => {
      const view = drawings.get(plot).view;
      const href = format === "svg"
        ? URL.createObjectURL(new Blob([await view.toSVG()], { type: "image/svg+xml" }))
        : await view.toImageURL("png", 2);
      download(href, name + "." + format);
    });
  }
  function download(href, name) {
    const link = make("a", { href, download: name });
    document.body.append(link);
    link.click();
    link.remove();
  }
  for (const holder of all("[data-save]")) {
    for (const format of ["svg", "png"]) {
      holder.append(make("button", {
        type: "button",
        text: format.toUpperCase(),
        "aria-label": "save " + holder.dataset.save + " as " + format.toUpperCase(),
        onclick: () => save(holder.dataset.save, format),
      }));
    }
  }

  function choose(choice) {
    for (const button of all("[data-choose]")) {
      button.setAttribute("aria-pressed", String(button.dataset.choose === choice));
    }
    for (const place of all("#accuracy .place")) {
      const offered = all("figure[data-choice]", place);
      const chosen = offered.find((figure) => figure.dataset.choice === choice) || offered[0];
      for (const figure of offered) figure.hidden = figure !== chosen;
    }
    redraw();
  }
  const choices = all("[data-choose]");
  for (const button of choices) button.addEventListener("click", () => choose(button.dataset.choose));
  if (choices.length) choose(choices[0].dataset.choose);
  for (const plot of plots) seen.observe(plot);

  // ---- the models on show among slices ---------------------------------------------------------

  const slots = one("[data-slots]");
  if (slots && packed.score) {
    const specs = all("#slices script.spec").map((script) => JSON.parse(script.textContent));
    const given = specs.map((spec) => (spec.params || []).find((param) => param.name === "shown"));
    const first = given.find(Boolean);
    const names = new Set();
    for (const spec of specs) for (const row of spec.data.values) names.add(row.model);
    const models = Array.from(names).sort();
    const start = first ? first.value : [];
    for (let slot = 0; slot < Math.min(4, models.length); slot += 1) {
      const select = make("select", { "aria-label": "model " + (slot + 1) + " on show" });
      if (slot) select.append(make("option", { value: "", text: "none" }));
      for (const model of models) select.append(make("option", { value: model, text: model }));
      select.value = start[slot] || "";
      select.addEventListener("change", () => {
        const chosen = all("select", slots).map((element) => element.value);
        shown = chosen.filter((name, place) => name && chosen.indexOf(name) === place);
        for (const plot of all("#slices .plot")) {
          const entry = drawings.get(plot);
          if (!entry) continue;
          entry.width = -1; // rows and legends change in number: lay the figure out anew
          if (visible(plot)) draw(plot);
        }
      });
      const mark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      for (const [name, value] of [["width", 12], ["height", 12], ["aria-hidden", "true"]]) mark.setAttribute(name, value);
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      path.setAttribute("d", SLOT_MARKS[slot]);
      path.setAttribute("fill", COLOURS[slot]);
      mark.append(path);
      slots.append(make("label", {}, mark, select));
    }
  }

  // ---- the model whose mistakes are on show -----------------------------------------------------

  const chooser = one("[data-chosen]");
  if (chooser) {
    const specs = all("#mistakes script.spec").map((script) => JSON.parse(script.textContent));
    const names = new Set();
    for (const spec of specs.filter((spec) => spec.params.some((param) => param.name === "chosen"))) {
      for (const row of spec.layer[0].data.values) names.add(row.model);
    }
    for (const name of names) chooser.append(make("option", { value: name, text: name }));
    chooser.closest("label").hidden = names.size < 2;
    chooser.addEventListener("change", () => {
      chosen = chooser.value;
      for (const plot of all("#mistakes .plot")) {
        const entry = drawings.get(plot);
        if (!entry) continue;
        entry.width = -1;
        if (visible(plot)) draw(plot);
      }
    });
  }

  // ---- sorting of tables that stand in the page ------------------------------------------------

  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  function compare(a, b, numeric) {
    return numeric ? Number(a) - Number(b) : collator.compare(a, b);
  }
  // Rows without a value stay last in both directions.
  function ordered(rows, key, numeric, direction) {
    const missing = (value) => value === "" || value === null || value === undefined;
    const have = rows.filter((row) => !missing(key(row)));
    const lack = rows.filter((row) => missing(key(row)));
    have.sort((a, b) => direction * compare(key(a), key(b), numeric));
    return have.concat(lack);
  }
  function nextDirection(header, numeric) {
    const now = header.getAttribute("aria-sort");
    if (!now) return numeric ? -1 : 1;
    return now === "ascending" ? -1 : 1;
  }
  function mark(header, direction) {
    for (const other of all("th[aria-sort]", header.closest("thead"))) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  }
  for (const table of all("table.sortable")) {
    // A header over two rows counts once; the second row's headers follow the spanning ones.
    const headers = all("th[data-sort]", table);
    headers.forEach((header, index) => {
      one("button", header).addEventListener("click", () => {
        const numeric = header.dataset.sort === "number";
        const direction = nextDirection(header, numeric);
        const body = one("tbody", table);
        const key = (row) => {
          const cell = row.cells[index];
          return cell.dataset.value === undefined ? cell.textContent.trim() : cell.dataset.value;
        };
        body.append(...ordered(Array.from(body.rows), key, numeric, direction));
        mark(header, direction);
      });
    });
  }

  // ---- the table of all scores -----------------------------------------------------------------

  const table = one("[data-scores]");
  if (table && packed.score) {
    const form = one("[data-filters]");
    const pager = one("[data-pager]");
    const get = { ...scoreColumns, metric: scoreName };
    const total = packed.score.rows;
    const everyRow = Array.from({ length: total }, (_, row) => row);
    const text = everyRow.map((row) =>
      ["model", "testset", "metric", "slice", "truth"].map((name) => get[name](row)).join(" ").toLowerCase());
    const sliced = everyRow.some((row) => get.slice(row) !== "all");
    const columns = [
      { name: "Model", key: "model" },
      { name: "test set", key: "testset" },
      { name: "metric", key: "metric" },
      { name: "slice", key: "slice", hide: !sliced },
      { name: "n", key: "n", numeric: true, narrow: true },
      { name: "score", key: "value", numeric: true },
      { name: "interval", key: "low", numeric: true, narrow: true },
      { name: "truth", key: "truth", narrow: true },
    ].filter((entry) => !entry.hide);
    let sort = null;
    let page = 0;
    let rows = everyRow;

    for (const name of ["testset", "metric"]) {
      const distinct = Array.from(new Set(everyRow.map(get[name])));
      for (const value of distinct) form.elements[name].append(make("option", { value, text: value }));
      if (distinct.length < 2) form.elements[name].closest("label").hidden = true;
    }
    form.elements.whole.checked = sliced;
    form.elements.whole.closest("label").hidden = !sliced;

    const head = make("tr", {}, make("th", { scope: "col", class: "open" }, make("span", { text: "" })));
    for (const entry of columns) {
      const header = make("th", { scope: "col", class: classes(entry) },
        make("button", { type: "button", text: entry.name, onclick: () => {
          const direction = nextDirection(header, entry.numeric);
          sort = { entry, direction };
          mark(header, direction);
          page = 0;
          update();
        } }));
      head.append(header);
    }
    const body = make("tbody");
    table.append(make("thead", {}, head), body);

    function classes(entry) {
      return [entry.numeric ? "number" : "", entry.narrow ? "narrow-hide" : ""].join(" ").trim() || null;
    }
    function cellText(entry, row) {
      const metric = get.metric(row);
      if (entry.key === "value") return numberText(metric, get.value(row), 2) + (PLAIN.has(metric) ? "" : " %");
      if (entry.key === "low") {
        if (get.low(row) === null || get.high(row) === null) return "";
        return numberText(metric, get.low(row), 2) + "–" + numberText(metric, get.high(row), 2);
      }
      if (entry.key === "n") return countText(get.n(row));
      return get[entry.key](row);
    }
    function line(row) {
      const toggle = make("button", { type: "button", "aria-expanded": "false", "aria-label": "where this score comes from", text: "▸" });
      const element = make("tr", { "data-row": row }, make("td", { class: "open" }, toggle));
      columns.forEach((entry, index) => {
        element.append(make(index ? "td" : "th", { class: classes(entry), scope: index ? null : "row", text: cellText(entry, row) }));
      });
      toggle.addEventListener("click", () => {
        const open = toggle.getAttribute("aria-expanded") === "true";
        toggle.setAttribute("aria-expanded", String(!open));
        toggle.textContent = open ? "▸" : "▾";
        if (open) element.nextElementSibling.remove();
        else element.after(make("tr", { class: "detail" }, make("td", { colspan: columns.length + 1 }, facts(row))));
      });
      return element;
    }
    function filter() {
      const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
      const testset = form.elements.testset.value;
      const metric = form.elements.metric.value;
      const whole = form.elements.whole.checked;
      rows = everyRow.filter((row) =>
        (!testset || get.testset(row) === testset) &&
        (!metric || get.metric(row) === metric) &&
        (!whole || get.slice(row) === "all") &&
        words.every((word) => text[row].includes(word)));
      page = 0;
      update();
    }
    function update() {
      if (sort) rows = ordered(rows.slice(), get[sort.entry.key], sort.entry.numeric, sort.direction);
      const pages = Math.max(1, Math.ceil(rows.length / PAGE_ROWS));
      page = Math.min(page, pages - 1);
      const start = page * PAGE_ROWS;
      const now = rows.slice(start, start + PAGE_ROWS);
      body.replaceChildren(...now.map(line));
      if (!now.length) body.append(make("tr", {}, make("td", { colspan: columns.length + 1, text: "No score fits the filter." })));
      form.elements.found.value = countText(rows.length) + " of " + countText(total) + " scores";
      const turn = (name, by, stop) => make("button", { type: "button", text: name, disabled: stop, onclick: () => { page += by; update(); } });
      pager.replaceChildren(...(pages < 2 ? [] : [
        turn("previous", -1, page === 0),
        make("span", { text: countText(start + 1) + "–" + countText(start + now.length) }),
        turn("next", 1, page === pages - 1),
      ]));
    }
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    filter();
  }

  // ---- downloads -------------------------------------------------------------------------------

  const kinds = Object.keys(packed);
  function asJson() {
    const lines = kinds.flatMap(records).map((record) => JSON.stringify(record));
    return "[\n" + lines.join(",\n") + "\n]\n";
  }
  function asCsv() {
    // A leading =, +, - or @ in text would run as a formula in a spreadsheet.
    const quote = (value) => {
      if (value === null || value === undefined) return "";
      const raw = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? "'" + value : String(value);
      return /[",\r\n]/.test(raw) ? '"' + raw.replace(/"/g, '""') + '"' : raw;
    };
    const fields = packed.score.fields;
    const lines = records("score").map((record) => fields.map((name) => quote(record[name])).join(","));
    return [fields.join(","), ...lines].join("\n") + "\n";
  }
  const downloads = one("[data-downloads]");
  if (downloads) {
    for (const [name, type, text] of [
      ["records.json", "application/json", asJson],
      ["scores.csv", "text/csv", asCsv],
    ]) {
      downloads.append(make("button", { type: "button", text: name, "aria-label": "download " + name, onclick: () =>
        download(URL.createObjectURL(new Blob([text()], { type })), name) }));
    }
  }

  // ---- which section is being read -------------------------------------------------------------

  const links = new Map(all("nav a").map((link) => [link.getAttribute("href").slice(1), link]));
  const reading = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      const link = links.get(entry.target.id);
      if (link) link.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -75% 0px" });
  reading.observe(one("main > header"));
  for (const id of links.keys()) {
    const section = document.getElementById(id);
    if (section) reading.observe(section);
  }
})();
