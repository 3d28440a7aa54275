/* The page: runs one request at a time and shows its result. */

const EMPTY_LIST = "Run a prompt to see its hypotheses here.";
const SAMPLES_HINT = "The common prefix is grey.";
const BEAMS_HINT = `Best first, with scores. ${SAMPLES_HINT}`;
const MAP_HINT = byId("map-hint").textContent;

const tree = new BeamTree(byId("tree"));
let model = {};
let audio = null;       /* the File to transcribe */
let recorded = "";      /* what there is of the recording in `audio` */
let recording = null;   /* from the click on; never beside a request */
let run = null;         /* the request that runs, or ran last */
let shownItems = [];    /* of the list */
let pressed = -1;       /* the item whose path alone is lit */

const key = () => byId("key").value.trim();
const isRunning = () => run !== null && !run.isOver;
const number = (value, digits) =>
  typeof value === "number" ? value.toFixed(digits).replace("-", "−") : "";
const many = (count, one, several = `${one}s`) =>
  `${count} ${count === 1 ? one : several}`;

/* --- The list ------------------------------------------------------------- */

/* A character of a word, in a script that sets words apart. */
const IN_WORD = new RegExp("(?![\\p{Script=Han}\\p{Script=Hiragana}" +
  "\\p{Script=Katakana}\\p{Script=Thai}])[\\p{L}\\p{N}\\p{M}]", "u");

/* How long the beginning is that all texts have in common: whole characters,
   and no part of a word. */
const agreedLength = (texts) => {
  if (texts.length < 2) return 0;
  const [first, ...others] = texts.map((text) => [...text]);
  let length = 0;
  while (length < first.length &&
         others.every((text) => text[length] === first[length])) ++length;
  const goesOn = [first, ...others].some((text) =>
    IN_WORD.test(text[length] ?? ""));
  while (goesOn && length > 0 && IN_WORD.test(first[length - 1])) --length;
  return first.slice(0, length).join("").length;
};

const makeItem = (index) => {
  const item = make("button", {type: "button"},
    make("span", {className: "rank"}), make("span", {className: "score"}),
    make("span", {className: "text"}, make("span", {className: "agreed"}),
         make("span", {className: "own"})),
    make("span", {className: "why"}));
  item.setAttribute("aria-pressed", "false");
  item.addEventListener("click", () => press(pressed === index ? -1 : index));
  item.addEventListener("mouseenter", () => light(index));
  item.addEventListener("mouseleave", () => light(pressed));
  return make("li", {}, item);
};

const fillItem = (button, item, rank, agreed) => {
  const [rankLabel, score, text, why] = button.children;
  button.className = item.state;
  rankLabel.textContent = rank + 1;
  score.textContent = number(item.score, 4);
  score.title = typeof item.sum === "number"
    ? `Score; the sum of log-probabilities is ${number(item.sum, 4)}` : "";
  text.children[0].textContent = item.text.slice(0, agreed);
  text.children[1].textContent = item.text.slice(agreed);
  why.textContent = item.why ?? "";
};

const showItems = (items) => {
  shownItems = items;
  const list = byId("list");
  if (items.length === 0) {
    list.replaceChildren(make("li", {className: "empty",
                                     textContent: EMPTY_LIST}));
    return;
  }
  if (list.firstElementChild?.className === "empty") list.replaceChildren();
  while (list.children.length > items.length) list.lastElementChild.remove();
  while (list.children.length < items.length) {
    list.append(makeItem(list.children.length));
  }
  list.classList.toggle("unscored", items.every((item) =>
    typeof item.score !== "number"));
  const agreed = agreedLength(items.map((item) => item.text));
  items.forEach((item, rank) =>
    fillItem(list.children[rank].firstElementChild, item, rank, agreed));
};

const light = (index) => tree.light(shownItems[index]?.end ?? null);

const press = (index) => {
  pressed = index;
  [...byId("list").children].forEach((item, i) =>
    item.firstElementChild?.setAttribute("aria-pressed", i === index));
  light(index);
  if (index >= 0) tree.scrollTo(shownItems[index]?.end);
};

/* --- A request ------------------------------------------------------------ */

const stateOf = (choice, rank) => {
  if (!choice.finish_reason) return "live";
  return run.hasBeams && rank === 0 ? "best" : "won";
};

const itemOf = (sequence, state, end) => (
  {text: sequence.text, score: sequence.score, sum: sequence.cum_log_prob,
   why: sequence.finish_reason, state, end});

/* Every event of beams has its part in the tree, also where several come
   within a frame. */
