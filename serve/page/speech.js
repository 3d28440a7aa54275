/* Transcriptions: the form of a speech model, and the transcript of its
   answer. */

const WORD_HINT = byId("word-note").textContent;

const isSpeech = () => document.body.classList.contains("speech");

/* "1:07", "1:07.3" */
const clock = (seconds, digits = 0) => {
  const whole = Number(seconds.toFixed(digits));
  const rest = (whole % 60).toFixed(digits);
  return `${Math.floor(whole / 60)}:${rest.padStart(digits + (digits ? 3 : 2),
                                                    "0")}`;
};

const speechTask = () => byId("form").elements.task.value;

/* The fields of the form as the parts of a request; `audio` is a File.
   Throws a FieldError. */
const readSpeech = (model, audio, speech) => {
  if (!audio) {
    throw new FieldError("file", "Choose a file of audio, or record one.");
  }
  if (audio.size > speech.max_audio_bytes) {
    throw new FieldError("file", `The file has ${audio.size} bytes, and the ` +
      `server takes at most ${speech.max_audio_bytes}.`);
  }
  const form = new FormData();
  form.append("model", model);
  for (const name of ["language", "prompt"]) {
    const value = byId(`speech-${name}`).value.trim();
    if (value !== "") form.append(name, value);
  }
  const beams = readField({name: "num_beams", label: "Beams", kind: "int",
                           min: 1, max: speech.max_num_beams,
                           control: byId("speech-num_beams")});
  if (beams !== undefined) form.append("num_beams", beams);
  if (speech.words) form.append("word_timestamps", "true");
  form.append("stream", "true");
  /* Last: a server may refuse the others before it has read it. */
  form.append("file", audio, audio.name);
  return form;
};

/* What the stream of a transcription has told so far. */
class SpeechAnswer {
  constructor() {
    this.segments = [];     /* {start, end, text, words} */
    this.seconds = 0;       /* of audio, at the end */
    this.isWhole = false;
  }

  /* Throws a ServerError if the event is one. */
  take(data) {
    const event = JSON.parse(data);
    if (event.error) throw new ServerError(event.error, 200);
    if (event.type === "transcript.text.delta") {
      this.segments.push({...event.segment, text: event.delta});
    } else if (event.type === "transcript.text.done") {
      this.seconds = event.usage?.seconds ?? 0;
      this.isWhole = true;
    }
  }

  hasBegun() {
    return this.segments.length > 0;
  }
}

/* The space before a word, and the word, the darker the less likely it is. */
const makeWord = ({word, start, end, probability}) => {
  const text = word.trimStart();
  const element = make("span", {
    className: "word", textContent: text, tabIndex: -1,
    title: `${(100 * probability).toFixed(0)} %, ` +
      `${clock(start, 2)}–${clock(end, 2)}`});
  element.style.setProperty("--doubt", 1 - probability);
  return [word.slice(0, word.length - text.length), element];
};

const makeSegment = ({start, text, words}) => make("li", {},
  make("span", {className: "time", textContent: clock(start, 1)}),
  make("span", {className: "text"},
       ...(words?.length ? words.flatMap(makeWord).slice(1) : [text])));

/* Shows the segments that are not there yet. */
const showTranscript = ({segments, isWhole}) => {
  const list = byId("transcript");
  if (segments.length === 0) {
    if (isWhole) clearTranscript("No speech was found.");
    return;
  }
  if (list.firstElementChild?.className === "empty") list.replaceChildren();
  list.append(...segments.slice(list.children.length).map(makeSegment));
};

/* Fingers have no pointer to hold over a word. */
const showWord = ({target}) => {
  if (target.className !== "word") return;
  byId("word-note").textContent = `“${target.textContent}”: ${target.title}`;
};

/* The list is one stop of Tab; arrows go from word to word. */
const moveToWord = (event) => {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  const words = [...byId("transcript").querySelectorAll(".word")];
  const next = words[words.indexOf(document.activeElement) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
};

const clearTranscript = (text) => {
  byId("transcript").replaceChildren(
    make("li", {className: "empty", textContent: text}));
  byId("word-note").textContent = WORD_HINT;
};
