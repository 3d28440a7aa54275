// Runtime: a loaded model directory: the parts of a Generator
// (espalier/backend.h, espalier/model_text.h) without its threads. The engine
// runs on the runtime's own context, whose single thread also reads input,
// prints and handles signals: steps wait for a slow reader of the output, and
// after Ctrl-C no step runs after the last output.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "espalier/backend.h"
#include "espalier/chat_prompts.h"
#include "espalier/generator.h"
#include "espalier/model_text.h"
#include "examples/cli/options/runtime_options.h"
#include "examples/cli/output/stats_file.h"
#include "examples/cli/runtime/text_answers.h"
#include "examples/cli/runtime/trace_recorder.h"
#include "request/generation_defaults.h"
#include "request/json/request_json.h"
#include "request/resolve_defaults.h"
#include "text/prompt_template.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::cli {

// Names options of the program in an error of the engine, which does not have
// them.
absl::Status InFlags(const absl::Status& error);

// As the library has them.
// Errors: naming the option.
absl::StatusOr<GeneratorOptions> ReadGeneratorOptions(
    const RuntimeOptions& options);

// Finds out before its weights are loaded that a model reads audio, not texts
// or tokens; loading it finds what is wrong with its files.
// Errors: kInvalidArgument naming the directory and what transcribes.
absl::Status CheckReadsTokens(const std::string& directory);

// An error of loading a model, in the words of the program.
absl::Status LoadError(const RuntimeOptions& options,
                       const absl::Status& error);

// Adds the source to an error on one of the model's defaults in `taken`, and a
// remedy, in the words of the program.
absl::Status NameModelDefaults(const absl::Status& error,
                               const NamedValues& taken,
                               const GenerationDefaults& defaults);

class Runtime {
 public:
  // Errors: naming the file, option or field that is wrong.
  static absl::StatusOr<std::unique_ptr<Runtime>> Load(
      const RuntimeOptions& options);

  // Checks that some prompt can run with `params`, so that errors of all
  // requests are found before the first. Returns them with the model's
  // defaults.
  // Errors: as Engine::Generate.
  // `given` lists the params that are not left open (RequestBody::given).
  absl::StatusOr<ResolvedParams> CheckParams(
      GenerationParams params, std::span<const std::string_view> given) const;
  // Returns SpeculationNote of a request with these params.
  std::string NoteOnSpeculation(const GenerationParams& params,
                                std::span<const std::string_view> given) const;

  // Runs one request; text goes through the prompt template, sentence by
  // sentence if it is split (espalier/split_text.h). May be called on any
  // executor, which also reads the request and makes the texts of its result.
  boost::asio::awaitable<absl::StatusOr<Generation>> Run(RequestBody body);
  // Streams the answer to one request while it is generated.
  boost::asio::awaitable<absl::StatusOr<AnswerStream>> Stream(RequestBody body);

  // Returns the engine's request for an unsplit text.
  // Errors: on its prompt.
  absl::StatusOr<EngineRequest> Open(RequestBody body) const;
  // Ends all requests, which are answered with kCancelled and `why`, and
  // refuses others. Returns at once; the context runs out of work when the step
  // that runs has ended.
  void EndRequests(std::string_view why);
  // Opens the trace's file, if there is one to be written; events that come
  // before are lost.
  // Errors: kFailedPrecondition naming the file and the system's reason.
  absl::Status OpenTrace();
  // Writes the rest of the trace, if there is one, and ends it.
  // Errors: kInternal naming the file, if it could not be written.
  absl::Status CloseTrace();

  // Opens the file of statistics, if there is one to be written, and keeps it
  // up to date while the context runs, until EndStats: then the context can run
  // out of work.
  // Errors: those of StatsFile::Open.
  absl::Status OpenStats();
  void EndStats();
  // Writes the last of them. The context has run out of work.
  // Errors: kInternal naming the file, if they could not be written, now or
  // before.
  absl::Status CloseStats();
  // REQUIRES: the context has run out of work.
  EngineStats Stats();

  // Prints, once, that a text was taken as one for `field`, unless it is empty.
  void NoteWholeText(std::string_view field) const;

  const Tokenizer* tokenizer() const { return tokenizer_.get(); }  // or null
  const GenerationDefaults& defaults() const { return defaults_; }
  boost::asio::io_context& context() { return context_; }
  Engine& engine() { return *engine_; }
  const Backend& backend() const { return *backend_; }
  // As they came out, without what was left open.
  const BackendOptions& backend_options() const { return backend_options_; }

 private:
  Runtime() = default;

  absl::Status LoadModel(const RuntimeOptions& options,
                         const BackendOptions& resolved);
  // `*taken` are the model's defaults that it has.
  absl::StatusOr<Request> MakeRequest(RequestBody body,
                                      NamedValues* taken) const;
  // `defaults` are those that the request has taken.
  absl::StatusOr<Generation> MakeAnswer(const TextForm& form,
                                        const NamedValues& defaults,
                                        absl::StatusOr<Result> result) const;
  absl::StatusOr<std::vector<TokenId>> MakePrompt(
      const RequestBody& body) const;
  // Errors: kInvalidArgument naming the template.
  absl::StatusOr<const PromptTemplate*> FindTemplate(
      const RequestBody& body) const;
  // Forces the language that the prompt's template translates into.
  // Errors: as FindTemplate.
  absl::Status ForceLanguage(RequestBody* body) const;
  absl::Status CheckSplit() const;
  // Errors: as IsSplit.
  absl::StatusOr<TextParts> Split(RequestBody body) const;
  // Says once that the name of a special token in a text stayed text.
  void NoteUnparsed(const std::string& text,
                    const PromptTemplate& prompt_template,
                    std::span<const TokenId> tokens) const;
  absl::StatusOr<std::vector<TokenId>> MakeChatPrompt(
      const ChatInputs& inputs) const;
  // Returns the conversation that --chat makes of a text: one message.
  absl::StatusOr<json::array> MessagesOf(const std::string& text) const;
  const absl::StatusOr<std::unique_ptr<const ChatPrompts>>& chat(
      std::string_view wanted_by) const;
  boost::asio::awaitable<void> KeepStats();

  boost::asio::io_context context_{1};
  std::string directory_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null without text
  std::optional<PromptTemplates> templates_;    // unset without a tokenizer
  bool family_translates_sentences_ = false;    // ModelText has it
  std::optional<PromptTemplate> template_;      // the default; unset as well
  bool parse_special_ = false;                  // --parse-special
  std::optional<bool> split_sentences_;         // --split-sentences
  bool is_chat_ = false;                        // --chat
  std::string system_;                          // --system
  // With --chat from the beginning, else when the first request has messages.
  mutable std::once_flag chat_flag_;
  mutable absl::StatusOr<std::unique_ptr<const ChatPrompts>> chat_;
  mutable std::once_flag unparsed_flag_;    // note printed
  mutable std::once_flag whole_text_flag_;  // likewise
  std::unique_ptr<Backend> backend_;
  GenerationDefaults defaults_;
  std::shared_ptr<TraceRecorder> trace_;  // null without a trace
  std::optional<Engine> engine_;
  std::string stats_path_;          // empty: none
  std::optional<StatsFile> stats_;  // once it is open
  absl::Status stats_status_;       // first failed write
  boost::asio::steady_timer stats_timer_{context_};
  bool stats_ended_ = false;
  BackendOptions backend_options_;
};

}  // namespace espalier::cli