const takeBeams = () => {
  if (!run.hasBeams || run.answer.beams === run.taken) return;
  run.taken = run.answer.beams;
  /* Each sentence is a search of its own. */
  if (run.answer.sentence !== run.sentence) {
    run.sentence = run.answer.sentence;
    if (run.sentence > 0) tree.clear();
  }
  run.ends = tree.takeBeams(run.answer.beams);
};

/* Puts samples and what is returned into the tree; the list's items. */
const takeNews = () => {
  const {answer} = run;
  const ended = answer.ended();
  if (!run.hasBeams) {
    const choices = [...answer.choices.values()]
      .sort((a, b) => a.index - b.index);
    const ends = tree.takeSamples(choices);
    if (answer.isWhole) tree.finish(ends, false);
    return choices.map((choice, i) =>
      itemOf(choice, stateOf(choice, i), ends[i]));
  }
  if (!answer.isWhole || ended.length === 0) {
    return answer.beams.map((beam, i) => itemOf(
      beam, beam.finish_reason ? "finished" : "live", run.ends[i]));
  }
  if (run.sentence !== undefined) {
    return ended.map((choice, i) => itemOf(choice, stateOf(choice, i), null));
  }
  const ends = finishTree(ended);
  return ended.map((choice, i) => itemOf(choice, stateOf(choice, i), ends[i]));
};

/* Lights what is returned; where each ends. */
const finishTree = (choices) => {
  const ends = tree.addPaths(choices.map((choice) => (
    {keys: choice.keys ?? choice.tokens, text: choice.text,
     sum: choice.cum_log_prob})))
    .map((end) => end === tree.root ? null : end);
  tree.finish(ends, run.hasBeams);
  return ends;
};

/* Streams leave out steps that come too fast; a trace has all of them. */
const completeTree = (events) => {
  tree.rebuild(events.filter((event) => event.event === "candidate"));
  finishTree(run.answer.ended())
    .forEach((end, i) => { shownItems[i].end = end; });
  light(pressed);
  tree.picture.scrollTo(0, 0);
};

const progress = () => {
  const {answer} = run;
  const seconds = ((performance.now() - run.begun) / 1000).toFixed(1);
  if (run.isSpeech) {
    const last = answer.segments.at(-1);
    return last ? `${clock(last.end)} transcribed, ${seconds} s`
                : "Waiting for the first segment";
  }
  if (run.hasBeams) {
    return answer.step > 0 ? `Step ${answer.step}, ${seconds} s`
                           : "Waiting for the first step";
  }
  return answer.choices.size > 0 ? `Sampling, ${seconds} s`
                                 : "Waiting for the first token";
};

const show = () => {
  run.frame = 0;
  if (run.isSpeech) {
    showTranscript(run.answer);
  } else {
    showSearch();
  }
  if (!run.isOver) byId("progress").textContent = progress();
};

const showSearch = () => {
  showItems(takeNews());
  if (pressed >= shownItems.length) press(-1);
  light(pressed);
  byId("list-hint").textContent = run.hint +
    (tree.isFull ? " The tree is too large to draw all of it." : "");
};

/* Once a frame, however many events come. */
const showSoon = () => {
  run.frame ||= requestAnimationFrame(show);
};

const summary = () => {
  const {answer} = run;
  const seconds = (performance.now() - run.begun) / 1000;
  const parts = [`Done in ${seconds.toFixed(2)} s`];
  if (run.isSpeech) {
    return [...parts, `${clock(answer.seconds, 1)} of audio`,
            many(answer.segments.length, "segment")].join(" · ") + ".";
  }
  parts.push(many(answer.ended().length, ...run.nouns));
  const usage = answer.usage;
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens;
    parts.push(`${many(usage.prompt_tokens, "prompt token")}` +
               (cached ? `, ${cached} of them cached` : ""),
               many(usage.completion_tokens, "generated token"));
  }
  if (answer.seed !== undefined) parts.push(`seed ${answer.seed}`);
  return parts.join(" · ") + "." +
    (answer.warnings.length > 0 ? ` Warning: ${answer.warnings.join("; ")}`
                                : "");
};

/* The status is announced when it changes for good; progress is not. */
const showStatus = (text) => byId("status").replaceChildren(text);

/* The request and the stage of the recording decide what may be used. */
const showControls = () => {
  const runs = isRunning();
  const stage = recording?.stage;
  const records = stage === "recording";
  const ends = stage === "ending";
  byId("results").classList.toggle("running", runs);
  for (const id of ["list", "transcript"]) {
    byId(id).setAttribute("aria-busy", runs);
  }
  byId("run").disabled = runs || ends;
  byId("stop").disabled = !runs && !recording;
  byId("stop").firstChild.textContent = recording ? "Discard " : "Stop ";
  byId("record").disabled = runs || ends || stage === "asking";
  byId("record").textContent = records ? "Stop and transcribe" : "Record";
  byId("record").classList.toggle("on", records);
  byId("level").hidden = !records;
  byId("audio").disabled = byId("curl").disabled = records || ends;
};

