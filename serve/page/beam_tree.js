/* The tree of a search as it grows: the beams of each event are put into a tree
   of tokens, and each node is drawn where it stays. A branch keeps its lane; one
   that forks off takes the nearest lane that is free from there on. */

const SVG = "http://www.w3.org/2000/svg";
const makeSvg = (tag, attributes = {}) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  return element;
};

const commonBeginning = (a, b) => {
  let length = 0;
  while (length < a.length && a[length] === b[length]) ++length;
  return a.slice(0, length);
};

/* How a text is shown where space is short. */
const shortened = (text, limit) => {
  const shown = [...text.replaceAll("\n", "↵")];
  return shown.length <= limit ? shown.join("")
                               : shown.slice(0, limit - 1).join("") + "…";
};

class BeamTree {
  static MAX_NODES = 6000;
  static LANE = 30;
  static TOP = 30;
  static LEFT = 16;
  static BEND = 24;

  constructor(picture) {
    this.picture = picture;
    this.pen = document.createElement("canvas").getContext("2d");
    this.pen.font = `600 12px ${getComputedStyle(picture).fontFamily}`;
    this.clear();
  }

  clear() {
    this.root = {key: null, parent: null, depth: 0, lane: 0, children: new Map(),
                 text: "", guess: "", sum: 0, label: "", state: "root"};
    this.nodes = [this.root];
    this.ends = [0];        /* by lane, the depth of its last node */
    this.widths = [0];      /* by depth, of the column */
    this.isFull = false;
    this.lit = null;
    this.svg = makeSvg("svg", {role: "img",
                               "aria-label": "Tokens from left to right"});
    this.edges = makeSvg("g");
    this.dots = makeSvg("g");
    this.svg.append(this.edges, this.dots);
    this.rootDot = makeSvg("circle", {class: "root", r: 5});
    this.svg.append(this.rootDot);
    this.picture.replaceChildren(this.svg);
    this.picture.scrollTo(0, 0);
    this.draw();
  }

  /* --- Growing ------------------------------------------------------------ */

  /* A lane that is free from `depth` on, near `lane`. */
  freeLane(lane, depth) {
    const isFree = (at) => at >= 0 &&
      (at >= this.ends.length || this.ends[at] < depth - 1);
    for (let away = 1; ; ++away) {
      if (isFree(lane + away)) return Math.min(lane + away, this.ends.length);
      if (isFree(lane - away)) return lane - away;
    }
  }

  add(parent, key, lane) {
    const node = {key, parent, depth: parent.depth + 1, lane, label: "",
                  text: undefined, sum: undefined, children: new Map(),
                  own: undefined, guess: undefined, known: parent,
                  state: "live", rank: -1, shown: {}};
    parent.children.set(key, node);
    this.nodes.push(node);
    this.ends[lane] = Math.max(this.ends[lane] ?? 0, node.depth);
    this.widths[node.depth] ??= 30;
    return node;
  }

  /* How far `keys` lead along nodes that are there. */
  follow(keys) {
    let node = this.root;
    for (const key of keys) {
      const child = node.children.get(key);
      if (!child) break;
      node = child;
    }
    return node;
  }

  /* Adds what is missing on the way of `keys`, and returns its end; null if the
     tree is full. */
  grow(keys, lane) {
    let node = this.follow(keys);
    for (let i = node.depth; i < keys.length; ++i) {
      if (this.nodes.length > BeamTree.MAX_NODES) {
        this.isFull = true;
        return null;
      }
      node = this.add(node, keys[i], i === node.depth && lane !== undefined
                                       ? lane : node.lane);
      lane = undefined;
    }
    return node;
  }

  /* Paths are {keys, text, sum}; those that are there go straight on before
     others fork off, so that a fork finds out which lanes go on. Returns the end
     of each, or null. */
  addPaths(paths) {
    const forks = [];
    for (const path of paths) {
      const from = this.follow(path.keys);
      if (from.depth === path.keys.length) continue;
      if (from.children.size > 0 || (from === this.root && this.nodes.length > 1)) {
        forks.push(path);
      } else {
        this.grow(path.keys, from.lane);
      }
    }
    for (const path of forks) {
      const from = this.follow(path.keys);
      if (from.depth === path.keys.length) continue;
      this.grow(path.keys, from.children.size > 0
        ? this.freeLane(from.lane, from.depth + 1) : from.lane);
    }
    const ends = paths.map((path) => this.tell(path));
    this.isLabelled = false;
    return ends;
  }

