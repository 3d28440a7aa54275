// Generator: a model directory, or a model of your own, ready to generate. It
// owns all it takes: model, tokenizer, prompt templates, engine, threads.
//
//   absl::StatusOr<Generator> generator = Generator::Load("models/en-fr");
//   if (!generator.ok()) ...
//   GenerationRequest request{"Where is the station?"};
//   request.params.num_beams = 4;
//   absl::StatusOr<Generation> output =
//       generator->Generate(request, {.timeout = absl::Seconds(2)});
//   if (output.ok()) Show(output->texts[0]);
//
// Thread safety: any number of threads call any member at any time, also from
// within a callback, a Stream's function or a stop callback. Requests of all
// threads run together. What runs where:
//
//   the caller's thread     prompts become tokens; of Generate and Stream also
//                           results text; Stream's function
//   the callback thread     callbacks of GenerateAsync, one after the other
//   others of the generator everything else; nothing there waits for a caller
//
// So a slow Stream function delays its own request alone, and a slow callback
// other callbacks. A callback may block (Generate, a future), but not on
// another callback. A Model of your own must not call the generator that runs
// it.
//
// End: Shutdown, or the destructor, on any thread, whatever runs. Calls that
// are open on other threads are answered with kCancelled and return. Nothing is
// waited for but a step that runs, which gives up soon or is late
// (GeneratorOptions::step_timeout), and callbacks.
//
// Exceptions: what a Stream's function throws, which ends its request, and
// std::bad_alloc where there is no memory for an answer. What a callback throws
// is dropped; an empty one is not called.
//
// Coroutines: engine() is the same engine for Asio's (espalier/engine.h).
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "espalier/generator_options.h"
#include "espalier/generator_stats.h"
#include "request/generation_defaults.h"
#include "request/request.h"
#include "request/stream_event.h"

namespace espalier {

class ChatPrompts;  // espalier/chat.h
class Engine;       // espalier/engine.h
class GeneratorCore;
class Model;            // espalier/model.h
class Tokenizer;        // espalier/tokenizer.h
struct PromptTemplate;  // text/prompt_template.h

// A text, or tokens, to continue. Generated texts continue it, with the
// space that divides them from it, unless it ends as a prompt template of the
// model does after the text: then they are answers (request/text_begin.h).
class Prompt {
 public:
  // Text, through the model's default prompt template. Where there are none
  // (no prompt_template.json, Create), BOS and the text.
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
  // A text in which names of special tokens are those tokens: one that a
  // program rendered, not a user's (PromptTemplate::Apply).
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
};

// A continuation to score: text, or tokens, exactly as given.
using TextOrTokens = std::variant<std::string, std::vector<TokenId>>;

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

// Bytes of text that continuations of one request may take to tokenize: of
// each, those of its prompt included.
inline constexpr int64_t kMaxScoredBytes = int64_t{16} << 20;

struct CallOptions {
  // From the call on; then it ends with kDeadlineExceeded.
  absl::Duration timeout = absl::InfiniteDuration();
  // Ends it with kCancelled.
  std::stop_token stop = {};
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
  // Runs a model of your own, on the CPU as far as this is concerned. Without a
  // tokenizer prompts are tokens, and there are no texts. What is the model's
  // (device, dtype, key/value memory) must be unset in `options`.
  static absl::StatusOr<Generator> Create(
      std::shared_ptr<Model> model,
      std::shared_ptr<const Tokenizer> tokenizer = nullptr,
      const GeneratorOptions& options = {});
  // As Shutdown. From within a callback those that wait are still called.
  ~Generator();
  // One that was moved from is only destroyed, or assigned to.
  Generator(Generator&&) = default;
  Generator& operator=(Generator&&);

  // All of the following answer with: kInvalidArgument for a bad request,
  // naming field and value, before anything is held; kResourceExhausted for one
  // that can never fit, with the figures, if memory runs out, or at once if
  // max_running + max_waiting requests are open (generator_options.h);
  // kUnavailable if a step is not answered within step_timeout, or was not and
  // still runs, or after Drain; kDeadlineExceeded, kCancelled by the call's
  // options, or after the generator's end; kFailedPrecondition if no token was
  // possible, or for text without a tokenizer; and what the model returned, if
  // a step failed. A request that has ended holds nothing.

  // Blocks until the request has ended.
  absl::StatusOr<Generation> Generate(GenerationRequest request,
                                      const CallOptions& call = {});

