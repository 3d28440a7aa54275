/* The form's parameters and the request body made of them. Empty and hidden
   fields are left out of the body, and the server's defaults hold. */

const byId = (id) => document.getElementById(id);

/* A new element; `text` is text, never markup. */
const make = (tag, properties = {}, ...children) => {
  const element = document.createElement(tag);
  Object.assign(element, properties);
  element.append(...children);
  return element;
};

const BEAMS = "beams";
const SAMPLES = "samples";

/* Labels are the API's names in words. `of` is the decoding method that the
   field belongs to, both if absent; `drawn` fields are for sampling only;
   `value` is the initial value, `otherwise` the placeholder of an empty field. */
const FIELDS = [
  {name: "num_beams", label: "Beams", kind: "int", min: 1, max: 1024, value: 4,
   of: BEAMS},
  {name: "n", label: "Return sequences", kind: "int", min: 1, max: 1024,
   otherwise: "default: all beams", of: BEAMS},
  {name: "n", label: "Samples", kind: "int", min: 1, max: 1024, value: 3,
   of: SAMPLES},
  {name: "temperature", label: "Temperature", kind: "number", min: 0, max: 100,
   otherwise: "default 1", drawn: true},
  {name: "length_penalty", label: "Length penalty", kind: "number",
   otherwise: "default 1", of: BEAMS},
  {name: "max_tokens", label: "Max new tokens", kind: "int", min: 1, value: 64},
  {name: "early_stopping", label: "Early stopping", kind: "choice", of: BEAMS, wide: true,
   choices: [["", "model default"],
             ["false", "false: when a better hypothesis is unlikely"],
             ["true", "true: when num_beams hypotheses are finished"],
             ["\"never\"", "never: when no better hypothesis is possible"]]},
  {name: "do_sample", label: "Sampled beam search", kind: "check", of: BEAMS,
   wide: true},
  {name: "num_beam_groups", label: "Beam groups", kind: "int", min: 1,
   max: 1024, otherwise: "default 1", of: BEAMS, more: true},
  {name: "diversity_penalty", label: "Diversity penalty", kind: "number",
   min: 0, otherwise: "default 0", of: BEAMS, more: true},
  {name: "top_k", label: "Top k", kind: "int", min: 0, otherwise: "default 0: off",
   drawn: true, more: true},
  {name: "top_p", label: "Top p", kind: "number", min: 0, max: 1,
   otherwise: "default 1", drawn: true, more: true},
  {name: "min_p", label: "Min p", kind: "number", min: 0, max: 1,
   otherwise: "default 0", drawn: true, more: true},
  {name: "repetition_penalty", label: "Repetition penalty", kind: "number",
   min: 0, otherwise: "default 1", more: true},
  {name: "no_repeat_ngram_size", label: "No repeat n-gram size", kind: "int",
   min: 0, otherwise: "default 0: off", more: true},
  {name: "min_tokens", label: "Min new tokens", kind: "int", min: 0,
   otherwise: "default 0", more: true},
  {name: "seed", label: "Seed", kind: "seed", otherwise: "random", more: true},
  {name: "stop", label: "Stop strings, one per line", kind: "lines", wide: true,
   more: true},
];

/* Other names of fields in the server's errors. */
const ALIASES = {messages: "prompt", max_new_tokens: "max_tokens",
                 min_new_tokens: "min_tokens", num_return_sequences: "n",
                 max_completion_tokens: "max_tokens"};

const searchKind = () => byId("form").elements.search.value;
const isChat = () => byId("form").elements.kind.value === "chat";

/* True if there is a choice of templates; chats use the chat template. */
const hasTemplates = () => !isChat() && byId("template").options.length > 1;

const makeControl = (field) => {
  if (field.kind === "choice") {
    const select = make("select");
    for (const [value, text] of field.choices) {
      select.append(make("option", {value, textContent: text}));
    }
    return select;
  }
  if (field.kind === "check") return make("input", {type: "checkbox"});
  if (field.kind === "lines") return make("textarea", {rows: 2});
  const input = make("input", {
    type: "text", value: field.value ?? "", placeholder: field.otherwise ?? ""});
  input.inputMode = field.kind === "number" ? "decimal" : "numeric";
  return input;
};

const addField = (field) => {
  const id = `field-${field.name}-${field.of ?? "all"}`;
  field.control = makeControl(field);
  field.control.id = id;
  field.control.name = field.name;
  const label = make("label", {htmlFor: id});
  field.row = make("div", {className: field.wide ? "field wide" : "field"});
  if (field.kind === "check") {
    label.className = "check";
    label.append(field.control, field.label);
    field.row.append(label);
  } else {
    label.append(field.label);
    field.row.append(label, field.control);
  }
  byId(field.more ? "more-fields" : "main-fields").append(field.row);
};

