"use strict";
/* What the page can do beyond being read: sort and filter the results, and look through the cases. Without it the
   page shows the same, in the order in which it was written. Whatever users said is only ever set as text. */
(() => {
  const PAGE = 30;
  const FEW = 12;
  const SHOWN = 16;
  const CUT = 300;
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

    /* The pieces of a text, each with whether the other text lacks it: the longest common row of words stays. */
    function pieces(text, base) {
      const [own, other] = [text, base].map((each) => each.match(/\s+|[^\s]+/g) || []);
      if (own.length * other.length > 250_000) return [[text, text !== base]];
      const common = own.map(() => new Uint16Array(other.length + 1));
      common.push(new Uint16Array(other.length + 1));
      for (let i = own.length - 1; i >= 0; i--)
        for (let j = other.length - 1; j >= 0; j--)
          common[i][j] =
            own[i] === other[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
      const found = [];
      let j = 0;
      own.forEach((word, i) => {
        while (j < other.length && word !== other[j] && common[i][j + 1] > common[i + 1][j]) j++;
        const isNew = j >= other.length || word !== other[j];
        if (!isNew) j++;
        const last = found[found.length - 1];
        if (last && last[1] === isNew) last[0] += word;
        else found.push([word, isNew]);
      });
      return found;
    }

    /* A text that is cut until somebody asks for the whole. */
    function told(number, base = null) {
      const made = make("div", { className: "told" });
      const whole = data.texts.all[number];
      const size = data.texts.sizes[number] || whole.length;
      function show(most) {
        let room = most;
        made.replaceChildren();
        for (const [text, isNew] of base === null ? [[whole, false]] : pieces(whole, base)) {
          const part = text.slice(0, Math.max(0, room));
          room -= text.length;
          if (part) made.append(isNew ? make("mark", { textContent: part }) : part);
        }
        if (whole.length > most) {
          const count = whole.length.toLocaleString("en");
          const button = make("button", { type: "button", textContent: `… show all ${count} characters` });
          button.addEventListener("click", () => show(Infinity));
          made.append(" ", button);
        } else if (size > whole.length) {
          const rest = `… cut; the whole has ${size.toLocaleString("en")} characters`;
          made.append(" ", make("small", { textContent: rest }));
        }
      }
      show(CUT);
      return made;
    }

    /* Every answer of a combination once, with how many of its repeats gave it. */
    function answers(at, column) {
      const given = data.texts.answers[place(at, column)];
      if (given.length === 0) return [make("small", { textContent: "no answer" })];
      const baseline = data.texts.answers[place(at, 0)];
      const isKnown = (number) => column === 0 || baseline.length === 0 || baseline.includes(number);
      return [...new Set(given)].map((number) => {
        const made = told(number, isKnown(number) ? null : data.texts.all[baseline[0]]);
        const times = given.filter((each) => each === number).length;
        if (times < given.length) made.prepend(make("small", { textContent: `${times} of ${given.length} repeats: ` }));
        return made;
      });
    }

    function describe(at) {
      const parts = [["Input", data.texts.inputs[at]], ["Expected", data.texts.expected[at]]];
      const shown = parts.filter(([, number]) => number !== null);
      one("case-texts").replaceChildren(
        ...shown.flatMap(([name, number]) => [make("dt", { textContent: name }), make("dd", {}, told(number))]),
      );
    }

    function open(at) {
      const heads = ["#", "Combination", "Answer and runs", ...data.metrics.map(({ name }) => name)];
      const rows = data.names.map(([key, name], column) => {
        const scores = data.metrics.map(({ name }, measure) => {
          const score = make("td", { textContent: text(measure, at, column) });
          score.dataset.metric = name; /* a narrow screen has no heads above the scores */
          return score;
        });
        const runs = data.runs.ids ? data.runs.ids[place(at, column)] : "";
        const ids = runs.split(" ").filter(Boolean).map((id) => make("code", { textContent: data.runs.prefix + id }));
        const combination = make("th", { scope: "row", textContent: name });
        const answer = make("td", { className: "answers" }, ...answers(at, column), ...ids);
        const kind = { className: column === 0 ? "is-baseline" : "" };
        return make("tr", kind, make("td", { textContent: key }), combination, answer, ...scores);
      });
      one("case-title").textContent = data.cases[at];
      describe(at);
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

  function fronts() {
    const axes = one("front-axes");
    if (!axes) return;
    const panels = [...document.querySelectorAll(".front-panel")];
    axes.addEventListener("input", () => panels.forEach((panel, at) => (panel.hidden = at !== Number(axes.value))));
    one("front-controls").hidden = false;
  }

  results();
  fronts();
  cases();
})();
