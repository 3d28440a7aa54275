#include "python/src/engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "base/field_error.h"
#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "espalier/chat.h"
#include "espalier/stats.h"
#include "espalier/tokenizer.h"
#include "python/src/answers.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"
#include "python/src/speech.h"
#include "python/src/weights.h"
#include "request/json/read_prompt.h"
#include "request/read_speculation.h"
#include "text/chat/final_message.h"

namespace espalier::python {
namespace nb = nanobind;

namespace {

std::vector<TokenId> TokensOf(nb::handle given, std::string_view field) {
  const nb::sequence list = nb::cast<nb::sequence>(given);
  std::vector<int64_t> ids;
  ids.reserve(nb::len(list));
  for (const nb::handle id : list) {
    int64_t value = 0;
    if (!nb::try_cast(id, value)) {
      Raise(InvalidField(FieldName{field}, "[", ids.size(),
                         "] must be an integer",
                         Got(nb::cast<std::string>(nb::repr(id)))));
    }
    ids.push_back(value);
  }
  std::vector<TokenId> tokens;
  RaiseIfError(ToTokenIds(field, ids, &tokens));
  return tokens;
}

// REQUIRES: a str.
std::string TextOf(nb::handle text, std::string_view field) {
  std::string value;
  if (nb::try_cast(text, value)) return value;
  Raise(InvalidField(FieldName{field}, " must be UTF-8: it has half of a pair",
                     Got(nb::cast<std::string>(nb::repr(text)))));
}

Prompt PromptOf(nb::handle prompt, const Params& params) {
  if (!nb::isinstance<nb::str>(prompt)) {
    const RequestBody& body = params.body;
    if (!body.template_name.empty() || body.parse_special) {
      Raise(InvalidField(
          FieldName{body.parse_special ? "parse_special" : "template"},
          " needs a prompt of text",
          Got(nb::cast<std::string>(nb::repr(nb::type_name(prompt.type()))))));
    }
  }
  if (nb::isinstance<ChatPrompt>(prompt)) {
    const ChatPrompt& chat = nb::cast<const ChatPrompt&>(prompt);
    return chat.is_continued ? Prompt(chat.tokens)
                             : Prompt::OfChat(chat.tokens);
  }
  if (!nb::isinstance<nb::str>(prompt))
    return Prompt(TokensOf(prompt, "prompt_tokens"));
  std::string text = TextOf(prompt, "prompt");
  const std::string& name = params.body.template_name;
  Prompt made = name.empty() ? Prompt(std::move(text))
                             : Prompt::Templated(std::move(text), name);
  return params.body.parse_special ? std::move(made).WithSpecialParsed() : made;
}

GenerationRequest RequestOf(nb::handle prompt, const Params& params) {
  GenerationRequest request{PromptOf(prompt, params), params.body.params};
  request.given = params.body.given;
  return request;
}

std::optional<int64_t> BytesOf(std::string_view name,
                               std::optional<int64_t> mib) {
  constexpr int64_t kMost = INT64_MAX >> 20;
  if (!mib) return std::nullopt;
  if (*mib > kMost || *mib < 0) {
    Raise(InvalidField(OptionName{name}, " must be in [0, ", kMost, "]",
                       Got(*mib)));
  }
  return *mib << 20;
}

// Notifies one that waits with WaitInterruptibly.
class Latch {
 public:
  explicit Latch(int64_t count) : count_(count) {}

  void CountDown() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--count_ == 0) is_open_.notify_all();
  }
  bool WaitShortly() {
    std::unique_lock<std::mutex> lock(mutex_);
    return is_open_.wait_for(lock, kBetweenSignals,
                             [&] { return count_ <= 0; });
  }
  int64_t count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable is_open_;
  int64_t count_;  // guarded by mutex_
};

}  // namespace

Params Params::Parse(const std::string& line) {
  return {ValueOrRaise(ParseRequestLine(line).body)};
}

