// GeneratorCore: the threads of a generator (generator.h), and the path of
// calls from any thread to the engine and back.
//
//   engine thread    the engine's strand: plans, results
//   calls thread     a coroutine for each request that is awaited; timeouts
//   callback thread  callbacks of callers, one after the other
//
// A user's call is a Call here. Each use of the engine that it awaits is an
// operation: it runs on the calls thread and ends with one result, or early by
// the call's timeout or stop token. A core refuses new operations at its end
// and waits for all others, so that no result is lost with its threads.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "batcher/engine.h"
#include "espalier/backend.h"
#include "espalier/callback_thread.h"
#include "espalier/chat_prompts.h"
#include "espalier/continuation_tokens.h"
#include "espalier/generator.h"
#include "espalier/model_text.h"
#include "espalier/update_weights.h"
#include "exec_request/step_executor.h"
#include "text/prompt_template.h"

namespace espalier {

// Components of a core.
struct GeneratorParts {
  std::shared_ptr<StepExecutor> steps;
  ModelText text;
  EngineOptions engine;
  GenerationDefaults defaults;
  int max_waiting = 0;
  // Advice appended to errors of too few pages: ", or ...".
  std::string advice = {};
  std::string directory = {};  // the model's; empty: it has none
  std::shared_ptr<const ModelWeights> weights = nullptr;  // null: not loaded
  std::shared_ptr<WeightUpdater> updater = nullptr;       // null: it has none
};

class GeneratorCore : public std::enable_shared_from_this<GeneratorCore> {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  // A place among the max_running + max_waiting open requests.
  class Place {
   public:
    explicit Place(std::shared_ptr<GeneratorCore> core)
        : core_(std::move(core)) {}
    Place(Place&&) = default;
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (core_ != nullptr) core_->GivePlaceBack(awaits_callback_);
    }

    // From now on only the callback thread releases the place.
    void AwaitCallback() {
      awaits_callback_ = true;
      core_->CountAwaitingCallback();
    }

   private:
    std::shared_ptr<GeneratorCore> core_;
    bool awaits_callback_ = false;
  };

  static absl::StatusOr<std::shared_ptr<GeneratorCore>> Create(
      GeneratorParts parts);
  // Use Create.
  explicit GeneratorCore(GeneratorParts parts);
  ~GeneratorCore();

  // Errors: kResourceExhausted naming max_waiting; kCancelled after Shutdown.
  absl::StatusOr<Place> TakePlace();
  // As TakePlace, but waits until a place is free.
  // Errors: kDeadlineExceeded, kCancelled; kResourceExhausted on the callback
  // thread, where all places wait for this very thread.
  absl::StatusOr<Place> WaitForPlace(const CallOptions& options,
                                     const Deadline& deadline);

  // Errors: as Generator::MakePrompt.
  absl::StatusOr<std::vector<TokenId>> MakePrompt(Prompt prompt,
                                                  int max_tokens) const;
  // Errors: as MakePrompt and CompleteRequest.
  absl::StatusOr<EngineRequest> Prepare(GenerationRequest request) const;
  // As Prepare, of tokens that are a prompt.
  absl::StatusOr<EngineRequest> Prepare(
      Request request, bool takes_defaults,
      std::optional<std::span<const std::string_view>> given = {}) const;
  // Errors: as MakePrompt, ResolveDecoderPrompt and ContinuationTokens;
  // kInvalidArgument if there are no continuations, or no EOS to append.
  absl::StatusOr<EngineRequest> Prepare(ScoreRequest request) const;

  // Loads the chat template at the first call.
  // Errors: as ChatPrompts::Load and CheckReadsTokens.
  absl::StatusOr<const ChatPrompts*> chat_prompts();

  int64_t max_open() const { return max_open_; }
  int64_t max_waiting_tokens() const {
    return parts_.engine.max_waiting_tokens;
  }

  // Sets the counters that the core keeps.
  void CountRequests(GeneratorStats* stats);

  // Refuses requests from now on, and waits until none is open.
  // Errors: kDeadlineExceeded.
  absl::Status Drain(absl::Duration timeout);
  // Refuses requests from now on, ends those that are open, and returns when
  // all have been answered and no step runs.
  void Shutdown(std::string_view why);
  // Shutdown, and then the end of all threads but the callback thread. Called
  // once.
  void End();