  /* What an event says of the end of a path; `label` is its last token's text,
     where that is known. */
  tell({keys, text, label, sum}) {
    const node = this.follow(keys);
    if (node.depth < keys.length) return null;
    if (typeof text === "string") node.text ??= text;
    if (typeof label === "string") node.own = label;
    if (typeof sum === "number") node.sum = sum;
    return node;
  }

  /* Gives nodes their labels: what each adds to the text before it. Events tell
     the texts of whole beams, and some steps are left out. Where the text of a
     fork is not known it is what those after it begin with; a node on a
     straight line without a text of its own has no label, and the next one has
     that of both. */
  label() {
    const after = new Map();   /* the text that begins all after a node */
    for (const node of [...this.nodes].reverse()) {
      const texts = [...node.children.values()].map((child) => after.get(child))
        .filter((text) => text !== undefined);
      const common = texts.length > 0 ? texts.reduce(commonBeginning) : undefined;
      after.set(node, node.text ?? common);
      node.guess = node.text ?? (node.children.size > 1 ? common : undefined);
    }
    for (const node of this.nodes.slice(1)) {
      let known = node.parent;
      while (known.guess === undefined) known = known.parent;
      node.guess ??= node.own && known.guess;
      const added = node.guess?.startsWith(known.guess)
        ? node.guess.slice(known.guess.length) : "";
      node.label = node.own ?? added;
      node.known = node.own === undefined ? known : node.parent;
      if (node.label !== node.fitted) this.fit(node);
    }
  }

  /* Makes its columns, from what it adds to on, wide enough for a node. */
  fit(node) {
    node.fitted = node.label;
    if (node.label === "") return;
    const needed = this.pen.measureText(this.shown(node)).width +
                   BeamTree.BEND + 18;
    let width = 0;
    for (let depth = node.known.depth + 1; depth <= node.depth; ++depth) {
      width += this.widths[depth];
    }
    this.widths[node.depth] += Math.max(0, needed - width);
  }

  shown(node) {
    return shortened(node.label.trim() || node.label,
                     18 * (node.depth - node.known.depth));
  }

  /* The beams of an event: what none of them goes through was pruned. */
  takeBeams(beams) {
    const ends = this.addPaths(beams.map((beam) => (
      {keys: beam.tokens, text: beam.text, sum: beam.cum_log_prob})));
    for (const node of this.nodes) {
      if (node.state === "live") node.state = "gone";
    }
    ends.forEach((end, i) => {
      for (let node = end; node && node !== this.root; node = node.parent) {
        if (node.state === "gone") node.state = "live";
      }
      if (end && beams[i].finish_reason) end.state = "finished";
    });
    return ends;
  }

  /* Begins again with all that lived, as the trace of the search has it. */
  rebuild(candidates) {
    const lived = candidates.filter((event) => event.what !== "pruned");
    if (lived.length > BeamTree.MAX_NODES) return;
    this.clear();
    const keys = new Map([[-1, []]]);   /* by the number of a node */
    const steps = new Map();
    for (const event of lived) {
      keys.set(event.node, [...keys.get(event.parent), event.token]);
      if (!steps.has(event.step)) steps.set(event.step, []);
      steps.get(event.step).push(event);
    }
    for (const events of steps.values()) {
      const ends = this.addPaths(events.map((event) => ({
        keys: keys.get(event.node), sum: event.cum_log_prob,
        label: event.text.replaceAll("▁", " ")})));
      events.forEach((event, i) => {
        if (event.what === "finished" && ends[i]) ends[i].state = "finished";
      });
    }
  }

  /* Samples that go on, each by the parts in which it came. */
  takeSamples(choices) {
    for (const choice of choices) {
      let keys = choice.keys ?? [];
      let text = choice.drawnText ?? "";
      for (const part of choice.parts.splice(0)) {
        keys = keys.concat(part.tokens.length > 0 ? part.tokens : [part.text]);
        text += part.text;
        this.addPaths([{keys, text}]);
      }
      choice.keys = keys;
      choice.drawnText = text;
    }
    return choices.map((choice) => this.follow(choice.keys));
  }

  /* The hypotheses that are returned, best first. */
  finish(ends, isRanked) {
    for (const node of this.nodes) {
      if (node.state === "live") node.state = "gone";
    }
    ends.forEach((end, rank) => {
      for (let node = end; node && node !== this.root; node = node.parent) {
        if (node.rank < 0) node.rank = rank;
        node.state = isRanked && node.rank === 0 ? "best" : "won";
      }
      if (end) end.isEnd = true;
    });
  }

