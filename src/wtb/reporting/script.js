"use strict";
/* What the page can do beyond being read: sort and filter the results, and look through the cases. Without it the
   page shows the same, in the order in which it was written. Whatever users said is only ever set as text. */
(() => {
  const PAGE = 30;
  const FEW = 12;
  const SHOWN = 16;
  const one = (id) => document.getElementById(id);
  const make = (tag, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const plural = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  const compare = (a, b) => (a > b) - (a < b);

  function results() {
    const table = one("result-table");
    const more = one("result-more");
    const find = one("result-find");
    if (!table) return;
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const others = rows.filter((row) => !row.classList.contains("is-baseline"));
    let whole = rows.length <= SHOWN;

    function show() {
      const wanted = find.value.trim().toLowerCase();
      const matching = [...body.rows].filter((row) => {
        row.hidden = !row.classList.contains("is-baseline") && !row.textContent.toLowerCase().includes(wanted);
        return !row.hidden;
      });
      const isWhole = whole || wanted !== "";
      matching.forEach((row, at) => row.classList.toggle("folded", !isWhole && at >= SHOWN));
      more.hidden = isWhole || matching.length <= SHOWN;
      more.textContent = `Show ${plural(matching.length - SHOWN, "more combination")}`;
    }

    function sort(head, at) {
      const before = head.getAttribute("aria-sort");
      const sign = (before ? before === "descending" : head.dataset.first !== "descending") ? 1 : -1;
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const value = (row) => row.cells[at].dataset.value;
      const absent = (row) => value(row) === "";
      others.sort((a, b) => absent(a) - absent(b) || sign * (value(a) - value(b)));
      body.append(...others);
      show();
    }

    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (!head.dataset.first) return;
      const button = make("button", { type: "button", className: "sort" });
      button.append(...head.childNodes);
      button.addEventListener("click", () => sort(head, at));
      head.append(button);
    });
    find.addEventListener("input", show);
    more.addEventListener("click", () => {
      whole = true;
      show();
    });
    one("result-controls").hidden = rows.length <= 3;
    show();
  }

  function cases() {
    if (!one("case-data")) return;
    const data = JSON.parse(one("case-data").textContent);
    const [metric, against, order, find, different] = ["metric", "against", "order", "find", "different"].map((name) =>
      one(`case-${name}`),
    );
    const table = one("case-table");
    const more = one("case-more");
    const dialog = one("case-dialog");
    const width = data.names.length;
    const failed = data.failed.map((each) => new Set(each));
    const numbers = data.metrics.map(({ decimals }) =>
      new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }),
    );
    let limit = PAGE;

    const place = (at, column) => at * width + column;
    const score = (measure, at, column) => data.scores[measure][place(at, column)];
    const columns = () => (against.value === "" ? data.names.map((_, at) => at) : [0, Number(against.value)]);

    function text(measure, at, column) {
      if (failed[measure].has(place(at, column))) return "error";
      const found = score(measure, at, column);
      return found === null ? "–" : numbers[measure].format(found).replace("-", "−");
    }

    function quality(measure, at, column) {
      const { worst, best } = data.metrics[measure];
      const found = score(measure, at, column);
      if (found === null) return null;
      return worst === best ? Number(found === worst) : (found - worst) / (best - worst);
    }

    function look(measure, at, shown) {
      const own = shown.map((column) => quality(measure, at, column));
      const present = own.filter((each) => each !== null);
      const changes = own.slice(1).map((each) => (each === null || own[0] === null ? 0 : each - own[0]));
      const spread = present.length ? Math.max(...present) - Math.min(...present) : 0;
      return { at, spread, loss: Math.min(0, ...changes), gain: Math.max(0, ...changes) };
    }

    const orders = {
      spread: (a, b) => b.spread - a.spread,
      losses: (a, b) => a.loss - b.loss,
      gains: (a, b) => b.gain - a.gain,
      case: (a, b) => compare(data.cases[a.at], data.cases[b.at]),
    };

    function cell(measure, at, column) {
      const [key, name] = data.names[column];
      const written = text(measure, at, column);
      const own = make("td", { textContent: written, title: `${data.cases[at]}, ${key} ${name}: ${written}` });
      const value = quality(measure, at, column);
      if (written === "error") own.className = "error-cell";
      else if (value === null) own.className = "no-score";
      else own.style.setProperty("--quality", `${Math.round(6 + 94 * value)}%`);
      return own;
    }

    function change(measure, at, shown) {
      const [base, own] = shown.map((column) => score(measure, at, column));
      const made = make("td", { className: "change" });
      if (base === null || own === null) return made;
      const gain = quality(measure, at, shown[1]) - quality(measure, at, shown[0]);
      made.classList.add(gain > 0 ? "gain" : gain < 0 ? "loss" : "tie");
      made.textContent = (own > base ? "+" : "") + numbers[measure].format(own - base).replace("-", "−");
      return made;
    }

    function row(measure, at, shown) {
      const button = make("button", { type: "button", className: "case-name", textContent: data.cases[at] });
      button.title = data.cases[at];
      button.addEventListener("click", () => open(at));
      const head = make("th", { scope: "row" }, button);
      const cells = shown.map((column) => cell(measure, at, column));
      if (against.value !== "") cells.push(change(measure, at, shown));
      return make("tr", {}, head, ...cells);
    }

    function show() {
      const measure = Number(metric.value);
      const shown = columns();
      const wanted = find.value.trim().toLowerCase();
      const found = data.cases
        .map((_, at) => look(measure, at, shown))
        .filter((each) => !different.checked || each.spread > 0)
        .filter((each) => data.cases[each.at].toLowerCase().includes(wanted))
        .sort((a, b) => orders[order.value](a, b) || a.at - b.at);
      const heads = shown.map((column) => {
        const [key, name] = data.names[column];
        return make("th", { scope: "col", textContent: key, title: name });
      });
      if (against.value !== "") heads.push(make("th", { scope: "col", textContent: "Difference" }));
      table.tHead.rows[0].replaceChildren(make("th", { scope: "col", textContent: "Case" }), ...heads);
      table.tBodies[0].replaceChildren(...found.slice(0, limit).map((each) => row(measure, each.at, shown)));
      table.classList.toggle("dense", shown.length > FEW);
      one("case-count").textContent =
        `${plural(found.length, "case")} of ${data.cases.length.toLocaleString("en")}` +
        (found.length > limit ? `, the first ${limit} shown.` : ".");
      more.hidden = found.length <= limit;
    }

    function open(at) {
      const heads = ["#", "Combination", ...data.metrics.map(({ name }) => name), "Run"];
      const rows = data.names.map(([key, name], column) => {
        const scores = data.metrics.map((_, measure) => make("td", { textContent: text(measure, at, column) }));
        const runs = data.runs.ids ? data.runs.ids[place(at, column)] : "";
        const ids = runs.split(" ").filter(Boolean).map((id) => make("code", { textContent: data.runs.prefix + id }));
        const combination = make("th", { scope: "row", textContent: name });
        const kind = { className: column === 0 ? "is-baseline" : "" };
        return make("tr", kind, make("td", { textContent: key }), combination, ...scores, make("td", {}, ...ids));
      });
      one("case-title").textContent = data.cases[at];
      const head = make("thead", {}, make("tr", {}, ...heads.map((textContent) => make("th", { textContent }))));
      one("case-scores").replaceChildren(head, make("tbody", {}, ...rows));
      dialog.showModal();
      dialog.scrollTop = 0;
    }

    for (const control of [metric, against, order, find, different]) {
      control.addEventListener("input", () => {
        limit = PAGE;
        show();
      });
    }
    more.addEventListener("click", () => {
      const next = table.tBodies[0].rows.length;
      limit += 100;
      show();
      table.tBodies[0].rows[next].querySelector("button").focus();
    });
    one("case-close").addEventListener("click", () => dialog.close());
    one("case-controls").hidden = false;
    show();
  }

  results();
  cases();
})();
