// Generator: generates with a model directory, or with a model of your own. It
// owns the model, the tokenizer, prompt templates, the engine and its threads.
//
//   absl::StatusOr<Generator> generator = Generator::Load("models/en-fr");
//   if (!generator.ok()) ...
//   GenerationRequest request{"Where is the station?"};
//   request.params.num_beams = 4;
//   absl::StatusOr<Generation> output =
//       generator->Generate(request, {.timeout = absl::Seconds(2)});
//   if (output.ok()) Show(output->texts[0]);
//
// Thread safety: any number of threads may call any member at any time, also
// from within a callback, a Stream's function or a stop callback. Requests of
// all threads run together, on these threads:
//
//   the caller's thread     encodes prompts; for Generate and Stream also
//                           decodes results; runs Stream's function
//   the callback thread     runs callbacks of GenerateAsync, one by one
//   the generator's others  everything else; they never wait for a caller
//
// So a slow Stream function delays only its own request, and a slow callback
// only other callbacks. A callback may block (Generate, a future), but not on
// another callback. A Model of your own must not call the generator that runs
// it.
//
// End: Shutdown, or the destructor, on any thread and at any time. Open calls
// on other threads return kCancelled. It waits only for the running step, which
// is cancelled or times out (GeneratorOptions::step_timeout), and for
// callbacks.
//
// Exceptions: an exception of a Stream's function ends its request and is
// passed on; std::bad_alloc if there is no memory for a result. Exceptions of
// callbacks are dropped; an empty callback is not called.
//
// Coroutines: engine() is the same engine, with Asio's interface
// (espalier/engine.h).
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "espalier/generator_options.h"
#include "espalier/generator_stats.h"
#include "request/generation_defaults.h"
#include "request/request.h"
#include "request/stream_event.h"
#include "request/text_or_tokens.h"

namespace espalier {

class AsyncStream;  // espalier/async_stream.h
class ChatPrompts;  // espalier/chat.h
class Engine;       // espalier/engine.h
class GeneratorCore;
class ItemCatalogues;   // espalier/items.h
class Model;            // espalier/model.h
class Tokenizer;        // espalier/tokenizer.h
struct PromptTemplate;  // text/prompt_template.h
struct UpdateOptions;   // espalier/update_weights.h
struct WeightUpdate;    // model/weight_update.h

// A text, or tokens, to continue. Generated texts continue it, including the
// space between them, unless it ends like a prompt template with tokens after
// the text: then they are answers (request/text_begin.h).
class Prompt {
 public:
  // Text, through the model's default prompt template. Without templates (no
  // prompt_template.json, Create): BOS and the text.
  Prompt(std::string text)  // NOLINT: as a string is a prompt
      : Prompt(Kind::kText, std::move(text), {}) {}
  Prompt(const char* text) : Prompt(std::string(text)) {}  // NOLINT
  // Tokens, exactly as given: no BOS is added.
  Prompt(std::vector<TokenId> tokens)  // NOLINT
      : tokens_(std::move(tokens)) {}
  // The tokens of a conversation (ChatPrompts::Make): texts do not continue
  // them, but are answers.
  static Prompt OfChat(std::vector<TokenId> tokens) {
    Prompt prompt(std::move(tokens));
    prompt.kind_ = Kind::kChat;
    return prompt;
  }

  // Text, through another template of the model, by its name.
  static Prompt Templated(std::string text, std::string template_name) {
    return Prompt(Kind::kText, std::move(text), std::move(template_name));
  }
  // The tokens of the text alone, no template and no BOS.
  static Prompt Raw(std::string text) {
    return Prompt(Kind::kRaw, std::move(text), {});
  }
  // Parses names of special tokens in the text as those tokens: for text that a
  // program rendered, not for a user's (PromptTemplate::Apply).
  Prompt WithSpecialParsed() && {
    parse_special_ = true;
    return std::move(*this);
  }

