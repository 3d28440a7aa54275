#include "examples/cli/verify_speculation_command.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "beam/strategy/selection_options.h"
#include "espalier/backend.h"
#include "examples/cli/beginning_tables.h"
#include "examples/cli/options/options.h"
#include "examples/cli/output/cut_short.h"
#include "examples/cli/output/exit_code.h"
#include "examples/cli/output/output.h"
#include "examples/cli/output/progress.h"
#include "examples/cli/runtime.h"
#include "examples/cli/speculation_report.h"
#include "examples/cli/speculation_requests.h"
#include "examples/cli/wakeup.h"
#include "request/json/request_json.h"

namespace espalier::cli {
namespace {

namespace asio = boost::asio;

using Answers = std::vector<absl::StatusOr<Generation>>;

// Samples are counted and dropped after this many requests, so that memory
// grows only with the counts.
constexpr int kSampledTogether = 4096;
constexpr int64_t kAllTogether = std::numeric_limits<int64_t>::max();

// Returns the tokens that a request feeds in a step that verifies its drafts.
int64_t TokensOfAStep(const GenerationParams& params) {
  const int64_t num_tokens = params.speculate->num_tokens;
  // Beams have paths that were pruned on the way, too.
  const int64_t num_paths = IsBeamSearch(params) ? 2 : 1;
  return NumSequences(params) * (1 + num_paths * num_tokens);
}

struct Job {
  RequestBody body;
  int64_t work = 0;  // that it counts for in the time that all take
};

// Runs all, as many together as feed `room` tokens in a step; one at least.
asio::awaitable<Answers> RunAll(Runtime* runtime, std::vector<Job> jobs,
                                int64_t room, Progress* progress) {
  Answers answers(jobs.size());
  int64_t num_running = 0;
  int64_t num_tokens = 0;  // fed by the running ones
  Wakeup answered(runtime->context());
  for (size_t i = 0; i < jobs.size(); ++i) {
    const int64_t more = TokensOfAStep(jobs[i].body.params);
    while (num_running > 0 && num_tokens + more > room) {
      co_await answered.Wait();
    }
    ++num_running;
    num_tokens += more;
    asio::co_spawn(runtime->context(), runtime->Run(std::move(jobs[i].body)),
                   [&, i, more](std::exception_ptr error,
                                absl::StatusOr<Generation> answer) {
                     answers[i] = std::move(answer);
                     if (error != nullptr) {
                       answers[i] =
                           ResourceExhausted("not enough memory for a request");
                     }
                     --num_running;
                     num_tokens -= more;
                     progress->Step(jobs[i].work);
                     answered.Notify();
                   });
  }
  while (num_running > 0) co_await answered.Wait();
  co_return answers;
}

// Tolerance of scores: on a GPU the order of floating-point sums depends on the
// number of rows in a step. docs/performance.md has the measured differences.
double ToleranceOf(const BackendOptions& options) {
  if (!options.device.is_cuda) return 0;
  switch (options.dtype) {
    case DType::kFloat32:
      return 1e-4;
    case DType::kFloat16:
      return 5e-3;
    case DType::kBFloat16:
      return 3e-2;
  }
  return 0;
}

class Verification {
 public:
  Verification(Runtime* runtime, const VerifySpeculationOptions& options,
               SpeculationRequests requests)
      : runtime_(runtime),
        options_(options),
        file_(std::move(requests)),
        lengths_(file_.requests.size(), 1) {
    report_.left_out = std::move(file_.left_out);
    report_.exact.tolerance = ToleranceOf(runtime_->backend_options());
    report_.may_add_draft_model =
        options_.runtime.generator.draft_model.empty() &&
        !HasEncoder(options_.runtime.model);
  }

  // Errors: of a request that fails without speculation, or cannot have it.
  asio::awaitable<absl::Status> Run() {
    progress_.Expect(Work(2 + 2 * options_.num_rounds));
    absl::Status status = co_await Compare();
    progress_.Expect(Work(2 * options_.num_rounds));  // lengths are known now
    if (status.ok()) co_await TimeAll();
    for (size_t i = 0; i < file_.requests.size(); ++i) {
      const bool is_sampled = file_.requests[i].by_distribution;
      if (status.ok() && is_sampled) status = co_await Sample(i);
    }
    progress_.Erase();
    co_return status;
  }

