/* Makes the page of a trace move: the slider over the steps, the table on
   hover, the paths of hypotheses. The drawings are there already; this changes
   their classes alone, so that without it they show the end of the search.
   Text goes into the page as text, never as markup. */
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const slider = byId("step");
  const tip = byId("tip");
  const MAX_TIP_ROWS = 14;
  const MAX_TABLE_ROWS = 400;
  const MIN_FIRST_ZOOM = 0.75;

  /* A request: its data, and the elements that show it. */
  const readNode = (list, id) => {
    const [step, parent, parentSlot, slot, token, text, logProb, sum, score,
           what, why, pathOf, endOf, legal] = list;
    return {id, step, parent, parentSlot, slot, token, text, logProb, sum,
            score, what, why, pathOf, endOf, legal, last: step, children: [],
            elements: []};
  };

  const readRequest = (data, index) => {
    const section = document.querySelector(`section[data-r="${index}"]`);
    const nodes = data.nodes.map(readNode);
    const steps = Array.from({length: data.steps + 1}, () => []);
    for (const node of nodes) steps[node.step].push(node);
    /* The last step at which something that lives comes of a node. */
    for (let i = nodes.length - 1; i >= 0; --i) {
      const node = nodes[i];
      if (node.parent < 0) continue;
      const parent = nodes[node.parent];
      parent.children.unshift(node);
      if (node.what !== "pruned") parent.last = Math.max(parent.last, node.last);
    }
    for (const element of section.querySelectorAll("[data-n]")) {
      nodes[element.dataset.n].elements.push(element);
    }
    return {section, nodes, steps, data,
            marks: [...section.querySelectorAll(".tree [data-s]")],
            cells: [...section.querySelectorAll(".map [data-s]")],
            picture: section.querySelector(".picture"), zoom: 1};
  };

  const requests = JSON.parse(byId("data").textContent).map(readRequest);
  let shown = requests[0];
  let step = 0;
  let chosen = null;   /* the node that arrow keys are at */
  let timer = 0;

  const path = (node) => {
    const nodes = [];
    for (; node; node = shown.nodes[node.parent]) nodes.unshift(node);
    return nodes;
  };

  /* --- Tables ---------------------------------------------------------- */

  const make = (tag, text, classes) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (classes) element.className = classes;
    return element;
  };

  const number = (value, digits) =>
    value === null ? "" : value.toFixed(digits);

  /* The tokens that a candidate was chosen from: their number, and a label. */
  const legalBefore = (node) =>
    (node.parent < 0 ? shown.data : shown.nodes[node.parent]).legal;

  const COLUMNS = [
    ["token", (n) => n.text, true],
    ["id", (n) => n.token],
    ["legal", (n) => legalBefore(n) ? legalBefore(n)[0] : ""],
    ["log-prob", (n) => number(n.logProb, 4)],
    ["sum", (n) => number(n.sum, 4)],
    ["score", (n) => number(n.score, 4)],
    ["slot", (n) => n.slot < 0 ? `${n.parentSlot} →`
                               : `${n.parentSlot} → ${n.slot}`],
    ["", (n) => n.endOf < 0 ? n.what : `${n.what} #${n.endOf + 1}`, true],
    ["why", (n) => n.why, true],
  ];

  const rowClass = (node, at) =>
    [node.what, node.pathOf === 0 ? "best" : node.pathOf > 0 ? "lit" : "",
     node === at ? "at" : ""].join(" ").trim();

  /* Candidates as a table of at most `limit` rows, `at` among them. */
  const table = (nodes, limit, at) => {
    const result = make("table");
    const columns = COLUMNS.filter(([name]) =>
      name !== "legal" || nodes.some(legalBefore));
    const head = result.createTHead().insertRow();
    for (const [name, , isText] of columns) {
      const cell = make("th", name, isText ? "t" : "");
      cell.scope = "col";
      head.append(cell);
    }
    const body = result.createTBody();
    const index = Math.max(0, nodes.indexOf(at));
    const first = Math.max(0, Math.min(index - (limit >> 1),
                                       nodes.length - limit));
    for (const node of nodes.slice(first, first + limit)) {
      const row = body.insertRow();
      row.className = rowClass(node, at);
      for (const [, show, isText] of columns) {
        row.append(make("td", show(node), isText ? "t" : ""));
      }
    }
    const all = document.createDocumentFragment();
    all.append(result);
    if (nodes.length > limit) {
      all.append(make("p", `${first + 1} to ${first + limit} of ` +
                           `${nodes.length} candidates`, "note"));
    }
    return all;
  };

  const showTable = () => {
    const nodes = shown.steps[step];
    byId("table-title").textContent = step === 0
      ? "Before the first step there is the prompt."
      : `Candidates of step ${step}, best first`;
    byId("table").replaceChildren(
      ...(step > 0 ? [table(nodes, MAX_TABLE_ROWS, chosen)] : []));
  };

  /* --- Steps ----------------------------------------------------------- */

  const show = (newStep) => {
    step = newStep;
    slider.value = step;
    for (const node of shown.nodes) {
      const later = node.step > step;
      const gone = node.pathOf < 0 && node.what === "kept" &&
                   node.last < step;
      for (const element of node.elements) {
        element.classList.toggle("later", later);
        element.classList.toggle("gone", gone);
      }
    }
    for (const mark of shown.marks) {
      mark.classList.toggle("now", Number(mark.dataset.s) === step);
    }
    for (const cell of shown.cells) {
      const at = Number(cell.dataset.s);
      cell.classList.toggle("later", at > step);
      cell.classList.toggle("now", at === step && step < shown.data.steps);
    }
    const pages = shown.data.pages.find((p) => p.step === step);
    byId("at").textContent = `${step} of ${shown.data.steps}` +
      (pages ? `, ${pages.held} of ${pages.total} pages held` : "");
    slider.setAttribute("aria-valuetext", byId("at").textContent);
    showTable();
  };

  const stop = () => {
    clearInterval(timer);
    timer = 0;
    byId("play").textContent = "▶";
    byId("play").setAttribute("aria-label", "Play");
  };

  const play = () => {
    if (timer) return stop();
    if (step === shown.data.steps) show(0);
    byId("play").textContent = "❚❚";
    byId("play").setAttribute("aria-label", "Pause");
    timer = setInterval(() => {
      if (step < shown.data.steps) show(step + 1);
      if (step === shown.data.steps) stop();
    }, 600);
  };

  /* --- What a candidate or a page says of itself ----------------------- */

  const hideTip = () => {
    tip.hidden = true;
    tip.replaceChildren();
    for (const cell of shown.cells) cell.classList.remove("same");
  };

  /* Beside the box, inside the window. */
  const placeTip = (box) => {
    tip.hidden = false;
    const width = tip.offsetWidth;
    const height = tip.offsetHeight;
    const right = document.documentElement.clientWidth - width - 8;
    const below = box.bottom + 12;
    const above = box.top - height - 12;
    const bottom = document.documentElement.clientHeight - height;
    const y = below > bottom && above > 0 ? above : below;
    tip.style.left = `${Math.max(8, Math.min(box.left, right)) + scrollX}px`;
    tip.style.top = `${y + scrollY}px`;
  };

  const legalNote = (node) =>
    [...(legalBefore(node) ? [`of ${legalBefore(node)[1]}`] : []),
     ...(node.legal ? [`then ${node.legal[1]}`] : [])].join("; ");

  const tellNode = (node, box) => {
    const note = legalNote(node);
    tip.replaceChildren(
      make("p", path(node).map((n) => n.text).join(" ")),
      ...(note ? [make("p", note, "note")] : []),
      table(shown.steps[node.step], MAX_TIP_ROWS, node));
    placeTip(box);
  };

  const tellCell = (cell) => {
    const page = Number(cell.dataset.p);
    const pages =
      shown.data.pages.find((p) => p.step === Number(cell.dataset.s));
    const holds = (own) => pages.shared.includes(page) || own.includes(page);
    const slots = pages.slots.filter(([, , own]) => holds(own))
      .map(([slot]) => slot);
    const drafts = pages.drafts.filter(holds).length;
    const holders = [];
    if (slots.length > 0) {
      holders.push(`slot${slots.length === 1 ? "" : "s"} ${slots.join(", ")}`);
    }
    if (drafts > 0) holders.push(`${drafts} draft${drafts === 1 ? "" : "s"}`);
    tip.replaceChildren(make("p",
      `Page ${page}, step ${pages.step}: held by ${holders.join(" and ")}` +
      (pages.cached.includes(page) ? "; found in the prefix tree" : "") +
      pages.copied.filter(([, to]) => to === page)
        .map(([from, , count]) => `; ${count} tokens copied of page ${from}`)
        .join("")));
    for (const other of shown.cells) {
      other.classList.toggle("same", other.dataset.p === cell.dataset.p);
    }
    placeTip(cell.getBoundingClientRect());
  };

  const onHover = (event) => {
    const cell = event.target.closest(".map [data-p]");
    const drawn = event.target.closest("[data-n]");
    hideTip();
    if (cell) return tellCell(cell);
    if (!drawn) return;
    tellNode(shown.nodes[drawn.dataset.n],
             {left: event.clientX + 8, top: event.clientY,
              bottom: event.clientY});
  };

  /* --- Arrow keys: from candidate to candidate ------------------------- */

  const choose = (node) => {
    if (chosen) for (const e of chosen.elements) e.classList.remove("at");
    chosen = node;
    if (!node) {
      hideTip();
      return showTable();
    }
    if (node.step > step) show(node.step);
    for (const element of node.elements) element.classList.add("at");
    const drawn = node.elements.find((e) => e.classList.contains("n"));
    drawn.scrollIntoView({block: "nearest", inline: "nearest"});
    tellNode(node, drawn.getBoundingClientRect());
    showTable();
  };

  const best = (nodes) =>
    nodes.find((n) => n.pathOf === 0) || nodes.find((n) => n.pathOf > 0) ||
    nodes[0];

  const onKey = (event) => {
    const siblings = chosen ? shown.steps[chosen.step] : [];
    const at = siblings.indexOf(chosen);
    const next = {
      ArrowRight: () => chosen ? best(chosen.children) || chosen
                               : best(shown.steps[1] || []),
      ArrowLeft: () => chosen && (shown.nodes[chosen.parent] || chosen),
      ArrowDown: () => siblings[Math.min(at + 1, siblings.length - 1)],
      ArrowUp: () => siblings[Math.max(at - 1, 0)],
      Escape: () => null,
    }[event.key];
    if (!next) return;
    event.preventDefault();
    choose(next());
  };

  /* --- Hypotheses, size, requests -------------------------------------- */

  /* Lights the path of one hypothesis alone; of none if `winner` is -1. */
  const light = (winner) => {
    const last = shown.nodes[shown.data.winners[winner]];
    const on = new Set(last ? path(last) : []);
    shown.picture.classList.toggle("one", winner >= 0);
    for (const node of shown.nodes) {
      for (const e of node.elements) e.classList.toggle("on", on.has(node));
    }
  };

  const pressed = () =>
    shown.section.querySelector('.winners [aria-pressed="true"]');

  const lightPressed = () =>
    light(pressed() ? Number(pressed().dataset.w) : -1);

  const onPress = (button) => {
    const was = pressed();
    if (was) was.setAttribute("aria-pressed", "false");
    if (was !== button) button.setAttribute("aria-pressed", "true");
    lightPressed();
  };

  const resize = (zoom) => {
    shown.zoom = Math.min(3, Math.max(0.1, zoom));
    for (const svg of shown.picture.querySelectorAll("svg")) {
      const {width, height} = svg.viewBox.baseVal;
      svg.setAttribute("width", width * shown.zoom);
      svg.setAttribute("height", height * shown.zoom);
    }
  };

  const fitting = () => shown.picture.clientWidth /
    shown.picture.querySelector("svg").viewBox.baseVal.width;

  const showRequest = (index) => {
    stop();
    choose(null);
    shown = requests[index];
    for (const request of requests) request.section.hidden = request !== shown;
    slider.max = shown.data.steps;
    show(shown.data.steps);
    /* A little smaller at first, if all of it is to be seen then. */
    if (fitting() >= MIN_FIRST_ZOOM) resize(Math.min(1, fitting()));
  };

  for (const request of requests) {
    request.picture.addEventListener("mouseover", onHover);
    request.picture.addEventListener("mouseleave", hideTip);
    request.picture.addEventListener("keydown", onKey);
    request.picture.addEventListener("blur", () => choose(null));
    for (const button of request.section.querySelectorAll("[data-w]")) {
      const over = () => light(Number(button.dataset.w));
      button.addEventListener("mouseenter", over);
      button.addEventListener("mouseleave", lightPressed);
      button.addEventListener("click", () => onPress(button));
    }
  }
  slider.addEventListener("input", () => {
    stop();
    show(Number(slider.value));
  });
  byId("play").addEventListener("click", play);
  byId("smaller").addEventListener("click", () => resize(shown.zoom / 1.25));
  byId("larger").addEventListener("click", () => resize(shown.zoom * 1.25));
  byId("fit").addEventListener("click", () => resize(fitting()));
  byId("pruned").addEventListener("change", (event) => {
    document.body.classList.toggle("no-pruned", !event.target.checked);
  });
  byId("request").addEventListener("change", (event) => {
    showRequest(Number(event.target.value));
  });
  if (requests.length > 0) showRequest(0);
})();