  Engine& engine() { return *engine_; }
  CallbackThread& callbacks() { return *callbacks_; }
  const ModelDescription& description() const {
    return parts_.steps->description();
  }
  const std::shared_ptr<const Tokenizer>& tokenizer() const {
    return parts_.text.tokenizer;
  }
  std::vector<std::string> template_names() const {
    return parts_.text.templates ? parts_.text.templates->names()
                                 : std::vector<std::string>();
  }
  const GenerationDefaults& defaults() const { return parts_.defaults; }
  const std::string& advice() const { return parts_.advice; }
  std::shared_ptr<const ModelWeights> weights() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return weights_;
  }
  boost::asio::io_context& calls_context() { return calls_context_; }

  // Enclose every operation on the calls thread. BeginOperation returns nullopt
  // after End, when nothing may be posted any more. It throws std::bad_alloc.
  std::optional<int64_t> BeginOperation();
  void EndOperation(int64_t operation);

  // Errors: as Generator::UpdateWeights.
  absl::StatusOr<int64_t> UpdateWeights(const WeightUpdate& update,
                                        const UpdateOptions& options,
                                        const CallOptions& call);
  int64_t weights_version() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return weights_version_;
  }

  // The default template's name may be empty.
  // Errors: kNotFound, listing what there is.
  absl::StatusOr<const PromptTemplate*> FindTemplate(
      const std::string& name) const;
  // ModelText::TranslatesSentences of the template.
  bool TranslatesSentences(const std::string& template_name) const;

 private:
  // Throws where there is no thread, descriptor or memory to be had.
  absl::Status Start();
  // Errors: kInvalidArgument if the model reads audio, naming its directory and
  // what transcribes.
  absl::Status CheckReadsTokens() const;
  // Returns the token that the prompt's template forces to come first.
  // Errors: as FindTemplate.
  absl::StatusOr<std::optional<TokenId>> FirstOutputOf(
      const Prompt& prompt) const;
  absl::StatusOr<ContinuationContext> ContextOf(
      const ScoreRequest& request) const;
  // Moves a token that the model's defaults force to come first
  // (ForcedBosByDefault) to the decoder prompt. Returns the indices of the
  // continuations that began with it and have lost it.
  absl::StatusOr<std::vector<size_t>> TakeForcedBos(TokenId forced,
                                                    Request* request) const;
  // `defaults`: those that it has taken.
  EngineRequest WithFinish(Request request, NamedValues defaults) const;
  void GivePlaceBack(bool awaits_callback);
  void CountAwaitingCallback();
  void Close(std::string_view why);
  // Returns why requests are refused; OK while they are accepted.
  absl::Status WhyClosed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool has_room() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return num_open_ < max_open_;
  }
  void StopThreads();

  // Null after an update.
  std::shared_ptr<const ModelWeights> weights_ ABSL_GUARDED_BY(mutex_);

  // Constant after Start.
  const GeneratorParts parts_;  // without `weights`
  const int64_t max_open_;
  PromptTemplate default_template_;
  std::unique_ptr<CallbackThread> callbacks_;
  std::once_flag chat_flag_;
  absl::StatusOr<std::unique_ptr<const ChatPrompts>> chat_;

  std::mutex updating_;  // held by UpdateWeights; before mutex_
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t weights_version_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_open_ ABSL_GUARDED_BY(mutex_) = 0;  // places taken
  // Part of num_open_.
  int64_t num_awaiting_callback_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_refused_ ABSL_GUARDED_BY(mutex_) = 0;  // so far
  // Numbers of the operations that have not ended.
  std::set<int64_t> operations_ ABSL_GUARDED_BY(mutex_);
  int64_t num_operations_ ABSL_GUARDED_BY(mutex_) = 0;  // begun so far
  bool has_ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> closed_by_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> drained_by_ ABSL_GUARDED_BY(mutex_);

  boost::asio::io_context engine_context_{1};
  boost::asio::io_context calls_context_{1};
  std::optional<Engine> engine_;  // reset by End
  std::thread engine_thread_;
  std::thread calls_thread_;
};

}  // namespace espalier