const pathOf = () => {
  if (isSpeech()) return `v1/audio/${speechTask()}`;
  return isChat() ? "v1/chat/completions" : "v1/completions";
};

/* The body of a request. Throws a FieldError. */
const readBody = () => isSpeech()
  ? readSpeech(model.id, audio, model.espalier)
  : readRequest(model.id);

const begin = (body) => {
  clearError();
  /* A file is sent before the browser has given the microphone. */
  if (recording) dropRecording();
  if (run?.frame) cancelAnimationFrame(run.frame);
  run = {answer: isSpeech() ? new SpeechAnswer() : new Answer(),
         abort: new AbortController(), frame: 0,
         begun: performance.now(), isOver: false, taken: null, ends: [],
         isSpeech: isSpeech(), hasBeams: body.stream_beams === true,
         nouns: body.num_beams ? ["hypothesis", "hypotheses"]
                               : ["sample", "samples"],
         hint: body.stream_beams ? BEAMS_HINT : SAMPLES_HINT};
  byId("list-title").textContent = body.num_beams ? "Hypotheses" : "Samples";
  tree.clear();
  showItems([]);
  press(-1);
  clearMap();
  clearTranscript("");
  showStatus("Running.");
  byId("status").append(" ", make("span", {id: "progress",
                                           ariaHidden: "true"}));
  showControls();
};

/* Runs what the form asks for, until it has ended. */
const start = async () => {
  if (isRunning() || recording?.stage === "ending") return;
  if (recording?.stage === "recording") return endRecording();
  let body;
  try {
    body = readBody();
  } catch (error) {
    clearError();
    return showError(error.message, error.param);
  }
  begin(body);
  const own = run;
  try {
    const response = await call(pathOf(), {
      method: "POST", signal: own.abort.signal,
      ...(own.isSpeech
        ? {body, headers: headersOf(key())}
        : {body: writeBody(body),
           headers: headersOf(key(), {"Content-Type": "application/json"})})});
    for await (const data of eventsOf(response)) {
      own.answer.take(data);
      takeBeams();
      showSoon();
    }
    if (!own.answer.isWhole) {
      throw new Error("The server closed the connection before the end.");
    }
    own.end = summary();
  } catch (error) {
    own.error = error;
  }
  end(own);
};

const end = (own) => {
  cancelAnimationFrame(own.frame);
  own.isOver = true;
  show();
  showControls();
  if (!own.error) {
    showStatus(own.end);
    return own.isSpeech ? undefined : showMap(own);
  }
  if (own.error.name === "AbortError") return showStatus("Stopped.");
  showStatus(own.answer.hasBegun() ? "Ended by an error." : "Request failed.");
  if (own.error.status === 401) askForKey();
  showError(own.error.message,
            own.error.status === 401 ? "key" : own.error.param);
};

const stop = () => {
  if (isRunning()) run.abort.abort();
  if (!recording) return;
  dropRecording();
  showStatus("Discarded the recording.");
};

/* --- Audio ---------------------------------------------------------------- */

const beginRecording = async () => {
  clearError();
  const own = new Recording(mostSamples());
  recording = own;
  showControls();
  try {
    await own.begin((seconds, level) => {
      byId("recorded").textContent = clock(Math.floor(seconds));
      byId("level").value = level;
    }, endRecording);
  } catch (error) {
    if (recording !== own) return;
    dropRecording();
    return showError(error.message);
  }
  byId("recorded").textContent = clock(0);
  showControls();
  showStatus("Recording.");
};

/* The samples of a recording that the server takes. */
const mostSamples = () => Math.floor(Math.min(
  (model.espalier.max_audio_seconds ?? Infinity) * SPEECH_RATE,
  ((model.espalier.max_audio_bytes ?? Infinity) - WAV_HEADER_BYTES) / 2));

/* Ends the recording, and transcribes it. */
const endRecording = async () => {
  const own = recording;
  if (own?.stage !== "recording") return;
  clearError();
  const ending = own.end();
  showControls();
  showStatus("The recording has ended.");
  try {
    const file = await ending;
    if (recording !== own) return;
    audio = file;
  } catch (error) {
    if (recording !== own) return;
    dropRecording();
    return showError(error.message);
  }
  recorded = `Recording of ${clock(Math.floor(own.seconds))}`;
  byId("audio").value = "";
  byId("save-audio").hidden = false;
  dropRecording();
  start();
};

/* Drops it at any stage; what it waits for finds it dropped. */
const dropRecording = () => {
  recording.close();
  recording = null;
  byId("recorded").textContent = recorded;
  showControls();
};