 private:
  friend class GeneratorCore;
  enum class Kind { kTokens, kChat, kText, kRaw };
  Prompt(Kind kind, std::string text, std::string template_name)
      : kind_(kind),
        text_(std::move(text)),
        template_name_(std::move(template_name)) {}

  Kind kind_ = Kind::kTokens;
  bool parse_special_ = false;
  std::string text_;
  std::string template_name_;  // empty: the default
  std::vector<TokenId> tokens_;
};

struct GenerationRequest {
  Prompt prompt;
  GenerationParams params = {};
  // Params that equal those of GenerationParams() take the model's defaults
  // (Generator::defaults); false: params are used as they are.
  bool takes_defaults = true;
  // Names of the params that take no default although they may equal those of
  // GenerationParams(). Unset: those that differ from them.
  std::optional<std::vector<std::string_view>> given = {};
};

// Scores given continuations instead of generating text.
//
// A text is tokenized as a part of one text with its prompt: it gets the tokens
// of both together after the prompt's own, so that a space in front of it is
// part of its first word. If the tokens of both together do not begin with the
// prompt's, the continuation is tokenized as text within a word: with the
// prompt's tokens it spells both texts, without an additional space. Without an
// encoder, a decoder_prompt belongs to the prompt's text. After a prompt of
// tokens, and after a template that puts something behind its text, a
// continuation is tokenized by itself. With an encoder it gets the tokens that
// the model would write, after decoder_prompt if that is text.
//
// A token that the model's generation_config.json forces to come first
// (forced_bos_token_id) precedes all continuations, as in generation;
// continuations of tokens may begin with it, at a log-probability of 0. No
// other default affects scores.
struct ScoreRequest {
  Prompt prompt;
  std::vector<TextOrTokens> continuations = {};  // at least one
  // True: the model's first EOS ends each continuation, and a score is that of
  // an output that ends there.
  bool append_eos = false;
  // prompt_logprobs, logprobs_start, the decoder prompt, deadline_ms and params
  // of scheduling may be set.
  GenerationParams params = {};
};

// Limit on the bytes that are tokenized for the continuations of a request;
// each counts with its prompt.
inline constexpr int64_t kMaxScoredBytes = int64_t{16} << 20;

struct CallOptions {
  // Time from the call until it ends with kDeadlineExceeded.
  absl::Duration timeout = absl::InfiniteDuration();
  // Ends the call with kCancelled.
  std::stop_token stop = {};
  // Errors keep what FieldErrorOf reads (base/field_error.h): the field and its
  // value, for interfaces with names of their own.
  bool keeps_error_parts = false;
};

struct Generation : Result {
  // Text per hypothesis, cut at stops. Empty without a tokenizer.
  std::vector<std::string> texts;
};

// A request of Generator::engine().
struct EngineRequest {
  Request request;
  // Converts the engine's result. Any thread may call it; it does not throw.
  std::function<absl::StatusOr<Generation>(absl::StatusOr<Result>)> finish;
};

class Generator {
 public:
  using Callback = std::function<void(absl::StatusOr<Generation>)>;
  // False ends the request.
  using EventFunction = std::function<bool(const StreamEvent&)>;

  // Loads a model directory (docs/cpp_api.md).
  // Errors: kInvalidArgument naming the option, file or field that is wrong;
  // kNotFound; kFailedPrecondition saying what the machine or this build lacks;
  // kResourceExhausted if memory or threads do.
  static absl::StatusOr<Generator> Load(const std::string& directory,
                                        const GeneratorOptions& options = {});
  // Runs a model of your own; the generator treats it as a CPU model. Without a
  // tokenizer prompts are tokens, and there are no texts. Options that the
  // model determines (device, dtype, key/value memory) must be unset in
  // `options`.
  static absl::StatusOr<Generator> Create(
      std::shared_ptr<Model> model,
      std::shared_ptr<const Tokenizer> tokenizer = nullptr,
      const GeneratorOptions& options = {});
  // As Shutdown. If a callback destroys the generator, waiting callbacks still
  // run.
  ~Generator();
  // A generator that was moved from may only be destroyed or assigned to.
  Generator(Generator&&) = default;
  Generator& operator=(Generator&&);

