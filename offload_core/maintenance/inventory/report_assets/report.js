"use strict";
(function () {
  // All text that comes from a store is set as text. Marks are placed by `style.setProperty`, which the policy allows.
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const contents = document.getElementById("contents");
  const tip = document.getElementById("tip");
  const root = document.documentElement;
  const STATES = {
    cold: "in the tier only",
    both: "in the tier and in BookKeeper",
    hot: "in BookKeeper only",
    problem: "in the tier, cannot be read",
  };
  const UNITS = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"];
  const HIDES = 50; // a largest value hides one that is smaller by this factor: a pixel or two are left of it
  const MOST_LABELS = { day: 7, month: 12, year: 12 };
  const LONG = 250; // rows of a table that are made at once; more of them come after the page is shown

  function element(name, properties, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties || {})) {
      if (key === "text") made.textContent = value;
      else if (key === "tip") made.dataset.tip = value;
      else if (key.startsWith("--")) made.style.setProperty(key, value);
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  // --- numbers -----------------------------------------------------------------------------------

  function count(value) {
    return value === null || value === undefined ? "–" : Number(value).toLocaleString("en-GB");
  }

  function size(value) {
    if (value === null || value === undefined) return "–";
    let at = 0;
    let left = value;
    while (left >= 1000 && at < UNITS.length - 1) {
      left /= 1000;
      at += 1;
    }
    if (!at) return value === 1 ? "1 byte" : `${value} bytes`;
    return `${left.toFixed(1)} ${UNITS[at]}`;
  }

  function short(topic) {
    return topic.replace(/^persistent:\/\//, "");
  }

  function sum(values) {
    return values.reduce((all, each) => all + each, 0);
  }

  function hides(values) {
    const sorted = values.filter((value) => value > 0).sort((a, b) => a - b);
    return sorted.length > 1 && sorted[sorted.length - 1] > HIDES * sorted[(sorted.length - 1) >> 1];
  }

  // An axis for whole numbers, from 0 on or of powers of ten: its ticks, and where a value is, from 0 to 1.
  function axis(values, log) {
    const positive = values.filter((value) => value > 0);
    const most = Math.max(1, ...positive);
    if (log) {
      const low = Math.max(0, Math.ceil(Math.log10(Math.min(...positive))) - 1);
      const high = Math.max(low + 1, Math.ceil(Math.log10(most)));
      const step = Math.ceil((high - low) / 6);
      const powers = Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, at) => low + at * step);
      return {
        ticks: powers.map((power) => 10 ** power),
        place: (value) => (value > 0 ? Math.max(0, (Math.log10(value) - low) / (high - low)) : 0),
      };
    }
    const rough = most / 4;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].find((each) => each * power >= rough) * power);
    const steps = Math.ceil(most / step);
    return {
      ticks: Array.from({ length: steps + 1 }, (_, at) => at * step),
      place: (value) => value / (steps * step),
    };
  }

  function tick(value, text) {
    return text(value).replace(/\.0 /, " ");
  }

  const percent = (part) => `${(100 * part).toFixed(3)}%`;

  // --- sections and tables -----------------------------------------------------------------------

  function section(id, title) {
    const made = element("section", { id, "aria-labelledby": `${id}-title` });
    made.append(element("h2", { id: `${id}-title`, text: title }));
    main.append(made);
    contents.append(element("li", {}, element("a", { href: `#${id}`, text: title })));
    contents.parentElement.hidden = contents.childElementCount < 2;
    return made;
  }

  // Put it in the place of what had its id; the focus stays.
  function show(place, id, made) {
    made.id = id;
    const before = document.getElementById(id);
    const held = before && before === document.activeElement;
    if (before) before.replaceWith(made);
    else place.append(made);
    if (held) made.focus();
  }

  // A value as text; what is between backticks is code.
  function prose(value) {
    if (value === null || value === undefined) return ["–"];
    return String(value).split("`").map((text, at) => (at % 2 ? element("code", { text }) : text));
  }

  function line(columns, row) {
    const made = element("tr");
    row.forEach((value, at) => {
      const column = columns[at];
      const own = ["number", "date", "name", "words", "prose"].find((each) => column[each]) || "";
      const kind = column.kind ? column.kind(row) : "";
      made.append(element("td", { class: `${own} ${kind}`.trim() }, ...prose(value)));
    });
    return made;
  }

  function table(place, id, caption, columns, rows) {
    const made = element("table", { id });
    made.append(element("caption", { text: caption }));
    const head = element("tr");
    for (const column of columns) {
      const kind = `${column.number ? "number" : ""} ${column.title.length > 16 ? "long-title" : ""}`.trim();
      head.append(element("th", { scope: "col", class: kind, text: column.title }));
    }
    made.append(element("thead", {}, head));
    const body = element("tbody");
    const fill = (from) => {
      for (const row of rows.slice(from, from + LONG)) body.append(line(columns, row));
      if (from + LONG < rows.length) setTimeout(fill, 0, from + LONG);
    };
    fill(0);
    made.append(body);
    const around = element("div", {
      class: rows.length > LONG ? "scroll long" : "scroll", tabindex: "0", role: "region", "aria-label": caption,
    });
    around.append(made);
    show(place, `${id}-around`, around);
  }

  // --- charts: `figure`s of plain elements, which the style draws; a mark has its figures in `data-tip` -----------

  function chart(place, id, title, { legend = [], log = false, note = "" }, plot) {
    const notes = [log ? "The axis is logarithmic" : "", note].filter(Boolean).join(": ");
    const made = element("figure", {
      class: "chart", tabindex: "0", role: "img",
      "aria-label": `${title}. ${notes && `${notes}. `}A table has the same. Left and right arrow keys go through the marks.`,
    });
    made.append(element("figcaption", { text: title }));
    if (notes) made.append(element("p", { class: "note", text: `${notes}.` }));
    if (legend.length) {
      made.append(element("ul", { class: "legend" }, ...legend.map(([kind, text]) => (
        element("li", {}, element("i", { class: `mark ${kind}` }), element("span", { text }))))));
    }
    made.append(plot);
    show(place, id, made);
  }

  // Rows of { name, parts: [{ value, kind, tip }] }; with `log`, a bar's length is of the sum, and its parts share it.
  function bars(place, id, title, rows, { text = size, log = false, ...more }) {
    const totals = rows.map((row) => sum(row.parts.map((part) => part.value)));
    const { ticks, place: at } = axis(totals, log);
    const plot = element("div", { class: "bars" });
    plot.append(element("div", { class: "lines" }, ...ticks.map((each) => element("i", { "--at": percent(at(each)) }))));
    rows.forEach((row, index) => {
      const bar = element("div", { class: "bar", "--length": percent(at(totals[index])) });
      for (const part of row.parts) {
        if (part.value > 0) {
          const share = String(part.value / totals[index]);
          bar.append(element("i", { class: `mark ${part.kind}`, "--share": share, tip: part.tip }));
        }
      }
      plot.append(element("div", { class: "row" },
        element("span", { class: "name", title: row.name, text: row.name }),
        element("div", { class: "track" }, bar),
        element("span", { class: "value", text: text(totals[index]) })));
    });
    plot.append(element("div", { class: "ticks" }, ...ticks.map((each) => (
      element("span", { "--at": percent(at(each)), text: tick(each, text) })))));
    const note = log && rows.some((row) => row.parts.length > 1) ? "the parts of a bar share its length" : "";
    chart(place, id, title, { log, note, ...more }, plot);
  }

  // Columns of one step each; series of { name, values, kind }. With `log`, points; with `area`, one series as an area.
  function columns(place, id, title, steps, series, { log = false, area = false, ...more }) {
    const totals = steps.map((_, step) => sum(series.map((each) => each.values[step])));
    const { ticks, place: at } = axis(log ? series.flatMap((each) => each.values) : totals, log);
    const plot = element("div", { class: "columns" });
    const field = element("div", { class: "field" });
    for (const each of ticks) {
      field.append(element("div", { class: "line", "--at": percent(at(each)) }, element("span", { text: tick(each, size) })));
    }
    if (area) field.append(shape(totals.map(at)));
    const inside = element("div", { class: "steps" });
    steps.forEach((step, index) => {
      const column = element("div", { class: log || area ? "step points" : "step" });
      for (const each of series) {
        const value = each.values[index];
        if (value > 0) {
          const told = `${each.name}, ${step}: ${size(value)}`;
          column.append(element("i", { class: `mark ${each.kind}`, "--at": percent(at(value)), tip: told }));
        }
      }
      inside.append(column);
    });
    field.append(inside);
    plot.append(field, labels(steps));
    chart(place, id, title, { log, ...more }, plot);
  }

  // A few of the labels; on a narrow page every third of them.
  function labels(steps) {
    const every = Math.ceil(steps.length / MOST_LABELS[data.times.step]);
    const made = element("div", { class: "labels" });
    steps.forEach((step, index) => {
      if (index % every || (index && index > steps.length - every / 2)) return;
      const minor = (index / every) % 3 ? " minor" : "";
      made.append(element("span", { class: `label${minor}`, "--at": percent((index + 0.5) / steps.length), text: step }));
    });
    return made;
  }

  function shape(heights) {
    const points = heights.map((height, index) => (
      `${(100 * (index + 0.5)) / heights.length},${100 - 100 * height}`));
    const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    made.setAttribute("viewBox", "0 0 100 100");
    made.setAttribute("preserveAspectRatio", "none");
    made.setAttribute("aria-hidden", "true");
    const middle = 50 / Math.max(1, heights.length);
    for (const [kind, path] of [
      ["under", `M${middle},100 L${points.join(" L")} L${100 - middle},100 Z`], ["edge", `M${points.join(" L")}`],
    ]) {
      const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
      drawn.setAttribute("class", kind);
      drawn.setAttribute("d", points.length ? path : "");
      made.append(drawn);
    }
    return made;
  }

  // --- what a mark stands for: by the mouse, by a finger, by the arrow keys ------------------------

  let marked = null;
  let byKey = false; // wherever the mouse rests

  function point(mark, key = false) {
    if (marked) marked.classList.remove("at");
    marked = mark;
    byKey = key;
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("at");
    if (tip.textContent !== mark.dataset.tip) tip.textContent = mark.dataset.tip;
    const of = mark.getBoundingClientRect();
    const own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, of.left + of.width / 2 - own.width / 2), root.clientWidth - own.width - 8);
    tip.style.setProperty("left", `${left}px`);
    tip.style.setProperty("top", `${of.top > own.height + 12 ? of.top - own.height - 8 : of.bottom + 8}px`);
  }

  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest(".mark[data-tip]");
    if (mark || !byKey) point(mark);
  });
  document.addEventListener("scroll", () => point(marked, byKey), { passive: true, capture: true });
  document.addEventListener("focusout", () => point(null));
  document.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = document.activeElement;
    if (event.key === "Escape") point(null);
    if (!step || !at.classList.contains("chart")) return;
    const marks = [...at.querySelectorAll(".mark[data-tip]")];
    if (!marks.length) return;
    event.preventDefault();
    const next = marks.includes(marked) ? marks.indexOf(marked) + step : step > 0 ? 0 : -1;
    point(marks[(next + marks.length) % marks.length], true);
  });

  // --- the report --------------------------------------------------------------------------------

  function report() {
    document.title = `Offloaded topics: ${data.tier}`;
    const told = data.records ? "by listing and records" : "by listing";
    document.getElementById("about").textContent = `${data.tier}, ${told}, ${data.made_at}`;
    overview();
    problems();
    if (!data.topics.length) return;
    topics();
    times();
    map();
    sizes();
  }

  function overview() {
    const place = section("overview", "Overview");
    const list = element("ul", { class: "totals" });
    const wrong = sum(data.problems.codes.map((each) => each.count));
    const errors = sum(data.problems.codes.filter((each) => each.severity === "error").map((each) => each.count));
    for (const [name, value, kind] of [
      [`${data.verified ? "finding" : "problem"}${wrong === 1 ? "" : "s"}`, count(wrong), errors ? "error" : wrong ? "warning" : "fine"],
      ["stored", size(data.totals.bytes), ""],
      ["topics", count(data.totals.topics), ""],
      ["ledgers", count(data.totals.ledgers), ""],
      ["copies", count(data.totals.copies), ""],
    ]) {
      list.append(element("li", { class: kind }, element("b", { text: value }), element("span", { text: name })));
    }
    place.append(list);
  }

  function problems() {
    const place = section("problems", "Problems");
    const { codes, shown, left_out: left } = data.problems;
    if (!codes.length) {
      place.append(element("p", {
        class: "fine",
      }, ...prose(data.verified ? "Nothing is wrong." : "None is seen. `offload verify` looks closer.")));
      return;
    }
    bars(place, "chart-problems", "Problems by code", codes.map((each) => ({
      name: each.code,
      parts: [{ value: each.count, kind: each.severity, tip: `${each.code}, ${each.severity}: ${count(each.count)}` }],
    })), {
      text: count, log: hides(codes.map((each) => each.count)),
      legend: ["error", "warning"].filter((kind) => codes.some((each) => each.severity === kind)).map((kind) => [kind, kind]),
    });
    const caption = `What is wrong${left ? `; ${count(left)} more are left out` : ""}`;
    table(place, "table-problems", caption, [
      { title: "severity", kind: (row) => row[0] }, { title: "code", words: true }, { title: "where", prose: true },
      { title: "what", prose: true }, { title: "what helps", prose: true },
    ], shown.map((each) => [each.severity, each.code, each.place, each.what, each.helps]));
  }

  function stateLegend(rows) {
    return Object.entries(STATES).filter(([state]) => rows.some((states) => states[state] > 0));
  }

  function topics() {
    const place = section("topics", "Tiers by topic");
    const rows = data.topics;
    bars(place, "chart-topics", "Bytes of each topic, by where they are", rows.map((row) => ({
      name: short(row.name),
      parts: Object.entries(STATES).map(([state, name]) => ({
        value: row.states[state], kind: state, tip: `${short(row.name)}, ${name}: ${size(row.states[state])}`,
      })),
    })), {
      log: hides(rows.map((row) => sum(Object.values(row.states)))),
      legend: stateLegend(rows.map((row) => row.states)),
    });
    table(place, "table-topics", "Topics, the largest first", [
      { title: "topic", name: true }, { title: "ledgers", number: true }, { title: "copies", number: true },
      { title: "entries", number: true }, { title: "stored", number: true }, { title: "formats" },
      { title: "oldest", date: true }, { title: "newest", date: true },
      ...Object.values(STATES).map((title) => ({ title, number: true })),
      { title: "problems", number: true, kind: (row) => (row[row.length - 1] === "0" ? "" : "error") },
    ], rows.map((row) => [
      short(row.name), count(row.ledgers), count(row.copies), count(row.entries), size(row.bytes),
      row.formats.join(", "), row.oldest, row.newest,
      ...Object.keys(STATES).map((state) => size(row.states[state])), count(row.problems),
    ]));
  }

  function times() {
    const place = section("times", "Ledgers over time");
    const { step, steps, series, growth } = data.times;
    const named = series.map((each, at) => ({ name: short(each.name), values: each.bytes, kind: `series-${at}` }));
    columns(place, "chart-times", `Bytes of the ledgers of each ${step}, by topic`, steps, named, {
      log: hides(named.map((each) => sum(each.values))),
      legend: named.map((each) => [each.kind, each.name]),
    });
    const filled = steps.map((each, at) => ({ each, at })).filter(({ at }) => series.some((one) => one.bytes[at]));
    table(place, "table-times", `Bytes by ${step}, and in all`, [
      { title: step, date: true }, ...named.map((each) => ({ title: each.name, number: true })),
      { title: "all so far", number: true },
    ], filled.map(({ each, at }) => [each, ...named.map((one) => size(one.values[at])), size(growth[at])]));
    const grown = section("growth", "Growth");
    columns(grown, "chart-growth", `All that is stored, up to the ledgers of each ${step}`, steps, [
      { name: "all so far", values: growth, kind: "cold" },
    ], { area: true });
    grown.append(element("p", {}, "The last column of ", element("a", { href: "#table-times-around", text: "the table above" }), " has the same."));
  }

  function map() {
    const place = section("map", "Ledgers and segments");
    const rows = data.map.map((row) => ({
      name: short(row.topic),
      parts: row.pieces.map((piece) => ({
        value: Math.max(piece.bytes, 1),
        kind: piece.state,
        tip: `ledger ${piece.ledger}, entries ${entries(piece)}: ${size(piece.bytes)}, ${STATES[piece.state]}`,
      })),
    }));
    bars(place, "chart-map", "The ledgers of each topic in order, each as wide as its bytes", rows, {
      log: hides(rows.map((row) => sum(row.parts.map((part) => part.value)))),
      legend: stateLegend(data.map.flatMap((row) => row.pieces.map((piece) => ({ [piece.state]: 1 })))),
    });
    const left = sum(data.map.map((each) => each.left_out));
    const caption = `Ledgers and their pieces${left ? `; ${count(left)} older ones are left out` : ""}`;
    table(place, "table-map", caption, [
      { title: "topic", name: true }, { title: "ledger", number: true }, { title: "entries", number: true },
      { title: "stored", number: true },
      { title: "where", prose: true, kind: (row) => (row[4].startsWith(STATES.problem) ? "error" : "") },
      { title: "format" }, { title: "ledger of", date: true }, { title: "object", prose: true },
    ], data.map.flatMap((row) => row.pieces.map((piece) => [
      short(row.topic), piece.ledger, entries(piece), size(piece.bytes),
      STATES[piece.state] + (piece.why ? `: ${piece.why}` : ""), piece.format, piece.at, piece.key,
    ])));
  }

  function entries(piece) {
    return piece.stop === null ? `${count(piece.first)} and on` : `${count(piece.first)} – ${count(piece.stop - 1)}`;
  }

  function sizes() {
    const place = section("sizes", "Sizes and ages");
    for (const [id, title, bins] of [["sizes", "size", data.sizes], ["ages", "age of its ledgers", data.ages]]) {
      const rows = bins.map((bin) => ({
        name: bin.label,
        parts: [{ value: bin.copies, kind: "cold", tip: `${bin.label}: ${count(bin.copies)} copies, ${size(bin.bytes)}` }],
      }));
      bars(place, `chart-${id}`, `Copies by ${title}`, rows, { text: count, log: hides(bins.map((bin) => bin.copies)) });
      table(place, `table-${id}`, `Copies by ${title}`, [
        { title }, { title: "copies", number: true }, { title: "stored", number: true },
      ], bins.map((bin) => [bin.label, count(bin.copies), size(bin.bytes)]));
    }
  }

  // --- live: the service is asked again and again ------------------------------------------------

  const REFRESH_MS = 3000;
  const MOST_BARS = 20;

  function live() {
    const place = section("status", "Topics");
    const namespace = element("input", { id: "namespace", type: "text", placeholder: "tenant/namespace", size: "24" });
    const token = element("input", { id: "token", type: "password", autocomplete: "off", size: "24" });
    const fields = [element("label", {}, "Namespace", namespace)];
    if (data.tokens) fields.push(element("label", {}, "Token", token));
    const form = element("form", {}, ...fields, element("button", { type: "submit", text: "Show" }));
    const said = element("p", { id: "said", role: "status" });
    const about = document.getElementById("about");
    place.append(form, said);
    let timer = 0;
    let shown = "";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      ask();
    });

    async function ask() {
      clearTimeout(timer);
      if (data.tokens && !token.value) {
        tell("This service needs a token.");
        return;
      }
      const headers = data.tokens ? { Authorization: `Bearer ${token.value}` } : {};
      const query = namespace.value ? `?namespace=${encodeURIComponent(namespace.value)}` : "";
      let isRefused = false;
      try {
        const answer = await fetch(data.live + query, { headers, cache: "no-store" });
        const told = await answer.json();
        isRefused = answer.status === 401 || answer.status === 403;
        if (answer.ok) {
          about.textContent = `By the topics' records at ${new Date().toISOString().slice(11, 19)} UTC`;
          draw(told);
        } else {
          tell(`Refused: ${told.reason}`);
        }
      } catch (error) {
        tell(`No answer: ${error.message}`);
      }
      if (!isRefused) timer = setTimeout(ask, REFRESH_MS);
    }

    function tell(text) {
      if (said.textContent !== text) said.textContent = text;
    }

    function draw(told) {
      if (shown === JSON.stringify(told)) return;
      shown = JSON.stringify(told);
      const rows = told.topics;
      const more = told.count > rows.length ? `, ${count(rows.length)} of them shown: name a namespace` : "";
      const of = (status) => rows.filter((row) => row.status.startsWith(status)).length;
      tell(`${count(told.count)} ${told.count === 1 ? "topic" : "topics"}${more}; ${of("offloading")} offloading, ${of("failed")} failed`);
      const first = rows.slice(0, MOST_BARS);
      const states = [["cold", "offloaded"], ["hot", "not offloaded"]];
      bars(place, "chart-status", `Bytes of ${rows.length > first.length ? `the first ${MOST_BARS}` : "all"} topics`, first.map((row) => ({
        name: short(row.name),
        parts: states.map(([state, name]) => ({
          value: row[state], kind: state, tip: `${short(row.name)}, ${name}: ${size(row[state])}`,
        })),
      })), { legend: states, log: hides(first.map((row) => row.cold + row.hot)) });
      table(place, "table-status", "Topics and their offloads", [
        { title: "topic", name: true }, { title: "state", words: true, kind: (row) => (row[1] === "failed" ? "error" : "") },
        { title: "why, or by whom", prose: true }, { title: "last, in UTC", date: true },
        { title: "ledgers", number: true }, { title: "bytes offloaded", number: true }, { title: "not offloaded", number: true },
      ], rows.map((row) => [
        short(row.name), row.status, row.why, row.last,
        `${count(row.offloaded)} of ${count(row.ledgers)}`, size(row.cold), size(row.hot),
      ]));
    }

    ask();
  }

  // --- light or dark -----------------------------------------------------------------------------

  function dark() {
    if (root.dataset.theme) return root.dataset.theme === "dark";
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  const button = document.getElementById("theme");
  const themed = () => button.setAttribute("aria-pressed", String(dark()));
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    themed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
  themed();
  if (data.live) live();
  else report();
  root.dataset.ready = "true";
})();
