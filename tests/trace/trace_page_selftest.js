/* Uses the page of a trace as a reader would, and leaves what it found in
   <pre id="selftest">: "passed", or a line for each thing that is wrong. Runs
   in the page, after its own script; window.pageErrors is older than that. */
"use strict";
(() => {
  const wrong = [];
  const check = (truth, what) => {
    if (!truth) wrong.push(what);
  };
  const $ = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const fire = (element, type, key) => {
    const Kind = key ? KeyboardEvent : MouseEvent;
    element.dispatchEvent(
      new Kind(type, {bubbles: true, cancelable: true, key}));
  };
  const seen = (element) => getComputedStyle(element).display !== "none";

  const data = JSON.parse($("#data").textContent);
  const slide = (step) => {
    $("#step").value = step;
    $("#step").dispatchEvent(new Event("input", {bubbles: true}));
  };

  data.forEach((request, index) => {
    if (index > 0) {
      $("#request").value = index;
      $("#request").dispatchEvent(new Event("change", {bubbles: true}));
    }
    const sections = all("section.request");
    check(sections.every((s, i) => s.hidden === (i !== index)),
          `request ${index} is not the one shown`);
    const section = `section[data-r="${index}"] `;
    const picture = $(section + ".picture");

    for (let step = request.steps; step >= 0; --step) {
      slide(step);
      const count = request.nodes.filter((n) => n[0] <= step).length;
      for (const kind of ["n", "e"]) {
        const visible = all(`${section}.tree .${kind}[data-n]`).filter(seen);
        check(visible.length === count,
              `step ${step}: ${visible.length} .${kind}, not ${count}`);
      }
      const rows = all("#table tbody tr").length;
      const wanted = request.nodes.filter((n) => n[0] === step).length;
      check(rows === Math.min(wanted, 400),
            `step ${step}: ${rows} rows in the table, not ${wanted}`);
      check($("#at").textContent.startsWith(`${step} of ${request.steps}`),
            `step ${step}: the output says ${$("#at").textContent}`);
      const cells = all(section + ".map .p").filter(seen);
      check(cells.every((c) => Number(c.dataset.s) <= step),
            `step ${step}: pages of later steps show`);
    }
    slide(request.steps);

    $("#pruned").click();
    const uncut = request.nodes.filter((n) => n[9] !== "pruned").length;
    check(all(`${section}.tree .n[data-n]`).filter(seen).length === uncut,
          "pruned candidates do not go");
    $("#pruned").click();

    /* Hover: a table of the step's candidates, with every text as it is. */
    for (const id of [0, request.nodes.length - 1]) {
      fire($(`${section}.n[data-n="${id}"]`), "mouseover");
      check(!$("#tip").hidden, `no tip at candidate ${id}`);
      const row = $("#tip tr.at");
      check(row && row.cells[0].textContent === request.nodes[id][5],
            `the tip at ${id} shows ${row && row.cells[0].textContent}`);
      const parent = request.nodes[id][1];
      const legal = parent < 0 ? request.legal : request.nodes[parent][13];
      const told = $("#tip").textContent.includes("legal token");
      check(told === Boolean(legal), `the tip at ${id} tells of legal tokens`);
      if (legal) {
        check($("#tip").textContent.includes(`of ${legal[1]}`),
              `the tip at ${id} says ${$("#tip").textContent}`);
        check(row.cells[2].textContent === String(legal[0]),
              `the tip at ${id} has ${row.cells[2].textContent} legal tokens`);
      }
    }
    fire(picture, "mouseleave");
    check($("#tip").hidden, "the tip stays");
    if (request.pages.length > 0) {
      fire($(section + ".map .p"), "mouseover");
      check(/^Page \d+, step \d+: held by slot/.test($("#tip").textContent),
            `the tip at a page says ${$("#tip").textContent}`);
      fire(picture, "mouseleave");
    }

    /* Keys: right to the end of the best path, and back. */
    picture.focus();
    for (let i = 0; i < request.steps + 3; ++i) {
      fire(picture, "keydown", "ArrowRight");
    }
    const at = all(section + ".n.at");
    check(at.length === 1, `${at.length} candidates are chosen`);
    if (request.winners.length > 0) {
      check(at[0] && Number(at[0].dataset.n) === request.winners[0],
            "the keys do not lead to the best hypothesis");
    }
    fire(picture, "keydown", "ArrowUp");
    fire(picture, "keydown", "ArrowDown");
    fire(picture, "keydown", "ArrowLeft");
    fire(picture, "keydown", "Escape");
    check(all(".at").length === 0, "Escape leaves a candidate chosen");

    /* A hypothesis lights its path and nothing else. */
    request.winners.forEach((winner, rank) => {
      const button = $(`${section}[data-w="${rank}"]`);
      button.click();
      let length = 0;
      for (let n = winner; n >= 0; n = request.nodes[n][1]) ++length;
      check(all(`${section}.e.on`).length === length,
            `hypothesis ${rank} lights ${all(`${section}.e.on`).length} lines`);
      button.click();
    });
    check(all(".on, .one").length === 0, "a path stays lit");

    const svg = $(section + ".tree");
    const width = svg.getAttribute("width");
    $("#larger").click();
    check(Number(svg.getAttribute("width")) > width, "larger is not larger");
    $("#fit").click();
    $("#smaller").click();
  });
  $("#play").click();
  check($("#at").textContent.startsWith("0 of"), "play does not begin anew");
  $("#play").click();

  wrong.push(...window.pageErrors);
  const result = document.createElement("pre");
  result.id = "selftest";
  result.textContent = wrong.length > 0 ? wrong.join("\n") : "passed";
  document.body.append(result);
})();
