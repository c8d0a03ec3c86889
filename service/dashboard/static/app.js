// Live parts, charts and the theme. The server sends all texts as escaped HTML; pages are complete without this script.
"use strict";
(() => {
  const root = document.documentElement;
  const one = (query, from = document) => from.querySelector(query);
  const all = (query, from = document) => [...from.querySelectorAll(query)];
  const token = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // A saved page: its charts stay as they were, and no server answers.
  if (location.protocol === "file:") {
    for (const each of all(".needs-script, #theme-form")) each.remove();
    return;
  }

  // Theme: stored in a cookie, so that the server renders the next page in it.
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const themed = () => {
    const button = one("#theme");
    if (button) button.textContent = dark() ? "Light theme" : "Dark theme";
    for (const plot of all(".plot[data-drawn]")) draw(plot);
  };
  one("#theme-form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    root.dataset.theme = dark() ? "light" : "dark";
    document.cookie = `speciate_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
    themed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
  themed();

  // Filters submit on change.
  for (const form of all("form[data-auto]")) form.addEventListener("change", () => form.requestSubmit());
  // After the Back button browsers fill in the later choice: the values of the page are those of its address.
  addEventListener("pageshow", ({ persisted }) => {
    const back = persisted || performance.getEntriesByType("navigation")[0]?.type !== "navigate";
    if (back) all("form[data-auto]").forEach((form) => form.reset());
  });
  document.addEventListener("change", ({ target }) => {
    if (target.matches("select[data-resend]")) target.form.requestSubmit(one("button[formmethod]", target.form));
  });

  // Lists that fit on a page are sorted in place.
  for (const head of all("table[data-sortable] thead th")) {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const body = one("tbody", head.closest("table")), rises = head.ariaSort === "descending";
      const plain = (text) => text.trim().replaceAll("\u202f", "").replace("\u2212", "-");
      const key = (row) => { const cell = row.cells[head.cellIndex]; return one("time", cell)?.dateTime ?? plain((one("b", cell) ?? cell).textContent); };
      const { compare } = new Intl.Collator(undefined, { numeric: true });
      const order = (a, b) => parseFloat(a) - parseFloat(b) || compare(a, b);
      const rows = [...body.rows].sort((a, b) => order(key(a), key(b)) * (rises ? 1 : -1));
      for (const other of all("th", head.parentElement)) other.ariaSort = null;
      head.ariaSort = rises ? "ascending" : "descending";
      body.append(...rows);
    });
  }

  // A ping takes time, and no response contains an API key: replace <main> in place and keep the typed key. A response
  // without the form, such as an error page or a proxy's, shows its message above the form instead.
  function refuse(main, status) {
    const notice = document.createElement("p");
    const texts = ["h1", "section.panel > p"].map((query) => main && one(query, main)?.textContent.trim());
    notice.className = "notice bad";
    notice.role = "alert";
    notice.textContent = texts.filter(Boolean).join(". ") || `The service answered with status ${status}: try again.`;
    for (const old of all("main > .notice")) old.remove();
    one("main > .head").after(notice);
  }
  document.addEventListener("submit", async (event) => {
    const button = event.submitter, form = event.target;
    if (!button?.matches("[data-inline]")) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form));
    const key = () => one("[name=api_key]");
    const typed = key()?.value;
    form.inert = true;
    try {
      const response = await fetch(button.formAction, { method: "POST", body, headers: { Accept: "text/html" } });
      const fresh = one("main", new DOMParser().parseFromString(await response.text(), "text/html"));
      if (fresh && one("[data-inline]", fresh)) {
        one("main").replaceWith(fresh);
        if (typed && key()) key().value = typed;
      } else {
        refuse(fresh, response.status);
        form.inert = false;
      }
      const notice = one("main .notice");
      if (notice) { notice.tabIndex = -1; notice.focus(); }
    } catch {
      form.inert = false;
      button.textContent = "No response: try again";
    }
  });

  // The address of a text is copied as the text. Without https there is no clipboard API.
  async function copy(address) {
    const response = await fetch(address);
    if (!response.ok) throw new Error(String(response.status));
    const text = await response.text();
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("copy");
  }
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest?.("[data-copy]");
    if (button) button.textContent = await copy(button.dataset.copy).then(() => "Copied", () => "Not copied: download it");
  });

  // Charts: loaded after the first paint, those in closed sections when these open.
  const specs = new WeakMap();
  let library;
  const plotly = () =>
    (library ||= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = root.dataset.plotly;
      script.onload = () => resolve(window.Plotly);
      script.onerror = () => { library = null; reject(new Error("the chart library could not be loaded")); };
      document.head.append(script);
    }));
  const coloured = (value) => {
    if (typeof value === "string") return value.startsWith("--") ? token(value) : value;
    if (Array.isArray(value)) return typeof value[value.length - 1] === "number" ? value : value.map(coloured);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v)]));
    return value;
  };
  const axis = (given, grid, line, narrow) => ({
    gridcolor: grid, linecolor: line, zerolinecolor: line, automargin: true, ticks: "", ...given,
    ...(narrow && given.title ? { title: { ...given.title, font: { size: 10 } } } : {}),
  });
  function layoutOf(spec, plot) {
    const grid = token("--line"), line = token("--strong-line");
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 48, r: 12, t: 22, b: 40 },
      font: { family: token("--sans"), size: 12, color: token("--muted") }, dragmode: "zoom",
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { bgcolor: token("--ink"), bordercolor: token("--ink"), font: { color: token("--paper"), family: token("--sans") } },
      // A new value ends the zoom of the reader.
      xaxis: {}, yaxis: {}, uirevision: JSON.stringify([plot.dataset.figure, spec.log, plot.dataset.resets]), ...coloured(spec.layout),
    };
    for (const name of Object.keys(layout)) if (/^[xy]axis\d*$/.test(name)) layout[name] = axis(layout[name], grid, line, plot.clientWidth < 420);
    return layout;
  }
  async function draw(plot, more = { autosize: true }) {
    const spec = specs.get(plot);
    if (!spec) return;
    const Plotly = window.Plotly || await plotly();
    if (!plot.dataset.drawn) plot.replaceChildren();
    await Plotly.react(plot, coloured(spec.data), { ...layoutOf(spec, plot), ...more }, { displayModeBar: false, responsive: true });
    plot.dataset.drawn = "yes";
    plot.removeAttribute("aria-busy");
    if (spec.link && !plot.dataset.links) {
      plot.dataset.links = "yes";
      plot.on("plotly_click", (event) => {
        const id = event.points?.[0]?.customdata;
        if (id != null) location.href = specs.get(plot).link.replace("{}", String(id).split("/").map(encodeURIComponent).join("/"));
      });
    }
  }
  async function fetchSpec(plot) {
    const url = plot.dataset.figure;
    const more = new URLSearchParams(plot.parentElement.clientWidth < 640 ? { narrow: 1 } : {});
    const query = String(more) && (url.includes("?") ? "&" : "?") + more;
    const response = await fetch(url + query, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(String(response.status));
    return response.json();
  }
  function updateTable(rows, html) {
    if (!rows || rows.contains(document.activeElement)) return;
    const { scrollLeft, scrollTop } = one(".scroll", rows) || {};
    rows.innerHTML = html;
    one(".scroll", rows)?.scrollTo(scrollLeft || 0, scrollTop || 0);
  }
  function updateCaption(plot, spec) {
    const figure = plot.closest("figure");
    one("[data-note]", figure).textContent = spec.note;
    plot.setAttribute("aria-label", `${one("h2", figure).textContent}. ${spec.note}`);
    one(".tools > .needs-script", figure).hidden = plot.hidden;
    one("[data-chart=fit]", figure).hidden = !spec.fit;
    for (const button of all("[data-chart=log]", figure)) {
      button.hidden = !(button.value in spec.log);
      button.setAttribute("aria-pressed", Boolean(spec.log[button.value]));
    }
  }
  // Plotly makes the picture; its own download uses blob addresses, which the page's policy forbids.
  async function picture(plot, format) {
    const Plotly = await plotly();
    const { clientWidth: width, clientHeight: height } = plot;
    const layout = { ...plot.layout, paper_bgcolor: token("--surface") };
    const url = await Plotly.toImage({ data: plot.data, layout }, { format: "svg", width, height });
    if (format === "svg") return url;
    const image = new Image(), canvas = document.createElement("canvas");
    image.src = url;
    await image.decode();
    Object.assign(canvas, { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/png");
  }
  // Switch axes between linear and logarithmic.
  function flip(spec, names) {
    for (const name of Object.keys(spec.log).filter((each) => names.includes(each))) {
      spec.log[name] = !spec.log[name];
      spec.layout[`${name}axis`] = { ...spec.layout[`${name}axis`], type: spec.log[name] ? "log" : "linear", range: undefined };
    }
    return spec;
  }
  const jobs = {
    log: (plot, { value }) => {
      const flipped = plot.dataset.log || "";
      plot.dataset.log = flipped.includes(value) ? flipped.replace(value, "") : flipped + value;
      plot.dataset.resets = 1 + Number(plot.dataset.resets || 0);
      updateCaption(plot, flip(specs.get(plot), value));
      return draw(plot);
    },
    fit: (plot) => window.Plotly.relayout(plot, { "xaxis.autorange": true, "yaxis.autorange": true }),
    zoom: (plot) => {
      plot.dataset.resets = 1 + Number(plot.dataset.resets || 0);
      return draw(plot);
    },
  };
  jobs.png = jobs.svg = async (plot, button) => {
    const format = button.dataset.chart, link = document.createElement("a");
    link.download = `${plot.dataset.figure.split(/[?]/)[0].split("/").pop().replace(".json", "")}.${format}`;
    link.href = await picture(plot, format);
    link.click();
  };
  document.addEventListener("click", ({ target }) => {
    const button = target.closest?.("[data-chart]"), plot = button && one(".plot", button.closest("figure"));
    if (plot && specs.has(plot)) jobs[button.dataset.chart](plot, button);
  });
  async function load(plot) {
    plot.dataset.revision = wanted;
    plot.dataset.rest = "drawing";
    let started = performance.now();
    try {
      const [spec] = await Promise.all([fetchSpec(plot), plot.hidden || plotly()]);
      started = performance.now();
      specs.set(plot, flip(spec, plot.dataset.log || ""));
      plot.style.height = `${spec.height}rem`;
      plot.hidden = !spec.data.length;
      updateTable(one("[data-rows]", plot.closest("figure")), spec.table_html);
      updateCaption(plot, spec);
      if (!plot.hidden) await draw(plot);
    } catch (error) {
      plot.removeAttribute("aria-busy");
      if (!plot.dataset.drawn) plot.textContent = "The chart could not be loaded; see the data table below.";
    }
    // Redraw costly charts rarely: at most a fifth of the time, but at least every five seconds.
    plot.dataset.rest = String(Math.min(5000, Math.max(1000, 4 * (performance.now() - started))));
    setTimeout(() => { delete plot.dataset.rest; renew(plot); }, Number(plot.dataset.rest));
  }
  let wanted = one("[data-stream]")?.dataset.revision || "";
  // An empty plot is hidden and therefore never in view: watch the figure around it.
  const inView = new WeakSet();
  const renew = (plot) => {
    if (inView.has(plot) && !plot.dataset.rest && plot.dataset.revision !== wanted) load(plot);
  };
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const plot = one(".plot", entry.target);
      if (entry.isIntersecting) { inView.add(plot); renew(plot); } else inView.delete(plot);
    }
  }, { rootMargin: "5000%" });  // the whole page, so that a printed or saved one has all its charts
  const plots = all(".plot[data-figure]");
  requestAnimationFrame(() => setTimeout(() => {
    if (plots.some((plot) => plot.checkVisibility())) plotly().catch(() => {});
    plots.forEach((plot) => watcher.observe(plot.closest("figure")));
  }));

  // Paper is narrow and light.
  let theme;
  const printing = (on) => {
    if (on) theme = root.dataset.theme;
    if (on || theme) root.dataset.theme = on ? "light" : theme; else delete root.dataset.theme;
    for (const plot of all(".plot[data-drawn]")) draw(plot, on ? { width: 620, autosize: false } : { autosize: true });
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));

  // Live parts: the server sends the current state, not differences; the id tells it what the page already shows.
  const place = one("[data-stream]");
  if (!place) return;
  let state = ["", ""];
  const showState = (link) => { if (link) [link.dataset.is, link.textContent] = state; };
  const setState = (...is) => { state = is; showState(one("#link")); };
  let stream, seen = "", pending = "", over = false, retry = 0;
  const named = (e) => e.tagName + (e.getAttribute("href") || e.getAttribute("aria-label") || e.textContent);
  const busy = (part) => one(":popover-open", part) || (part.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName));
  function show(html) {
    const fresh = document.createElement("template");
    fresh.innerHTML = html;
    showState(one("#link", fresh.content));
    pending = "";
    for (const next of all("[data-part]", fresh.content)) {
      const old = one(`[data-part="${next.dataset.part}"]`, place);
      if (!old || old.outerHTML === next.outerHTML) continue;
      if (next.dataset.src) { if (next.dataset.src !== old.dataset.src) reload(old, next); continue; }
      if (busy(old)) { pending = html; continue; }
      const focus = old.contains(document.activeElement) && named(document.activeElement);
      const pairwise = (query, copy) => all(query, old).forEach((was, i) => { const is = all(query, next)[i]; if (is) copy(is, was); });
      pairwise("details", (is, was) => { is.open = was.open; });
      for (const box of all("input", next)) box.checked = all("input:checked", old).some((was) => was.value === box.value);
      const offsets = all(".scroll", old).map((was) => [was.scrollLeft, was.scrollTop]);
      old.replaceWith(next);
      all(".scroll", next).forEach((is, i) => is.scrollTo(...(offsets[i] || [0, 0])));
      if (focus) all("a, button, summary, [tabindex]", next).find((each) => named(each) === focus)?.focus({ preventScroll: true });
    }
  }
  // The stream has only the address of a costly part. Responses may arrive out of order: an outdated one is dropped.
  async function reload(old, next) {
    const { part, src } = next.dataset;
    old.dataset.src = src;
    const html = await fetch(src).then((response) => (response.ok ? response.text() : null)).catch(() => null);
    const shown = one(`[data-part="${part}"]`, place);
    if (shown.dataset.src !== src) return;
    if (html === null) { shown.dataset.src = ""; return; }  // the next update tries again
    next.innerHTML = html;
    shown.replaceWith(next);
  }
  // An update that arrived during input is shown afterwards; the delay lets the click that ends the input take effect.
  const later = () => setTimeout(() => pending && show(pending), 500);
  place.addEventListener("focusout", later);
  place.addEventListener("toggle", later, true);
  function connect() {
    if (over || stream || document.hidden) return;
    const url = place.dataset.stream + (place.dataset.stream.includes("?") ? "&" : "?") + "seen=" + seen;
    stream = new EventSource(url);
    stream.onopen = () => { retry = 0; setState("live", "live"); };
    stream.addEventListener("part", (event) => {
      const { html, revision } = JSON.parse(event.data);
      seen = event.lastEventId;
      show(html);
      wanted = revision;
      all(".plot[data-figure]").forEach(renew);
    });
    stream.addEventListener("end", () => {
      end("ended");
      const then = one("[data-then]", place)?.dataset.then;
      if (then) location.replace(then);
    });
    stream.onerror = () => {
      setState("away", "connecting …");
      if (stream.readyState !== EventSource.CLOSED) return;
      leave();
      const again = () => setTimeout(connect, Math.min(5000, 500 * 2 ** retry++));
      // EventSource hides the status: after the end of the session, reconnecting would never succeed.
      fetch("/v1/whoami").then(({ status }) => (status === 401 ? end("logged out: reload the page") : again()), again);
    };
  }
  function end(why) { over = true; leave(); setState("over", why); }
  function leave() { stream?.close(); stream = null; }
  // Browsers allow few streams per server: a hidden page closes its own.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : connect()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", connect);
  connect();
})();