  /* Shows the path to `end` alone, or all. */
  light(end) {
    this.lit = end;
    this.draw();
  }

  /* Brings the end of a path into view, in the picture and on the page. */
  scrollTo(end) {
    end?.square?.scrollIntoView({block: "nearest", inline: "center"});
  }

  /* --- Drawing ------------------------------------------------------------ */

  probability(node) {
    let known = node.parent;
    while (known.sum === undefined) known = known.parent;
    if (node.sum === undefined) return 0.3;
    return Math.exp(Math.min(0, (node.sum - known.sum) /
                                (node.depth - known.depth)));
  }

  makeElements(node) {
    node.edge = makeSvg("g");
    node.path = makeSvg("path");
    node.edge.append(node.path);
    node.dot = makeSvg("g");
    node.circle = makeSvg("circle", {r: 4});
    node.square = makeSvg("rect", {width: 9, height: 9});
    node.words = makeSvg("text", {"text-anchor": "end"});
    node.title = makeSvg("title");
    node.dot.append(node.title, node.circle, node.square, node.words);
    this.edges.append(node.edge);
    this.dots.append(node.dot);
  }

  /* Writes what has changed of a node. */
  drawNode(node, xs) {
    if (!node.edge) this.makeElements(node);
    const x = xs[node.depth];
    const y = BeamTree.TOP + node.lane * BeamTree.LANE;
    const fromX = xs[node.parent.depth];
    const fromY = BeamTree.TOP + node.parent.lane * BeamTree.LANE;
    const place = `${x} ${fromX}`;
    if (node.shown.place !== place) {
      node.shown.place = place;
      const bend = fromX + BeamTree.BEND;
      node.path.setAttribute("d", fromY === y ? `M${fromX} ${y}H${x}`
        : `M${fromX} ${fromY}C${fromX + 14} ${fromY} ${fromX + 8} ${y} ` +
          `${bend} ${y}H${x}`);
      node.circle.setAttribute("cx", x);
      node.circle.setAttribute("cy", y);
      node.square.setAttribute("x", x - 4.5);
      node.square.setAttribute("y", y - 4.5);
      node.words.setAttribute("x", x - 7);
      node.words.setAttribute("y", y - 7);
    }
    this.style(node);
  }

  style(node) {
    const isLit = this.lit && this.litPath.has(node);
    const isFinished = node.state === "finished" || node.isEnd;
    const isPassed = node.label === "" && node.children.size === 1;
    const classes = `${node.state}${isFinished ? " finished" : ""}` +
                    `${isLit ? " lit" : ""}${isPassed ? " passed" : ""}`;
    if (node.shown.classes !== classes) {
      node.shown.classes = classes;
      node.edge.setAttribute("class", classes);
      node.dot.setAttribute("class", classes);
    }
    const width = (1 + 4.5 * this.probability(node)).toFixed(1);
    if (node.shown.width !== width) {
      node.shown.width = width;
      node.path.setAttribute("stroke-width", width);
    }
    if (node.shown.label !== node.label) {
      node.shown.label = node.label;
      node.words.textContent = this.shown(node);
      node.title.textContent = node.text ?? node.guess ?? node.label;
    }
  }

  draw() {
    if (!this.isLabelled) this.label();
    this.isLabelled = true;
    const isFollowing = this.picture.scrollLeft + this.picture.clientWidth >=
                        this.picture.scrollWidth - 60;
    const xs = [BeamTree.LEFT];
    for (let depth = 1; depth < this.widths.length; ++depth) {
      xs.push(xs[depth - 1] + this.widths[depth]);
    }
    this.litPath = new Set();
    for (let node = this.lit; node; node = node.parent) this.litPath.add(node);
    for (const node of this.nodes) {
      if (node !== this.root) this.drawNode(node, xs);
    }
    this.rootDot.setAttribute("cx", BeamTree.LEFT);
    this.rootDot.setAttribute("cy", BeamTree.TOP);
    this.svg.setAttribute("width", Math.ceil(xs.at(-1) + 24));
    this.svg.setAttribute("height", BeamTree.TOP + 12 +
                                    (this.ends.length - 1) * BeamTree.LANE);
    this.svg.classList.toggle("one", this.lit !== null);
    if (isFollowing) this.picture.scrollLeft = this.picture.scrollWidth;
  }
}