const takeFile = () => {
  const [file] = byId("audio").files;
  /* A chooser that is left without one does not drop a recording. */
  if (!file && recorded !== "") return;
  audio = file ?? null;
  byId("recorded").textContent = recorded = "";
  byId("save-audio").hidden = true;
};

/* --- Pages ---------------------------------------------------------------- */

const clearMap = () => {
  for (const id of ["map", "map-legend", "save"]) byId(id).hidden = true;
  byId("map-hint").textContent = MAP_HINT;
};

const tracePath = (own) =>
  `v1/requests/${encodeURIComponent(own.answer.id)}/trace`;

const showMap = async (own) => {
  if (own.sentence !== undefined) {
    byId("map-hint").textContent = "Each sentence was decoded separately; " +
      "the tree shows the last one.";
    return;
  }
  if (model.espalier?.traces === false || own.answer.id === "") {
    byId("map-hint").textContent = "Start the server with " +
      "--trace-requests 16 to see which pages the sequences share.";
    return;
  }
  try {
    const response = await call(`${tracePath(own)}?format=jsonl`,
                                {headers: headersOf(key())});
    const events = readTrace(await response.text());
    if (own !== run) return;
    const steps = stepsOf(events);
    completeTree(events);
    byId("save").hidden = false;
    const isDrawn = drawPageMap(steps, byId("map"));
    byId("map").hidden = byId("map-legend").hidden = !isDrawn;
    byId("map-hint").textContent = sharingOf(steps) +
      (isDrawn ? "" : " The map is too large to draw it here.");
  } catch (error) {
    if (own !== run) return;
    byId("map-hint").textContent =
      `No trace of this request: ${error.message}` +
      (error.status === 404 ? " Start the server with --trace-requests 16."
                            : "");
  }
};

const save = (blob, name) => {
  const url = URL.createObjectURL(blob);
  make("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
};

const saveTrace = async () => {
  const own = run;
  try {
    const response = await call(`${tracePath(own)}?format=html`,
                                {headers: headersOf(key())});
    save(await response.blob(), `${own.answer.id}.html`);
  } catch (error) {
    showError(error.message);
  }
};

/* --- The rest ------------------------------------------------------------- */

const copyCurl = async () => {
  let command;
  try {
    command = curlOf(pathOf(), readBody(), key() !== "");
  } catch (error) {
    clearError();
    return showError(error.message, error.param);
  }
  const box = byId("command");
  box.value = command;
  box.hidden = false;
  try {
    await navigator.clipboard.writeText(command);
    byId("copied").textContent = "Copied.";
  } catch {
    /* Without TLS a browser has no clipboard to offer. */
    box.focus();
    box.select();
    byId("copied").textContent = "Select and copy it with Ctrl C.";
  }
};

const askForKey = () => {
  byId("key-row").hidden = false;
  byId("key").focus();
};

/* Which model there is, and what the server allows. */
const loadModel = async () => {
  try {
    const response = await call("v1/models", {headers: headersOf(key())});
    model = (await response.json()).data?.[0] ?? {};
  } catch (error) {
    if (error.status === 401 && key() === "") return askForKey();
    return showError(error.message, error.status === 401 ? "key" : undefined);
  }
  clearError();
  byId("model").textContent = byId("model").title = model.id ?? "";
  document.body.classList.toggle("speech",
                                 model.espalier?.task === "transcribe");
  byId("task").hidden = byId("language-row").hidden =
    !model.espalier?.translates;
  byId("transcript-hint").hidden = !model.espalier?.words;
  byId("transcript").tabIndex = model.espalier?.words ? 0 : -1;
  byId("kind").hidden = !model.espalier?.chat;
  takeLimits(model.espalier ?? {});
  byId("speech-num_beams").placeholder =
    `default ${Math.min(5, model.espalier?.max_num_beams ?? 5)}`;
  takeTemplates(model.espalier?.templates ?? []);
};

FIELDS.forEach(addField);
showFields();
showItems([]);
clearTranscript("Choose a file or record to see the transcript here.");
byId("form").addEventListener("change", showFields);
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
byId("stop").addEventListener("click", stop);
byId("curl").addEventListener("click", copyCurl);
byId("save").addEventListener("click", saveTrace);
byId("audio").addEventListener("change", takeFile);
byId("record").addEventListener("click", () =>
  recording ? endRecording() : beginRecording());
for (const type of ["click", "focusin"]) {
  byId("transcript").addEventListener(type, showWord);
}
byId("transcript").addEventListener("keydown", moveToWord);
byId("save-audio").addEventListener("click", () => save(audio, audio.name));
byId("key").addEventListener("change", loadModel);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (!event.repeat) start();
});
loadModel();