  // Scores each continuation (Generation::continuations, in order). Shared
  // beginnings are computed once, and their number bounds no more than time
  // (Request::continuations). There are no hypotheses.
  absl::StatusOr<Generation> Score(ScoreRequest request,
                                   const CallOptions& call = {});

  // Returns at once. A future that is let go of ends nothing: use call.stop.
  std::future<absl::StatusOr<Generation>> GenerateAsync(
      GenerationRequest request, const CallOptions& call = {});
  // `callback` is called once, on the callback thread, also if there is nothing
  // to run.
  void GenerateAsync(GenerationRequest request, Callback callback,
                     const CallOptions& call = {});

  // Blocks until all have ended; one answer for each, in order. Where so many
  // requests are open as may be, it waits for room instead of being refused;
  // and takes all the room there is, so that meanwhile other calls are refused.
  // It does not wait for max_waiting_tokens.
  std::vector<absl::StatusOr<Generation>> GenerateAll(
      std::vector<GenerationRequest> requests, const CallOptions& call = {});

  // Calls `on_event` while the request runs, and returns what Generate would;
  // the event of the Result is left out. kCancelled if `on_event` returned
  // false. Events that wait are merged (docs/streams.md).
  absl::StatusOr<Generation> Stream(GenerationRequest request,
                                    const EventFunction& on_event,
                                    const CallOptions& call = {},
                                    const StreamOptions& options = {});

  // Refuses new requests with kUnavailable and blocks until the open ones have
  // ended and their callbacks have run; from within a callback it does not wait
  // for other callbacks. Must not be called from a Stream's function, whose
  // request is open. Requests of engine() are finished, too, and refused once
  // no other is open. Requests that are open after `timeout` continue; Shutdown
  // ends them, and a blocked Drain.
  // Errors: kDeadlineExceeded, with the number of open requests.
  absl::Status Drain(absl::Duration timeout = absl::InfiniteDuration());

  // Refuses requests from now on, ends those that are open with kCancelled and
  // the first `why`, and returns when no step runs and all callbacks have
  // returned: but from within a callback it does not wait for these.
  void Shutdown(std::string_view why = "the generator is shut down");

  // Waits for no step. All zero where there is no memory for it.
  GeneratorStats Stats();

  // Defaults for requests that leave params open, and the ignored fields of the
  // model's generation_config.json (UnsupportedWarning).
  const GenerationDefaults& defaults() const;

  // The limits of the model.
  const ModelDescription& description() const;
  // Requests that may be open at once: max_running + max_waiting.
  int64_t max_open() const;
  // Prompt tokens that may wait together; 0: any number.
  int64_t max_waiting_tokens() const;
  std::shared_ptr<const Tokenizer> tokenizer() const;  // or null
  // The names that Prompt::Templated takes, the default first; empty without a
  // tokenizer.
  std::vector<std::string> template_names() const;

  // The tokens that a prompt is.
  // Errors: kInvalidArgument for a text that is blank, not UTF-8 or of more
  // than `max_tokens` (unset: than the model's context has), and for a template
  // that there is none of; kFailedPrecondition for text without a tokenizer.
  absl::StatusOr<std::vector<TokenId>> MakePrompt(
      Prompt prompt, std::optional<int> max_tokens = {}) const;
  // The prompt template of this name, or the default; as long as this lives.
  // Errors: kNotFound, listing what there is.
  absl::StatusOr<const PromptTemplate*> prompt_template(
      const std::string& name = {}) const;
  // True if this template, or the default, translates single sentences
  // (espalier/split_text.h). False where there is no such template.
  bool translates_sentences(const std::string& name = {}) const;
  // Returns the chat template of the model, loaded at the first call and owned
  // by this generator.
  // Errors: kFailedPrecondition if the model has no chat template, or no
  // tokenizer; as ChatTemplate::Load.
  absl::StatusOr<const ChatPrompts*> chat_prompts() const;

  // For coroutines: the engine, and a request of it made of one of ours.
  // Requests there count as open ones, too; GenerateAll does not wait for their
  // room. The engine lives as long as this.
  Engine& engine();
  absl::StatusOr<EngineRequest> Prepare(GenerationRequest request) const;
  absl::StatusOr<EngineRequest> PrepareScore(ScoreRequest request) const;

 private:
  explicit Generator(std::shared_ptr<GeneratorCore> core);

  std::shared_ptr<GeneratorCore> core_;  // null after a move
};

}  // namespace espalier
