/* Calls of the server, and the events that it streams. */

/* The server refused; `param` is the field that it names. */
class ServerError extends Error {
  constructor(error, status) {
    super(error?.message || `The server answered with status ${status}.`);
    this.param = error?.param;
    this.status = status;
  }
}

const headersOf = (key, headers = {}) =>
  key ? {...headers, Authorization: `Bearer ${key}`} : headers;

/* Throws what went wrong, as a sentence. */
const call = async (path, options) => {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server cannot be reached.");
  }
  if (response.ok) return response;
  let body = {};
  try {
    body = await response.json();
  } catch {
    /* Something that stands before the server may answer anything. */
  }
  throw new ServerError(body?.error, response.status);
};

/* The data of server-sent events in `response`, as they come. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let data = [];
  while (true) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "" && data.length > 0) {
        yield data.join("\n");
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
  }
}

/* What the stream of one request has told so far. */
class Answer {
  constructor() {
    this.id = "";
    this.step = 0;
    this.sentence = undefined;  /* that the beams are of, of a text of several */
    this.beams = [];        /* the last event's */
    this.choices = new Map(); /* by index */
    this.usage = null;
    this.seed = undefined;
    this.warnings = [];
    this.isWhole = false;   /* [DONE] has come */
  }

  /* Throws a ServerError if the event is one. */
  take(data) {
    if (data === "[DONE]") {
      this.isWhole = true;
      return;
    }
    const event = JSON.parse(data);
    if (event.error) throw new ServerError(event.error, 200);
    if (event.id) this.id = event.id;
    if (event.usage) this.usage = event.usage;
    if (Array.isArray(event.warnings)) this.warnings.push(...event.warnings);
    const own = event.espalier;
    /* A number may not keep all digits of it. */
    if (own?.seed !== undefined) {
      this.seed = /"seed": ?(\d+)/.exec(data)?.[1] ?? own.seed;
    }
    if (Array.isArray(own?.beams)) {
      this.step = own.step;
      this.sentence = own.sentence;
      this.beams = own.beams;
    }
    for (const choice of event.choices ?? []) this.takeChoice(choice);
  }

  takeChoice(choice) {
    if (!this.choices.has(choice.index)) {
      this.choices.set(choice.index, {index: choice.index, text: "", tokens: [],
                                      parts: []});
    }
    const own = this.choices.get(choice.index);
    const text = choice.text ?? choice.delta?.content ?? "";
    const tokens = choice.token_ids ?? [];
    own.text += text;
    own.tokens.push(...tokens);
    if (text !== "" || tokens.length > 0) own.parts.push({text, tokens});
    for (const name of ["score", "cum_log_prob", "finish_reason"]) {
      if (choice[name] != null) own[name] = choice[name];
    }
  }

  /* Whether there is something of beams or samples. */
  hasBegun() {
    return this.step > 0 || this.choices.size > 0;
  }

  /* The choices that have ended, as they are numbered. */
  ended() {
    return [...this.choices.values()].filter((choice) => choice.finish_reason)
      .sort((a, b) => a.index - b.index);
  }
}

/* The request as a command of a shell. A file stands there by its name. */
const curlOf = (path, body, hasKey) => {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = body instanceof FormData
    ? [...body].map(([name, value]) => value instanceof File
        ? `-F ${quote(`${name}=@"${value.name.replace(/["\\]/g, "\\$&")}"`)}`
        : `--form-string ${quote(`${name}=${value}`)}`)
    : ["-H 'Content-Type: application/json'",
       `-d ${quote(writeBody(body, 1).replace(/\n */g, " "))}`];
  return [`curl -N ${quote(new URL(path, location.href).href)}`,
          ...(hasKey ? ['-H "Authorization: Bearer $API_KEY"'] : []), ...parts]
    .join(" \\\n  ");
};