  // Errors of all of the following: kInvalidArgument for an invalid request,
  // naming field and value, before anything is allocated; kResourceExhausted,
  // with the figures, for a request that can never fit, if memory runs out, or
  // at once if max_running + max_waiting requests are open
  // (generator_options.h); kUnavailable if a step exceeds step_timeout, while
  // such a step still runs, or after Drain; kDeadlineExceeded and kCancelled by
  // the call's options, or after the generator's end; kFailedPrecondition if
  // every token was masked, or for text without a tokenizer; and the model's
  // own error if a step failed. A request that has ended holds no resources.

  // Blocks until the request has ended.
  absl::StatusOr<Generation> Generate(GenerationRequest request,
                                      const CallOptions& call = {});

  // As Generate, of tokens or features, without the defaults of
  // generation_config.json. Waits while max_running + max_waiting requests are
  // open.
  absl::StatusOr<Generation> GenerateTokens(Request request,
                                            const CallOptions& call = {});

  // Scores each continuation (Generation::continuations, in order). Common
  // prefixes are computed once (Request::continuations). There are no
  // hypotheses.
  absl::StatusOr<Generation> Score(ScoreRequest request,
                                   const CallOptions& call = {});
  // As Score, and calls `callback` as GenerateAsync does.
  void ScoreAsync(ScoreRequest request, Callback callback,
                  const CallOptions& call = {});

  // Returns at once. Destroying the future does not end the request; use
  // call.stop.
  std::future<absl::StatusOr<Generation>> GenerateAsync(
      GenerationRequest request, const CallOptions& call = {});
  // Calls `callback` once, on the callback thread, also if the request fails at
  // once.
  void GenerateAsync(GenerationRequest request, Callback callback,
                     const CallOptions& call = {});

  // Blocks until all requests have ended; returns one result for each, in
  // order. If max_open() requests are open, it waits for room instead of
  // failing. It uses all the room, so other calls are refused meanwhile. It
  // does not wait for max_waiting_tokens. `on_ended`, which may be empty, is
  // called as each request ends, on any thread and on several; it must not
  // throw or call the generator.
  std::vector<absl::StatusOr<Generation>> GenerateAll(
      std::vector<GenerationRequest> requests, const CallOptions& call = {},
      const std::function<void()>& on_ended = nullptr);

  // Calls `on_event` while the request runs, and returns the result of
  // Generate; the event of the Result is left out. kCancelled if `on_event`
  // returned false. Unread events are merged (docs/streams.md).
  absl::StatusOr<Generation> Stream(GenerationRequest request,
                                    const EventFunction& on_event,
                                    const CallOptions& call = {},
                                    const StreamOptions& options = {});

  // As Stream, for a reader that must not block: returns at once, and calls
  // `on_ready` where the stream has something to take
  // (espalier/async_stream.h).
  absl::StatusOr<AsyncStream> StreamAsync(GenerationRequest request,
                                          std::function<void()> on_ready,
                                          const CallOptions& call = {},
                                          const StreamOptions& options = {});

  // Gives the model other weights (espalier/update_weights.h), and returns
  // their version. Blocks while they are read, and until the engine pauses;
  // requests run meanwhile. Must not be called from a callback or a Stream's
  // function, whose request may be one that it waits for.
  // Errors: kInvalidArgument naming the tensor, the file or the field that is
  // wrong; kNotFound; kFailedPrecondition while another update runs, for a
  // model of your own, and on a GPU while another generator uses the weights;
  // kResourceExhausted if memory runs out; kDeadlineExceeded, kCancelled and
  // kUnavailable as Generate. After an error the weights are as before, unless
  // a GPU fails while it takes them: requests are then refused with
  // kUnavailable until an update succeeds.
  absl::StatusOr<int64_t> UpdateWeights(const WeightUpdate& update,
                                        const UpdateOptions& options,
                                        const CallOptions& call = {});
  // The version of the last update; 0: there was none.
  int64_t weights_version() const;