CallOptions CallOf(double timeout, std::stop_token stop) {
  CallOptions call = {.stop = std::move(stop), .keeps_error_parts = true};
  if (std::isfinite(timeout)) call.timeout = absl::Seconds(timeout);
  return call;
}

GeneratorOptions WithMemory(GeneratorOptions options, const Memory& memory) {
  options.kv_cache_bytes = BytesOf("kv_cache_mib", memory.kv_cache_mib);
  options.host_cache_bytes = BytesOf("host_cache_mib", memory.host_cache_mib);
  return options;
}

namespace {

std::shared_ptr<Generator> LoadGenerator(const std::string& directory,
                                         const GeneratorOptions& options) {
  absl::StatusOr<Generator> loaded =
      RunWithoutGil([&] { return Generator::Load(directory, options); });
  RaiseIfError(InWordsOfKeywords(loaded.status()));
  const auto& encoder = loaded->description().encoder;
  if (encoder && encoder->features) {
    Raise(InvalidArgument(directory,
                          " reads audio, not texts or tokens: use "
                          "espalier.Transcriber"));
  }
  return std::make_shared<Generator>(*std::move(loaded));
}

}  // namespace

Engine::Engine(const std::string& directory, const GeneratorOptions& options)
    : Engine("LLM", LoadGenerator(directory, options)) {}

Engine::Engine(std::string name, std::shared_ptr<Generator> generator)
    : num_forks_(NumForks()),
      name_(std::move(name)),
      generator_(std::move(generator)) {}

Engine::~Engine() {
  if (is_forked()) {
    // Its threads are in the parent: nothing to join.
    static_cast<void>(new std::shared_ptr<Generator>(std::move(generator_)));
    return;
  }
  RunWithoutGil([&] { Close(); });
}

std::shared_ptr<Generator> Engine::generator() const {
  RaiseIfForked(num_forks_, name_);
  std::shared_ptr<Generator> generator;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    generator = generator_;
  }
  // Without the lock: finalizers may run here that close the engine.
  if (generator == nullptr) Raise(ClosedError());
  return generator;
}

bool Engine::is_closed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return generator_ == nullptr;
}

bool Engine::is_forked() const { return num_forks_ != NumForks(); }

void Engine::Close() {
  if (is_forked()) return;
  std::shared_ptr<Generator> closed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed = std::move(generator_);
    generator_ = nullptr;
  }
  if (closed != nullptr) closed->Shutdown(Message(ClosedError()));
}

absl::Status Engine::ClosedError() const {
  return absl::CancelledError(Concat("the ", name_, " is closed"));
}

nb::list Engine::Generate(nb::list prompts, nb::handle params, double timeout,
                          nb::object on_progress) {
  const std::shared_ptr<Generator> generator = this->generator();
  const size_t count = nb::len(prompts);
  const bool has_each = nb::isinstance<nb::list>(params);
  const auto params_of = [&](size_t i) -> const Params& {
    return nb::cast<const Params&>(has_each ? params[i] : params);
  };
  // The answers to those whose prompts are wrong, and the requests of others.
  std::vector<nb::object> wrong(count);
  std::vector<GenerationRequest> requests;
  requests.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    try {
      requests.push_back(RequestOf(prompts[i], params_of(i)));
    } catch (nb::python_error& error) {
      wrong[i] = nb::borrow(error.value());
    }
  }
  const size_t num_requests = requests.size();
  std::stop_source stop;
  std::vector<absl::StatusOr<Generation>> answers;
  std::atomic<int64_t> num_ended = static_cast<int64_t>(count - num_requests);
  Latch latch(1);
  std::optional<std::thread> worker;
  try {
    worker.emplace([&] {
      try {
        answers = generator->GenerateAll(std::move(requests),
                                         CallOf(timeout, stop.get_token()),
                                         [&] { ++num_ended; });
      } catch (const std::bad_alloc&) {  // `answers` stays empty
      }
      latch.CountDown();
    });
  } catch (const std::system_error& error) {
    Raise(absl::ResourceExhaustedError(error.what()));
  }
  const auto join = [&] { RunWithoutGil([&] { worker->join(); }); };
  try {
    WaitInterruptibly([&] { return latch.WaitShortly(); },
                      [&] { stop.request_stop(); },
                      [&] {
                        if (!on_progress.is_none())
                          on_progress(num_ended.load());
                      });
  } catch (...) {
    join();
    throw;
  }
  join();
  if (answers.size() != num_requests) throw std::bad_alloc();
  nb::list list;
  auto answer = answers.begin();
  for (size_t i = 0; i < count; ++i) {
    if (wrong[i].is_valid()) {
      list.append(wrong[i]);
    } else {
      list.append(ObjectOf(prompts[i], std::move(*answer++),
                           params_of(i).body.aliases));
    }
  }
  return list;
}