const isDrawn = () => searchKind() === SAMPLES ||
  FIELDS.find((field) => field.name === "do_sample").control.checked;

const isAsked = (field) => (!field.of || field.of === searchKind()) &&
  (!field.drawn || isDrawn());

const showFields = () => {
  for (const field of FIELDS) field.row.hidden = !isAsked(field);
  byId("system-row").hidden = !isChat();
  byId("template-row").hidden = !hasTemplates();
  byId("prompt-label").textContent = isChat() ? "Message" : "Prompt";
};

/* An invalid value; `param` is the name of its field. */
class FieldError extends Error {
  constructor(param, message) {
    super(message);
    this.param = param;
  }
}

const rangeOf = ({min, max}) =>
  min === undefined ? "" : max === undefined ? ` of at least ${min}`
                                             : ` from ${min} to ${max}`;

/* The value of a field, undefined if it is empty.
   Throws a FieldError naming it. */
const readField = (field) => {
  const {control, kind, name} = field;
  if (kind === "check") return control.checked;
  if (kind === "lines") {
    const lines = control.value.split("\n").filter((line) => line !== "");
    return lines.length > 0 ? lines : undefined;
  }
  const text = control.value.trim();
  if (text === "") return undefined;
  if (kind === "choice") return JSON.parse(text);
  const whole = kind !== "number";
  const looksRight = whole ? /^[+-]?\d+$/ : /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
  const value = Number(text);
  if (!looksRight.test(text) || !Number.isFinite(value) ||
      value < field.min || value > field.max) {
    throw new FieldError(name, `${field.label} must be ` +
      (whole ? "a whole number" : "a number") + rangeOf(field) +
      `, and is “${text}”.`);
  }
  return kind === "seed" ? text.replace(/^(?:\+|(-))?0*(?=\d)/, "$1") : value;
};

/* Returns the body as JSON. A seed may have more digits than a JavaScript
   number keeps, so it is a string in `body` and loses its quotes here. */
const writeBody = (body, space) =>
  JSON.stringify(body, null, space).replace(/("seed": ?)"(-?\d+)"/, "$1$2");

/* Returns the form as the body of an API request. Throws a FieldError. */
const readRequest = (model) => {
  const body = {};
  if (model) body.model = model;
  const prompt = byId("prompt").value;
  if (prompt === "") {
    throw new FieldError("prompt", isChat() ? "The message is empty."
                                            : "The prompt is empty.");
  }
  if (isChat()) {
    const system = byId("system").value;
    body.messages = [...(system ? [{role: "system", content: system}] : []),
                     {role: "user", content: prompt}];
  } else {
    body.prompt = prompt;
    if (hasTemplates()) body.template = byId("template").value;
  }
  for (const field of FIELDS) {
    if (!isAsked(field)) continue;
    const value = readField(field);
    if (value !== undefined) body[field.name] = value;
  }
  if (searchKind() === BEAMS) {
    body.num_beams ??= 1;
    body.n ??= body.num_beams;
    if (body.num_beams > 1) body.stream_beams = true;
  } else {
    body.do_sample = true;
  }
  return {...body, stream: true, stream_options: {include_usage: true},
          return_token_ids: true};
};

/* --- Errors --------------------------------------------------------------- */

const clearError = () => {
  byId("error").hidden = true;
  byId("error").textContent = "";
  for (const control of byId("form").querySelectorAll("[aria-invalid]")) {
    control.removeAttribute("aria-invalid");
    control.removeAttribute("aria-describedby");
  }
};

/* The control of the field that an error names, or undefined. */
const controlOf = (param) => {
  const name = String(param ?? "").split(/[.[]/)[0];
  if (isSpeech()) {
    return byId(name === "file" ? "audio" : name === "key" ? "key"
                                          : `speech-${name}`);
  }
  const known = ALIASES[name] ?? name;
  if (["key", "prompt", "template"].includes(known)) return byId(known);
  return FIELDS.find((field) => field.name === known && isAsked(field))?.control;
};

const showError = (message, param) => {
  byId("error").textContent = message;
  byId("error").hidden = false;
  const control = controlOf(param);
  if (!control) return;
  if (byId("more").contains(control)) byId("more").open = true;
  control.setAttribute("aria-invalid", "true");
  control.setAttribute("aria-describedby", "error");
  control.focus();
};

/* The prompt templates of the model, its default first. */
const takeTemplates = (names) => {
  byId("template").replaceChildren(...names.map((name) =>
    make("option", {value: name, textContent: name})));
  showFields();
};

/* Applies the limits that the server reports. */
const takeLimits = (limits) => {
  const known = {num_beams: limits.max_num_beams, n: limits.max_n,
                 max_tokens: limits.max_tokens};
  for (const field of FIELDS) {
    if (Number.isInteger(known[field.name])) field.max = known[field.name];
  }
};
