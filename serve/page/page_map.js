/* The page map of a request that has ended, from its trace: a row a page in the
   order in which they came, a column a step. */

const CELL = 17;
const MAP_LEFT = 34;
const MAP_TOP = 22;
const MAX_CELLS = 20000;

/* By page, how many sequences hold it in a step. */
const holdersOf = (pages) => {
  const holders = new Map();
  const hold = (page, count) =>
    holders.set(page, (holders.get(page) ?? 0) + count);
  const drafts = pages.drafts ?? [];
  for (const page of pages.shared) {
    hold(page, pages.slots.length + drafts.length);
  }
  for (const slot of pages.slots) for (const page of slot.pages) hold(page, 1);
  for (const draft of drafts) for (const page of draft) hold(page, 1);
  return holders;
};

/* The events of the first request of a trace. */
const readTrace = (lines) => {
  const events = lines.split("\n").filter((line) => line !== "").map(JSON.parse);
  return events.filter((event) => event.request === events[0].request);
};

/* Its steps, their pages with their holders. */
const stepsOf = (events) => events.filter((event) => event.event === "pages")
  .map((pages) => ({...pages, holders: holdersOf(pages)}));

/* One sentence that says what sharing saves. */
const sharingOf = (steps) => {
  let best = null;
  for (const step of steps) {
    const apart = [...step.holders.values()].reduce((sum, n) => sum + n, 0);
    const saved = apart - step.holders.size;
    if (!best || saved >= best.saved) {
      best = {saved, apart, held: step.holders.size, step: step.step};
    }
  }
  if (!best) return "This request held no pages.";
  if (best.saved === 0) return "No two sequences shared a page.";
  return `At step ${best.step} the sequences held ${best.held} pages; ` +
         `without sharing they would need ${best.apart}.`;
};

const makeCell = (page, step, x, y, most) => {
  const count = step.holders.get(page);
  const copies = (step.copied ?? []).filter((copy) => copy.to === page);
  const isCached = (step.cached ?? []).includes(page);
  const strength = 0.18 + 0.82 * (most > 1 ? (count - 1) / (most - 1) : 0);
  const cell = makeSvg("g", {class: [
    isCached ? "cached" : "", copies.length > 0 ? "copied" : "",
    strength > 0.55 ? "strong" : ""].join(" ").trim()});
  const title = makeSvg("title");
  title.textContent = `Page ${page}, step ${step.step}: ${count} ` +
    (count === 1 ? "sequence" : "sequences") +
    (isCached ? ", prefix cache hit" : "") +
    copies.map((copy) => `, ${copy.num_tokens} tokens copied from page ` +
                         `${copy.from}`).join("");
  const number = makeSvg("text", {x: x + CELL / 2 - 1, y: y + 12});
  number.textContent = count;
  cell.append(title, makeSvg("rect", {
    x, y, width: CELL - 2, height: CELL - 2, rx: 2,
    "fill-opacity": strength.toFixed(2)}), number);
  return cell;
};

/* Draws the map into `picture`; false if it is too large. */
const drawPageMap = (steps, picture) => {
  const numCells = steps.reduce((sum, step) => sum + step.holders.size, 0);
  if (numCells > MAX_CELLS) return false;
  const rows = new Map();
  let most = 1;
  for (const step of steps) {
    for (const [page, count] of step.holders) {
      if (!rows.has(page)) rows.set(page, rows.size);
      most = Math.max(most, count);
    }
  }
  const svg = makeSvg("svg", {
    width: MAP_LEFT + steps.length * CELL + 12,
    height: MAP_TOP + rows.size * CELL + 10, role: "img",
    "aria-label": "Pages in use, one row per page, one column per step"});
  const mark = (text, x, y) => {
    const label = makeSvg("text", {x, y, class: "axis"});
    label.textContent = text;
    svg.append(label);
  };
  steps.forEach((step, column) => {
    const x = MAP_LEFT + column * CELL;
    if (column === 0 || step.step % 5 === 0) mark(step.step, x + 7, 14);
    for (const page of step.holders.keys()) {
      svg.append(makeCell(page, step, x, MAP_TOP + rows.get(page) * CELL, most));
    }
  });
  for (const [page, row] of rows) mark(page, 17, MAP_TOP + row * CELL + 12);
  picture.replaceChildren(svg);
  return true;
};