nb::list Engine::Score(nb::list prompts, nb::list continuations,
                       const Params& params, bool append_eos, double timeout) {
  const std::shared_ptr<Generator> generator = this->generator();
  const size_t count = nb::len(prompts);
  if (nb::len(continuations) != count) {
    Raise(InvalidField("`continuations` must have a list for each of ", count,
                       " prompts", Got(nb::len(continuations))));
  }
  std::vector<ScoreRequest> requests;
  requests.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    ScoreRequest request{PromptOf(prompts[i], params)};
    for (const nb::handle text : nb::cast<nb::list>(continuations[i])) {
      if (nb::isinstance<nb::str>(text)) {
        request.continuations.emplace_back(TextOf(text, "continuations"));
      } else {
        request.continuations.emplace_back(TokensOf(text, "continuations"));
      }
    }
    request.append_eos = append_eos;
    request.params = params.body.params;
    requests.push_back(std::move(request));
  }
  // Callbacks may come after an exception here.
  struct Scores {
    explicit Scores(size_t count)
        : answers(count, absl::CancelledError("not scored")),
          latch(static_cast<int64_t>(count)) {}

    std::vector<absl::StatusOr<Generation>> answers;
    Latch latch;
    std::stop_source stop;
  };
  const auto shared = std::make_shared<Scores>(count);
  const absl::Cleanup ends = [&] { shared->stop.request_stop(); };
  RunWithoutGil([&] {
    for (size_t i = 0; i < count; ++i) {
      generator->ScoreAsync(
          std::move(requests[i]),
          [shared, i](absl::StatusOr<Generation> answer) {
            shared->answers[i] = std::move(answer);
            shared->latch.CountDown();
          },
          CallOf(timeout, shared->stop.get_token()));
    }
  });
  WaitInterruptibly([&] { return shared->latch.WaitShortly(); },
                    [&] { shared->stop.request_stop(); }, [] {});
  nb::list list;
  for (absl::StatusOr<Generation>& answer : shared->answers) {
    if (!answer.ok()) {
      list.append(
          ExceptionOf(InWordsOfLine(params.body.aliases, answer.status())));
      continue;
    }
    nb::list scores;
    for (ContinuationScore& score : answer->continuations) {
      scores.append(std::move(score));
    }
    list.append(scores);
  }
  return list;
}