  const SpeculationReport& report() const { return report_; }

  // One line on the amount of work to come.
  std::string WorkToDo() const {
    const int64_t num_sampled = NumSampled();
    std::string work = Concat(Pluralize(file_.requests.size(), "request"), ", ",
                              2 + 2 * options_.num_rounds, " runs each");
    if (num_sampled > 0) {
      work += Concat("; ", num_sampled, " of them in mode rejection, ",
                     2 * options_.num_samples,
                     " samples each besides (2 x --samples)");
    }
    return work;
  }

 private:
  // Use of drafts in a run.
  enum class Drafts {
    kNone,
    kWherePaying,  // as they do elsewhere
    kAlways,       // so that there is something to compare
  };

  static RequestBody Body(const SpeculationRequest& pair, Drafts drafts) {
    RequestBody body = drafts == Drafts::kNone ? pair.without : pair.with;
    body.params.speculate->always_drafts = drafts == Drafts::kAlways;
    return body;
  }

  asio::awaitable<Answers> RunPairs(std::string what, Drafts drafts,
                                    int64_t room) {
    std::vector<Job> jobs;
    for (size_t i = 0; i < file_.requests.size(); ++i) {
      jobs.push_back({Body(file_.requests[i], drafts), WorkOf(i)});
    }
    progress_.Begin(std::move(what), static_cast<int>(jobs.size()));
    return RunAll(runtime_, std::move(jobs), room, &progress_);
  }

  int64_t NumSampled() const {
    return std::ranges::count_if(
        file_.requests,
        [](const SpeculationRequest& pair) { return pair.by_distribution; });
  }

  // So that a step of all that are compared together has room for their drafts,
  // in tokens and in rows of logits, beside the prompts of those that follow.
  int64_t RoomToCompare() const {
    const BackendOptions& options = runtime_->backend_options();
    int room = options.max_step_tokens;
    if (options.max_beams > 0) room = std::min(room, options.max_beams);
    return room / 2;
  }

  // Progress weight of a run of the i-th request: its generated tokens, known
  // after its first run.
  int64_t WorkOf(size_t i) const {
    return NumSequences(file_.requests[i].with.params) * lengths_[i];
  }

  // Progress weight of a run that samples only the beginning.
  int64_t WorkOfSamples(size_t i) const {
    return file_.requests[i].with.params.num_return_sequences *
           std::min<int64_t>(lengths_[i], kSampledTokens);
  }

  // Total weight of `num_runs` runs of every request, and of all samples.
  int64_t Work(int64_t num_runs) const {
    int64_t work = 0;
    for (size_t i = 0; i < file_.requests.size(); ++i) {
      const SpeculationRequest& pair = file_.requests[i];
      work += WorkOf(i) * num_runs;
      if (!pair.by_distribution) continue;
      work += WorkOfSamples(i) * 2 * NumToSample(pair.with.params);
    }
    return work;
  }

  // Requests that give as many samples as there are to be each way.
  int64_t NumToSample(const GenerationParams& params) const {
    return (options_.num_samples + params.num_return_sequences - 1) /
           params.num_return_sequences;
  }

  asio::awaitable<absl::Status> Compare() {
    const Answers without = co_await RunPairs("comparing, without speculation",
                                              Drafts::kNone, RoomToCompare());
    const Answers with = co_await RunPairs("comparing, with speculation",
                                           Drafts::kAlways, RoomToCompare());
    for (size_t i = 0; i < file_.requests.size(); ++i) {
      const int64_t line = file_.requests[i].line;
      for (const auto* answer : {&without[i], &with[i]}) {
        if (!answer->ok()) {
          co_return file_.OnLine(answer->status(), line);
        }
        for (const auto& hypothesis : (*answer)->hypotheses) {
          lengths_[i] = std::max(lengths_[i], std::ssize(hypothesis.tokens));
        }
      }
      if (file_.requests[i].by_distribution) continue;
      report_.exact.Compare(line, *without[i], *with[i]);
    }
    co_return absl::OkStatus();
  }

