"use strict";
(function () {
  // All text that comes from a store is set as text, or escaped where Plotly would read it as its own markup.
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main");
  const contents = document.getElementById("contents");
  const root = document.documentElement;
  const charts = [];
  const STATES = {
    cold: "in the tier only",
    both: "in the tier and in BookKeeper",
    hot: "in BookKeeper only",
    problem: "in the tier, cannot be read",
  };
  const SERIES = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a8d00", "#8c6bb1", "#5b7f95", "#b3631e",
  ];
  const PATTERNS = ["", "/", "x", "-", "|", "+", "."];

  function element(name, properties, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties || {})) {
      if (key === "text") made.textContent = value;
      else made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  function count(value) {
    return value === null || value === undefined ? "–" : Number(value).toLocaleString("en-GB");
  }

  function size(value) {
    if (value === null || value === undefined) return "–";
    const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
    let at = 0;
    let left = value;
    while (left >= 1000 && at < units.length - 1) {
      left /= 1000;
      at += 1;
    }
    return `${at ? left.toFixed(1) : left} ${units[at]}`;
  }

  const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;", "$": "&#36;", "{": "&#123;" };
  function label(text, most) {
    const cut = most && text.length > most ? `…${text.slice(1 - most)}` : text;
    return cut.replace(/[&<>%${]/g, (each) => ESCAPES[each]);
  }

  function short(topic) {
    return topic.replace(/^persistent:\/\//, "");
  }

  function section(id, title) {
    const made = element("section", { id, "aria-labelledby": `${id}-title` });
    made.append(element("h2", { id: `${id}-title`, text: title }));
    main.append(made);
    contents.append(element("li", {}, element("a", { href: `#${id}`, text: title })));
    return made;
  }

  function table(place, id, caption, columns, rows) {
    const made = element("table", { id });
    made.append(element("caption", { text: caption }));
    const head = element("tr");
    for (const column of columns) {
      head.append(element("th", { scope: "col", class: column.number ? "number" : "", text: column.title }));
    }
    made.append(element("thead", {}, head));
    const body = element("tbody");
    for (const row of rows) {
      const line = element("tr");
      row.forEach((value, at) => {
        const column = columns[at];
        const kind = column.severity ? row[column.severity - 1] : column.number ? "number" : column.date ? "date" : "";
        line.append(element("td", { class: kind, text: value === null || value === undefined ? "–" : String(value) }));
      });
      body.append(line);
    }
    made.append(body);
    const around = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption });
    around.append(made);
    const before = document.getElementById(`${id}-around`);
    around.id = `${id}-around`;
    if (before) before.replaceWith(around);
    else place.append(around);
    return made;
  }

  function color(name) {
    return getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  }

  function layout(more) {
    const axis = { color: color("quiet"), gridcolor: color("line"), zerolinecolor: color("line"), automargin: true };
    return {
      paper_bgcolor: color("ground"),
      plot_bgcolor: color("ground"),
      font: { color: color("ink"), family: 'system-ui, "DejaVu Sans", sans-serif', size: 13 },
      hoverlabel: { bgcolor: color("raised"), bordercolor: color("line"), font: { color: color("ink") } },
      margin: { l: 60, r: 20, t: 40, b: 50 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { color: color("ink") } },
      barmode: "stack",
      ...more,
      xaxis: { ...axis, ...(more.xaxis || {}) },
      yaxis: { ...axis, ...(more.yaxis || {}) },
    };
  }

  // `make` gives the traces and the layout in the colours that hold now.
  function chart(place, id, title, make, height) {
    const made = element("div", {
      id, class: "chart", tabindex: "0", role: "img", "aria-label": `${title}. The table that follows has the same.`,
    });
    if (height) made.style.minHeight = `${height}px`;
    place.append(made);
    const one = { made, make, height };
    charts.push(one);
    draw(one);
    return one;
  }

  function draw({ made, make, height }) {
    const [traces, more] = make();
    const sized = height ? { height, ...more } : more;
    return Plotly.react(made, traces, layout(sized), { displayModeBar: false, responsive: true });
  }

  function dark() {
    if (root.dataset.theme) return root.dataset.theme === "dark";
    return matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function themed() {
    const button = document.getElementById("theme");
    button.setAttribute("aria-pressed", String(dark()));
    charts.forEach(draw);
  }

  function bars(series, names, axis) {
    return series.map((each, at) => ({
      type: "bar",
      name: label(short(each.name), 48),
      x: names,
      y: each.bytes,
      text: each.bytes.map((value) => size(value)),
      textposition: "none",
      hovertemplate: `%{x}<br>%{text}<extra>${label(each.name, 80)}</extra>`,
      marker: {
        color: SERIES[at % SERIES.length],
        pattern: { shape: PATTERNS[Math.floor(at / SERIES.length) % PATTERNS.length] },
      },
      ...axis,
    }));
  }

  function report() {
    document.title = `Offloaded topics: ${data.tier}`;
    const told = data.records ? "by listing and records" : "by listing";
    document.getElementById("about").textContent = `${data.tier}, ${told}, ${data.made_at}`;
    overview();
    topics();
    times();
    map();
    sizes();
    problems();
  }

  function overview() {
    const place = section("overview", "Overview");
    const list = element("ul", { class: "totals" });
    const wrong = data.problems.codes.reduce((sum, each) => sum + each.count, 0);
    for (const [name, value] of [
      ["topics", count(data.totals.topics)],
      ["ledgers", count(data.totals.ledgers)],
      ["copies", count(data.totals.copies)],
      ["stored", size(data.totals.bytes)],
      [data.verified ? "findings" : "problems seen", count(wrong)],
    ]) {
      list.append(element("li", {}, element("b", { text: value }), name));
    }
    place.append(list);
  }

  function topics() {
    const place = section("topics", "Tiers by topic");
    const rows = data.rest ? [...data.topics, data.rest] : data.topics;
    const names = rows.map((row) => label(short(row.name), 48));
    chart(place, "chart-topics", "Bytes of each topic, by where they are", () => [
      Object.entries(STATES).map(([state, name]) => ({
        type: "bar",
        orientation: "h",
        name,
        y: names.map((_, at) => at),
        x: rows.map((row) => row.states[state]),
        text: rows.map((row) => size(row.states[state])),
        textposition: "none",
        hovertemplate: "%{text}",
        marker: { color: color(state) },
      })),
      {
        yaxis: { tickvals: names.map((_, at) => at), ticktext: names, autorange: "reversed" },
        xaxis: { title: { text: "bytes" } },
      },
    ], Math.max(320, 120 + 26 * rows.length));
    table(place, "table-topics", "Topics, the largest first", [
      { title: "topic" }, { title: "ledgers", number: true }, { title: "copies", number: true },
      { title: "entries", number: true }, { title: "stored", number: true }, { title: "formats" },
      { title: "oldest", date: true }, { title: "newest", date: true },
      ...Object.values(STATES).map((title) => ({ title, number: true })),
      { title: "problems", number: true },
    ], rows.map((row) => [
      short(row.name), count(row.ledgers), count(row.copies), count(row.entries), size(row.bytes),
      row.formats.join(", "), row.oldest, row.newest,
      ...Object.keys(STATES).map((state) => size(row.states[state])), count(row.problems),
    ]));
  }

  function times() {
    const place = section("times", "Offloads over time");
    const { step, steps, series, growth } = data.times;
    const axis = { xaxis: { type: "category", title: { text: step } }, yaxis: { title: { text: "bytes" } } };
    chart(place, "chart-times", `Bytes offloaded by ${step} and topic`, () => [bars(series, steps, {}), axis], 420);
    table(place, "table-times", `Offloaded by ${step}, and in all`, [
      { title: step, date: true }, ...series.map((each) => ({ title: short(each.name), number: true })), { title: "all so far", number: true },
    ], steps.map((each, at) => [each, ...series.map((one) => size(one.bytes[at])), size(growth[at])]));
    const grown = section("growth", "Growth");
    chart(grown, "chart-growth", "All bytes that are stored, as they came", () => [
      [{
        type: "scatter", mode: "lines+markers", fill: "tozeroy", x: steps, y: growth, line: { color: color("cold") },
        text: growth.map((value) => size(value)), hovertemplate: "%{x}<br>%{text}<extra></extra>",
      }],
      axis,
    ]);
    grown.append(element("p", {}, "The last column of ", element("a", { href: "#table-times-around", text: "the table above" }), " has the same."));
  }

  function map() {
    const place = section("map", "Ledgers and segments");
    const names = data.map.map((each) => label(short(each.topic), 48));
    const byState = () => Object.entries(STATES).map(([state, name]) => {
      const trace = { type: "bar", orientation: "h", name, x: [], y: [], base: [], text: [], textposition: "none",
        hovertemplate: "%{text}<extra></extra>", width: 0.7,
        marker: { color: color(state), line: { color: color("ground"), width: 1 } } };
      data.map.forEach((row, at) => {
        let begin = 0;
        for (const piece of row.pieces) {
          const width = Math.max(piece.bytes, 1);
          if (piece.state === state) {
            trace.x.push(width);
            trace.y.push(at);
            trace.base.push(begin);
            trace.text.push(label(`ledger ${piece.ledger}, entries ${entries(piece)}, ${size(piece.bytes)}, ${name}`));
          }
          begin += width;
        }
      });
      return trace;
    });
    chart(place, "chart-map", "The ledgers of each topic in order, each as wide as its bytes", () => [
      byState(),
      {
        barmode: "overlay",
        yaxis: { tickvals: names.map((_, at) => at), ticktext: names, autorange: "reversed" },
        xaxis: { title: { text: "bytes" } },
      },
    ], Math.max(320, 120 + 26 * names.length));
    const left = data.map.reduce((sum, each) => sum + each.left_out, 0);
    const caption = `Ledgers and their pieces${left ? `; ${count(left)} older ones are left out` : ""}`;
    table(place, "table-map", caption, [
      { title: "topic" }, { title: "ledger", number: true }, { title: "entries" }, { title: "bytes", number: true },
      { title: "where" }, { title: "format" }, { title: "offloaded", date: true }, { title: "object" },
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
    for (const [id, title, bins] of [["sizes", "size of a copy", data.sizes], ["ages", "age of a copy", data.ages]]) {
      chart(place, `chart-${id}`, `Copies by ${title}`, () => [
        [{ type: "bar", x: bins.map((bin) => bin.label), y: bins.map((bin) => bin.copies), marker: { color: color("cold") },
          text: bins.map((bin) => size(bin.bytes)), hovertemplate: "%{x}: %{y} copies, %{text}<extra></extra>", textposition: "none" }],
        { xaxis: { type: "category" }, yaxis: { title: { text: "copies" } } },
      ]);
      table(place, `table-${id}`, `Copies by ${title}`, [
        { title }, { title: "copies", number: true }, { title: "bytes", number: true },
      ], bins.map((bin) => [bin.label, count(bin.copies), size(bin.bytes)]));
    }
  }

  function problems() {
    const place = section("problems", "Problems");
    const { codes, shown, left_out: left } = data.problems;
    if (!codes.length) {
      place.append(element("p", { text: data.verified ? "Nothing is wrong." : "None is seen. `offload verify` looks closer." }));
      return;
    }
    chart(place, "chart-problems", "Problems by code", () => [
      [{ type: "bar", orientation: "h", y: codes.map((each) => each.code), x: codes.map((each) => each.count),
        marker: { color: codes.map((each) => color(each.severity)) }, hovertemplate: "%{y}: %{x}<extra></extra>" }],
      { yaxis: { type: "category" } },
    ]);
    const caption = `What is wrong${left ? `; ${count(left)} more are left out` : ""}`;
    table(place, "table-problems", caption, [
      { title: "severity", severity: 1 }, { title: "code" }, { title: "where" }, { title: "what" }, { title: "what helps" },
    ], shown.map((each) => [each.severity, each.code, each.place, each.what, each.helps]));
  }

  // --- live: the service is asked again and again ------------------------------------------------

  const REFRESH_MS = 3000;

  function live() {
    const place = section("status", "Offloads now");
    const field = element("input", { id: "token", type: "password", autocomplete: "off" });
    const filter = element("input", { id: "namespace", type: "text", placeholder: "tenant/namespace" });
    const form = element("form", {},
      element("label", {}, "Namespace", filter),
      element("label", {}, "Token, if the service needs one", field),
      element("button", { type: "submit", text: "Show" }));
    const said = element("p", { id: "said", role: "status", "aria-live": "polite" });
    place.append(form, said);
    let drawn = null;
    let timer = 0;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      ask();
    });

    async function ask() {
      clearTimeout(timer);
      const headers = field.value ? { Authorization: `Bearer ${field.value}` } : {};
      const query = filter.value ? `?namespace=${encodeURIComponent(filter.value)}` : "";
      try {
        const answer = await fetch(data.live + query, { headers, cache: "no-store" });
        const told = await answer.json();
        if (answer.ok) show(told);
        else tell(`Refused: ${told.reason}`);
      } catch (error) {
        tell(`No answer: ${error.message}`);
      }
      timer = setTimeout(ask, REFRESH_MS);
    }

    function tell(text) {
      if (said.textContent !== text) said.textContent = text;
    }

    function show(told) {
      const more = told.count > told.topics.length ? `, ${count(told.topics.length)} of them shown: name a namespace` : "";
      const running = told.topics.filter((row) => row.status === "running").length;
      const failed = told.topics.filter((row) => row.status === "error").length;
      tell(`${count(told.count)} topics${more}; ${running} offloading, ${failed} failed`);
      const rows = told.topics;
      const names = rows.slice(0, 20).map((row) => label(short(row.name), 48));
      const make = () => [
        [["cold", "offloaded"], ["hot", "not offloaded"]].map(([state, name]) => ({
          type: "bar", orientation: "h", name, y: names.map((_, at) => at),
          x: rows.slice(0, 20).map((row) => row[state]), marker: { color: color(state) }, hovertemplate: "%{x} bytes",
        })),
        { yaxis: { tickvals: names.map((_, at) => at), ticktext: names, autorange: "reversed" }, xaxis: { title: { text: "bytes" } } },
      ];
      if (drawn) {
        drawn.make = make;
        draw(drawn);
      } else {
        drawn = chart(place, "chart-status", "Bytes of the first topics, offloaded and not", make);
      }
      const held = document.activeElement && document.activeElement.id === "table-status-around";
      table(place, "table-status", "Topics and their offloads", [
        { title: "topic" }, { title: "offload", severity: 2 }, { title: "ledgers", number: true },
        { title: "offloaded", number: true }, { title: "offloaded bytes", number: true },
        { title: "bytes not offloaded", number: true }, { title: "error, or what it waits for" },
      ], rows.map((row) => [
        short(row.name), row.status, count(row.ledgers), count(row.offloaded), size(row.cold), size(row.hot), row.why || "",
      ]));
      if (held) document.getElementById("table-status-around").focus();
    }

    ask();
  }

  const button = document.getElementById("theme");
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    themed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
  if (data.live) live();
  else report();
  themed();
  root.dataset.ready = "true";
})();