ChatPrompt Engine::RenderChat(const std::string& text) {
  const std::shared_ptr<Generator> generator = this->generator();
  json::value parsed = ValueOrRaise(ParseJson(text));
  json::object& fields = parsed.as_object();
  ChatInputs inputs;
  if (!fields["messages"].is_array()) {
    Raise(InvalidField("`messages` must be a list of messages",
                       Got(Shown(&fields["messages"]))));
  }
  inputs.messages = std::move(fields["messages"].as_array());
  RaiseIfError(CheckMessages("messages", &inputs.messages));
  inputs.tools = std::move(fields["tools"]);
  inputs.documents = std::move(fields["documents"]);
  inputs.more = std::move(fields["template_kwargs"].as_object());
  const json::value& adds = fields["add_generation_prompt"];
  const bool adds_prompt = !adds.is_bool() || adds.as_bool();
  inputs.add_generation_prompt = adds_prompt;
  RaiseIfError(SettleFinalMessage(fields["continue_final_message"].as_bool(),
                                  adds.is_bool() ? &adds_prompt : nullptr,
                                  &inputs));
  const bool is_continued = inputs.continue_final_message;
  const auto make = [&]() -> absl::StatusOr<std::vector<TokenId>> {
    ASSIGN_OR_RETURN(const ChatPrompts* const chat, generator->chat_prompts());
    return chat->Make(std::move(inputs),
                      generator->description().max_prompt_tokens());
  };
  return {ValueOrRaise(RunWithoutGil(make)), is_continued};
}

Requests::Requests()
    : num_forks_(NumForks()), queue_(ValueOrRaise(ReadyQueue::Create())) {}

Requests::~Requests() {
  if (num_forks_ != NumForks()) {
    // They are those of the parent.
    for (auto& [number, open] : open_) {
      static_cast<void>(new Open(std::move(open)));
    }
    return;
  }
  for (auto& [number, open] : open_) End(open);
}

void Requests::End(Open& open) {
  RunWithoutGil([&] {
    open.stop.request_stop();
    open.stream.reset();
  });
}

void Requests::Submit(const Engine& engine, int64_t number, nb::object prompt,
                      const Params& params, double timeout) {
  const std::shared_ptr<Generator> generator = engine.generator();
  GenerationRequest request = RequestOf(prompt, params);
  Open& open = open_[number];
  open.prompt = std::move(prompt);
  open.aliases = params.body.aliases;
  const CallOptions call = CallOf(timeout, open.stop.get_token());
  RunWithoutGil([&] {
    generator->GenerateAsync(
        std::move(request),
        [queue = queue_, number](absl::StatusOr<Generation> answer) {
          queue->Push({number, std::move(answer)});
        },
        call);
  });
}

void Requests::Stream(const Engine& engine, int64_t number, nb::object prompt,
                      const Params& params, double timeout) {
  const std::shared_ptr<Generator> generator = engine.generator();
  GenerationRequest request = RequestOf(prompt, params);
  std::stop_source stop;
  absl::StatusOr<AsyncStream> stream = RunWithoutGil([&] {
    return generator->StreamAsync(
        std::move(request), [queue = queue_, number] { queue->Push({number}); },
        CallOf(timeout, stop.get_token()));
  });
  open_.insert_or_assign(number, Open{std::move(prompt), params.body.aliases,
                                      stop, ValueOrRaise(std::move(stream))});
}

void Requests::Cancel(int64_t number) {
  if (num_forks_ != NumForks()) return;
  // Out of the table before it ends: the engine is called without the GIL, and
  // the prompt may have a finalizer that cancels.
  auto ended = open_.extract(number);
  if (!ended.empty()) End(ended.mapped());
}

nb::list Requests::Take() {
  RaiseIfForked(num_forks_, "LLM");
  nb::list list;
  for (ReadyQueue::Ready& ready : queue_->Take()) {
    // To make an object may run a finalizer that cancels, so all of the request
    // is taken before.
    const auto found = open_.find(ready.request);
    if (found == open_.end()) continue;  // cancelled
    std::vector<StreamEvent> events;
    std::optional<absl::StatusOr<Generation>> answer = std::move(ready.answer);
    if (found->second.stream.has_value()) {
      events = found->second.stream->TakeEvents();
      answer = found->second.stream->TakeResult();
    }
    Open ended;
    if (answer.has_value()) {
      ended = std::move(found->second);
      open_.erase(found);
    }
    nb::list pieces;
    for (StreamEvent& event : events) pieces.append(ObjectOf(std::move(event)));
    nb::object object = nb::none();
    if (answer.has_value()) {
      try {
        object = ObjectOf(ended.prompt, *std::move(answer), ended.aliases);
      } catch (nb::python_error& error) {  // it has an answer all the same
        object = nb::borrow(error.value());
      }
    }
    list.append(nb::make_tuple(ready.request, pieces, object));
  }
  return list;
}