  asio::awaitable<void> TimeAll() {
    const EngineStats before = co_await runtime_->engine().Stats();
    report_.compared = before.speculation;
    const int64_t num_runs = 2 * options_.num_rounds;
    for (int64_t i = 0; i < num_runs; ++i) {
      // Without and with, with and without, and so on.
      const bool with = i % 4 == 1 || i % 4 == 2;
      const Stopwatch watch;
      co_await RunPairs(Concat("timing, run ", i + 1, " of ", num_runs),
                        with ? Drafts::kWherePaying : Drafts::kNone,
                        kAllTogether);
      (with ? report_.times_with : report_.times_without)
          .push_back(watch.Elapsed());
    }
    const EngineStats after = co_await runtime_->engine().Stats();
    report_.timed = after.speculation;
    report_.timed.Subtract(before.speculation);
  }

  // As many more than are counted as there are drafts in a step.
  static constexpr int64_t kSampledTokens = kCountedTokens + kMaxDraftTokens;

  // The request's beginning, without a seed.
  static RequestBody Beginning(RequestBody body) {
    GenerationParams& params = body.params;
    params.best_of.reset();  // the best of several have another distribution
    params.logprobs.reset();
    params.prompt_logprobs.reset();
    if (!params.allowed_sequences && params.max_new_tokens) {
      params.max_new_tokens =
          std::min<int64_t>(*params.max_new_tokens, kSampledTokens);
    }
    return body;
  }

  asio::awaitable<absl::Status> Sample(size_t i) {
    const SpeculationRequest& pair = file_.requests[i];
    const int64_t num_sampled = NumSampled();
    const auto number = std::ssize(report_.sampled) + 1;
    SampleComparison& sampled = report_.sampled.emplace_back();
    sampled.line = pair.line;
    BeginningTables tables[2];
    for (const bool with : {false, true}) {
      // Seeds that both had would give both the same first token, and lines
      // that are the same the same samples.
      int64_t seed =
          options_.seed + (2 * (number - 1) + with) * options_.num_samples;
      const RequestBody beginning =
          Beginning(Body(pair, with ? Drafts::kAlways : Drafts::kNone));
      const auto count = static_cast<int>(NumToSample(beginning.params));
      progress_.Begin(
          Concat("sampling line ", pair.line, ", ", number, " of ", num_sampled,
                 with ? ", with" : ", without", " speculation"),
          count);
      for (int begin = 0; begin < count; begin += kSampledTogether) {
        std::vector<Job> jobs(std::min(kSampledTogether, count - begin),
                              {beginning, WorkOfSamples(i)});
        for (Job& job : jobs) job.body.params.seed = seed++;
        const Answers answers = co_await RunAll(runtime_, std::move(jobs),
                                                RoomToCompare(), &progress_);
        for (const auto& answer : answers) {
          if (!answer.ok()) {
            co_return file_.OnLine(answer.status(), pair.line);
          }
          tables[with].Add(*answer);
          sampled.has_drafts |= answer->usage.num_drafted_tokens > 0;
        }
      }
    }
    progress_.Begin("comparing distributions", 0);
    sampled.num_samples = tables[0].num_samples();
    sampled.p_value = tables[0].PValue(
        tables[1], SampleComparison::kFalseAlarms / num_sampled);
    co_return absl::OkStatus();
  }