  // Refuses new requests with kUnavailable and blocks until the open ones have
  // ended and their callbacks have run; from within a callback it does not wait
  // for other callbacks. Must not be called from a Stream's function, whose
  // request is open. Requests of engine() are finished, too, and refused once
  // no other is open. Requests that are open after `timeout` continue; Shutdown
  // ends them, and a blocked Drain.
  // Errors: kDeadlineExceeded, with the number of open requests.
  absl::Status Drain(absl::Duration timeout = absl::InfiniteDuration());

  // Refuses new requests, ends open ones with kCancelled and the first `why`,
  // and returns when no step runs and all callbacks have returned. From within
  // a callback it does not wait for callbacks.
  void Shutdown(std::string_view why = "the generator is shut down");

  // Does not wait for a step. All zero if there is no memory for it.
  GeneratorStats Stats();

  // Defaults for requests that leave params open, and the ignored fields of the
  // model's generation_config.json (UnsupportedWarning).
  const GenerationDefaults& defaults() const;

  // The limits of the model.
  const ModelDescription& description() const;
  // Requests that may be open at once: max_running + max_waiting.
  int64_t max_open() const;
  // Limit on the prompt tokens of waiting requests; 0: none.
  int64_t max_waiting_tokens() const;
  std::shared_ptr<const Tokenizer> tokenizer() const;  // or null
  // The names that Prompt::Templated takes, the default first; empty without a
  // tokenizer.
  std::vector<std::string> template_names() const;

  // Encodes a prompt.
  // Errors: kInvalidArgument for a text that is blank, not UTF-8 or has more
  // than `max_tokens` tokens (unset: the model's context), and for an unknown
  // template; kFailedPrecondition for text without a tokenizer.
  absl::StatusOr<std::vector<TokenId>> MakePrompt(
      Prompt prompt, std::optional<int> max_tokens = {}) const;
  // Returns the prompt template of this name, or the default; owned by this
  // generator.
  // Errors: kNotFound, listing the templates.
  absl::StatusOr<const PromptTemplate*> prompt_template(
      const std::string& name = {}) const;
  // True if this template, or the default, translates single sentences
  // (espalier/split_text.h). False if there is no such template.
  bool translates_sentences(const std::string& name = {}) const;
  // Returns the chat template of the model, loaded at the first call and owned
  // by this generator.
  // Errors: kFailedPrecondition if the model has no chat template, or no
  // tokenizer; kInvalidArgument if it reads audio; as ChatTemplate::Load.
  absl::StatusOr<const ChatPrompts*> chat_prompts() const;

  // The catalogues that requests name, owned by this generator. What is put
  // there is for requests that are made later.
  ItemCatalogues& items();

  // For GeneratorOptions::loaded_weights. They live as long as the last holder;
  // the key/value memory lives as long as its generator. Null for a model of
  // your own, and after UpdateWeights.
  std::shared_ptr<const ModelWeights> weights() const;

  // For coroutines: the engine, owned by this generator, and the conversion of
  // requests to the engine's. They count as open requests, too; GenerateAll
  // does not wait for their room.
  Engine& engine();
  absl::StatusOr<EngineRequest> Prepare(GenerationRequest request) const;
  // As Prepare, of a prompt of tokens and params that are used as they are.
  absl::StatusOr<EngineRequest> PrepareTokens(Request request) const;
  absl::StatusOr<EngineRequest> PrepareScore(ScoreRequest request) const;

 private:
  explicit Generator(std::shared_ptr<GeneratorCore> core);

  std::shared_ptr<GeneratorCore> core_;  // null after a move
};

}  // namespace espalier