bool Requests::Wait(double seconds) const {
  RaiseIfForked(num_forks_, "LLM");
  return WaitFor(*queue_, seconds);
}

namespace {

nb::dict StatsOf(const Engine& engine) {
  const std::shared_ptr<Generator> generator = engine.generator();
  const GeneratorStats stats =
      RunWithoutGil([&] { return generator->Stats(); });
  nb::dict dict;
  dict["num_open"] = stats.num_open;
  dict["num_refused"] = stats.num_refused;
  dict["num_requests"] = stats.num_requests;
  dict["num_steps"] = stats.num_steps;
  dict["num_prompt_tokens"] = stats.num_prompt_tokens;
  dict["num_generated_tokens"] = stats.num_generated_tokens;
  dict["num_decode_rows"] = stats.num_decode_rows;
  return dict;
}

std::string MetricsOf(const Engine& engine) {
  const std::shared_ptr<Generator> generator = engine.generator();
  return RunWithoutGil([&] { return PrometheusText(generator->Stats()); });
}

const Tokenizer& TokenizerOf(const Generator& generator) {
  const std::shared_ptr<const Tokenizer> tokenizer = generator.tokenizer();
  if (tokenizer == nullptr) {
    Raise(absl::FailedPreconditionError("the model has no tokenizer"));
  }
  return *tokenizer;  // the generator's own
}

std::vector<TokenId> Encode(const Engine& engine, nb::str given,
                            bool add_special_tokens, bool parse_special) {
  const std::shared_ptr<Generator> generator = engine.generator();
  const std::string text = TextOf(given, "text");
  const Tokenizer& tokenizer = TokenizerOf(*generator);
  return ValueOrRaise(RunWithoutGil([&] {
    return tokenizer.Encode(text, {.add_special_tokens = add_special_tokens,
                                   .parse_special = parse_special});
  }));
}

nb::str Decode(const Engine& engine, nb::handle given,
               bool skip_special_tokens) {
  const std::shared_ptr<Generator> generator = engine.generator();
  const Tokenizer& tokenizer = TokenizerOf(*generator);
  const std::vector<TokenId> tokens = TokensOf(given, "token_ids");
  return Text(ValueOrRaise(RunWithoutGil([&] {
    return tokenizer.Decode(tokens, {.show_special = !skip_special_tokens});
  })));
}

nb::typed<nb::list, nb::str> Pieces(const Engine& engine, nb::handle tokens) {
  const std::shared_ptr<Generator> generator = engine.generator();
  const Tokenizer& tokenizer = TokenizerOf(*generator);
  nb::list pieces;
  for (const TokenId token : TokensOf(tokens, "token_ids")) {
    pieces.append(Text(tokenizer.Piece(token)));
  }
  return nb::typed<nb::list, nb::str>(std::move(pieces));
}

std::optional<TokenId> PieceToId(const Engine& engine, std::string_view piece) {
  const std::shared_ptr<Generator> generator = engine.generator();
  return TokenizerOf(*generator).PieceToId(piece);
}

std::vector<TokenId> PromptTokensOf(const Engine& engine, nb::handle prompt,
                                    const Params& params) {
  const std::shared_ptr<Generator> generator = engine.generator();
  Prompt made = PromptOf(prompt, params);
  return ValueOrRaise(
      RunWithoutGil([&] { return generator->MakePrompt(std::move(made)); }));
}

nb::dict TokenizerFacts(const Engine& engine) {
  const std::shared_ptr<Generator> generator = engine.generator();
  const Tokenizer& tokenizer = TokenizerOf(*generator);
  const SpecialTokens& special = tokenizer.special_tokens();
  nb::dict dict;
  dict["vocab_size"] = tokenizer.vocab_size();
  dict["bos_token_id"] = nb::cast(special.bos);
  dict["eos_token_id"] = nb::cast(special.eos);
  dict["pad_token_id"] = nb::cast(special.pad);
  dict["unk_token_id"] = nb::cast(special.unk);
  return dict;
}

nb::dict ModelFacts(const Engine& engine) {
  const std::shared_ptr<Generator> generator = engine.generator();
  const ModelDescription& model = generator->description();
  nb::dict dict;
  dict["vocab_size"] = model.vocab_size;
  dict["max_context"] = model.max_context;
  dict["eos_token_ids"] = nb::cast(model.eos_token_ids);
  dict["has_encoder"] = model.encoder.has_value();
  dict["decoder_prompt"] = nb::cast(
      model.encoder ? model.encoder->decoder_prompt : std::vector<TokenId>());
  const GenerationDefaults& known = generator->defaults();
  nb::dict defaults = DictOf(known.fields);
  if (known.max_length) defaults["max_length"] = *known.max_length;
  if (known.min_length) defaults["min_length"] = *known.min_length;
  dict["defaults"] = defaults;
  dict["template_names"] = nb::cast(generator->template_names());
  dict["max_open"] = generator->max_open();
  return dict;
}

std::optional<SpeculationParams> SpeculationOf(
    const std::optional<std::string>& json) {
  std::optional<SpeculationParams> speculate;
  if (!json) return speculate;
  const auto ignore = [](int, std::string_view, const JsonText&) {};
  RaiseIfError(ReadSpeculation(
      "speculate", ValueOrRaise(ScanJson(*json, 0, ignore)), &speculate));
  return speculate;
}

void BindEngine(nb::module_& module) {
  nb::class_<Params>(module, "Params", "Params of requests, parsed.")
      .def(
          nb::new_([](const std::string& line) { return Params::Parse(line); }),
          nb::arg("line"));
  nb::class_<ChatPrompt>(module, "ChatPrompt", "A rendered conversation.")
      .def_ro("token_ids", &ChatPrompt::tokens, "Its tokens.");
  nb::class_<Engine>(module, "Engine", "The engine (espalier.LLM is its door).",
                     nb::is_weak_referenceable())
      .def(
          "__init__",
          [](Engine* self, const std::string& directory, std::string device,
             std::string dtype, std::string weights, int num_threads,
             std::optional<int64_t> kv_cache_mib,
             std::optional<int64_t> host_cache_mib,
             std::optional<int> page_size, std::optional<int> max_step_tokens,
             std::optional<int> max_beams,
             std::optional<int64_t> max_candidates,
             std::optional<int64_t> max_score_edits, bool prefix_cache,
             std::string preempted_pages, double prefill_share,
             std::string draft_model,
             const std::optional<std::string>& speculate,
             std::string generation_config, int max_running, int max_waiting,
             int64_t max_waiting_tokens,
             std::vector<std::pair<std::string, std::string>> items,
             double step_timeout) {
            GeneratorOptions options;
            options.device = std::move(device);
            options.dtype = std::move(dtype);
            options.weights = std::move(weights);
            options.num_threads = num_threads;
            options.page_size = page_size;
            options.max_step_tokens = max_step_tokens;
            options.max_beams = max_beams;
            options.max_candidates = max_candidates;
            options.max_score_edits = max_score_edits;
            options.prefix_cache = prefix_cache;
            options.preempted_pages = std::move(preempted_pages);
            options.prefill_share = prefill_share;
            options.draft_model = std::move(draft_model);
            options.speculate = SpeculationOf(speculate);
            options.generation_config = std::move(generation_config);
            options.max_running = max_running;
            options.max_waiting = max_waiting;
            options.max_waiting_tokens = max_waiting_tokens;
            for (auto& [name, path] : items) {
              options.items.push_back({std::move(name), std::move(path)});
            }
            if (std::isfinite(step_timeout)) {
              options.step_timeout = absl::Seconds(step_timeout);
            }
            new (self) Engine(
                directory,
                WithMemory(std::move(options), {kv_cache_mib, host_cache_mib}));
          },
          nb::arg("directory"), nb::kw_only(), nb::arg("device"),
          nb::arg("dtype"), nb::arg("weights"), nb::arg("num_threads"),
          nb::arg("kv_cache_mib").none(), nb::arg("host_cache_mib").none(),
          nb::arg("page_size").none(), nb::arg("max_step_tokens").none(),
          nb::arg("max_beams").none(), nb::arg("max_candidates").none(),
          nb::arg("max_score_edits").none(), nb::arg("prefix_cache"),
          nb::arg("preempted_pages"), nb::arg("prefill_share"),
          nb::arg("draft_model"), nb::arg("speculate").none(),
          nb::arg("generation_config"), nb::arg("max_running"),
          nb::arg("max_waiting"), nb::arg("max_waiting_tokens"),
          nb::arg("items"), nb::arg("step_timeout"))
      .def("generate", &Engine::Generate, nb::arg("prompts"), nb::arg("params"),
           nb::arg("timeout"), nb::arg("on_progress").none())
      .def("score", &Engine::Score, nb::arg("prompts"),
           nb::arg("continuations"), nb::arg("params"), nb::arg("append_eos"),
           nb::arg("timeout"))
      .def("render_chat", &Engine::RenderChat, nb::arg("inputs"))
      .def("encode", Encode, nb::arg("text"), nb::arg("add_special_tokens"),
           nb::arg("parse_special"))
      .def("prompt_tokens", PromptTokensOf, nb::arg("prompt"),
           nb::arg("params"))
      .def("decode", Decode, nb::arg("tokens"), nb::arg("skip_special_tokens"))
      .def("pieces", Pieces, nb::arg("tokens"))
      .def("piece_to_id", PieceToId, nb::arg("piece"))
      .def("tokenizer_facts", TokenizerFacts)
      .def("model_facts", ModelFacts)
      .def("update_weights", UpdateWeights, nb::arg("tensors"),
           nb::arg("directory"), nb::arg("version").none(), nb::arg("running"),
           nb::arg("timeout"))
      .def_prop_ro(
          "weights_version",
          [](const Engine& e) { return e.generator()->weights_version(); })
      .def("stats", StatsOf)
      .def("metrics", MetricsOf)
      .def("close", &Engine::Close, nb::call_guard<WithoutGil>())
      .def_prop_ro("is_closed", &Engine::is_closed);
  nb::class_<Requests>(module, "Requests",
                       "Requests of one thread, which takes their answers.")
      .def(nb::init<>())
      .def("fileno", &Requests::fd)
      .def("submit", &Requests::Submit, nb::arg("engine"), nb::arg("number"),
           nb::arg("prompt"), nb::arg("params"), nb::arg("timeout"))
      .def("stream", &Requests::Stream, nb::arg("engine"), nb::arg("number"),
           nb::arg("prompt"), nb::arg("params"), nb::arg("timeout"))
      .def("cancel", &Requests::Cancel, nb::arg("number"))
      .def("take", &Requests::Take)
      .def("wait", &Requests::Wait, nb::arg("seconds"))
      .def("__len__", &Requests::size);
}

}  // namespace
}  // namespace espalier::python

// The module espalier._espalier: values in and out. The package around it
// (python/espalier/) has the names that users type.
NB_MODULE(_espalier, module) {
  // Daemon threads keep what they hold at the end of the interpreter.
  nanobind::set_leak_warnings(false);
  espalier::python::WatchForks();
  espalier::python::BindAnswers(module);
  espalier::python::BindEngine(module);
  espalier::python::BindSpeech(module);
  module.def("set_exiting", espalier::python::SetExiting,
             "The interpreter ends: threads that wait stay where they are.");
}