  Runtime* const runtime_;
  const VerifySpeculationOptions& options_;
  SpeculationRequests file_;
  // Tokens of the longest sequence of each request; 1 before it has run.
  std::vector<ptrdiff_t> lengths_;
  SpeculationReport report_;
  Progress progress_{0};
};

int ExitCodeOfVerdict(SpeculationVerdict verdict) {
  switch (verdict) {
    case SpeculationVerdict::kEqual:
      return kAllSucceeded;
    case SpeculationVerdict::kDifferent:
      return kSomeFailed;
    case SpeculationVerdict::kNothingShown:
      return kNothingShown;
  }
  return kSomeFailed;
}

absl::StatusOr<SpeculationParams> DefaultSpeculation(
    const VerifySpeculationOptions& options) {
  const bool has_draft = !options.runtime.generator.draft_model.empty();
  if (options.speculate.empty()) {
    return SpeculationParams{.method = has_draft ? SpeculationMethod::kDraft
                                                 : SpeculationMethod::kNgram};
  }
  ASSIGN_OR_RETURN(const SpeculationParams speculate,
                   ReadSpeculate(options.speculate));
  if (speculate.method == SpeculationMethod::kNone) {
    return InvalidArgument("--speculate must be a way to speculate, ",
                           "METHOD[:N[:MODE]], got ",
                           InQuotes(options.speculate));
  }
  if (speculate.method == SpeculationMethod::kDraft && !has_draft) {
    return InvalidArgument(
        "--speculate ", options.speculate, " needs a draft model",
        HasEncoder(options.runtime.model)
            ? ", and a model with an encoder takes none: ngram and "
              "suffix need none"
            : ": add --draft-model DIR");
  }
  return speculate;
}

}  // namespace

absl::StatusOr<int> VerifySpeculation(const VerifySpeculationOptions& options) {
  ASSIGN_OR_RETURN(const SpeculationParams speculate,
                   DefaultSpeculation(options));
  RuntimeOptions with_default = options.runtime;
  with_default.generator.speculate = speculate;
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime,
                   Runtime::Load(with_default));
  ASSIGN_OR_RETURN(SpeculationRequests requests,
                   ReadSpeculationRequests(*runtime, speculate, options.file));
  Verification verification(runtime.get(), options, std::move(requests));
  PrintToStderr(Concat("espalier: ", verification.WorkToDo(), "\n"));
  absl::Status status = Internal("the run was cut short");
  asio::co_spawn(runtime->context(), verification.Run(),
                 [&](std::exception_ptr error, absl::Status ran) {
                   status = error == nullptr ? std::move(ran) : CutShort(error);
                 });
  runtime->context().run();
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output, Output::Open("-"));
  output->Write(Format(verification.report()));
  RETURN_IF_ERROR(output->Close());
  return ExitCodeOfVerdict(verification.report().verdict());
}

const char kVerifySpeculationExamples[] =
    R"(Examples:
  espalier verify-speculation -m models/en-fr \
    --draft-model models/en-fr-draft requests.jsonl
  espalier verify-speculation -m models/en-fr --speculate ngram:8 \
    --max-running 1 requests.jsonl

FILE has a request a line, as espalier batch takes it:
  {"prompt": "It rains.", "params": {"num_beams": 4}}
  {"prompt": "No.", "params": {"do_sample": true, "speculate": "ngram:8"}}
Each runs without speculation and with: as its own "speculate" says, or else as
--speculate does.

For the comparison every step has drafts for which there is room, also where
they do not pay and would be turned off; so that there is room only so many
requests run together. Where no draft was verified all the same, as ngram finds
none in texts that do not repeat, nothing was shown; the verdict says of how
many requests that is so, and a line above it which lines of FILE have them.

What must be equal to the bit is compared so, token for token and score for
score: greedy search, beams, and samples in mode "coupled". On a GPU scores are
compared within rounding, which follows from how many rows a step has: 1e-4 of
themselves with --dtype f32, 0.005 with f16, 0.03 with bf16. There near ties may
fall the other way with and without speculation; f32 has the fewest.

Samples in mode "rejection" are other ones with drafts, of the same
distribution. So each such request is sampled --samples times with speculation
and as often without, all with seeds of their own, and the tokens at places 2 to
4 and the pairs of neighbours are compared by a permutation test. The p-value
says how likely a difference as great is if there is none. The verdict calls a
right implementation different once in 1,000 files. It sees a token whose
probability differs by about 5 / sqrt(samples), 0.11 with 2,000; it does not see
what is smaller, nor what is only in later tokens or in rare ones: for that
there are the exact comparisons, and the tests of this project.

Times are of all requests together, both ways in turn, with drafts as they pay;
--max-running 1 has them run one by one. Runs of less than 0.2 s say nothing of
speed, and are not compared: repeat the lines of FILE.

It takes 2 + 2 * --rounds runs of FILE, and of each request in mode rejection
2 * --samples more, of up to 36 tokens: 4,000 runs unless --samples says
otherwise (at least 100). These take most of the time, for a short sentence
some 10 s of CPU time with models/en-fr. A line on stderr says first how much
there is to do; a terminal shows how far it is, and after a second how long the
rest will take.

Exit code: 0 if the verdict is equal, 1 if it is different, 2 if it could not
run, or a request of FILE is wrong, 3 if nothing was shown.)";

}  // namespace espalier::cli
