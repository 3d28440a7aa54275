// End-to-end gain of speculation on a GPU: an engine with a target and a draft
// model of random weights, whose drafts are accepted at a given rate
// (synthetic_acceptance.h).
//
//   cuda_speculation_benchmark [--rate A] [--target M] [--draft M]
//       [--modes coupled,rejection] [--batches 1,8,32] [--tokens 1,2,4,8]
//       [--forms waits,pending,unread] [--plain P]
//   cuda_speculation_benchmark --rate 0.8
//
// Every request has a prompt of 512 tokens and a sample. Without speculation
// first, then with k drafted tokens a step. All figures are of steps in which
// all requests decode, and of one run. Prints a line of a markdown table a
// combination:
//
//   ms/token     of a sequence without speculation: a decode step
//   c            a step of the draft model, in decode steps: the slope of a
//                sampler's time over the tokens that it drafts
//   v            a step that verifies k drafts, in decode steps, by the
//                device's clock
//   tokens       a step and sequence; E = (1 - a^(k+1)) / (1 - a) is expected
//   speed-up     tokens a second with and without
//   E/(ck+1)     what it would be if verification cost a decode step
//   E/(ck+v)     and at its own cost; then measured / these
//   rows         sequences in a step that verifies, on average
//   draft        microseconds a step that its drafts took, as results say
//   rest         microseconds a step that are neither k steps of the draft
//                model nor the target's time on the device
//   plain        tokens a second of each request that does not speculate: with
//                --plain, every P-th
//
// Forms, in turns: steps with drafts that the host waits for (waits); that stay
// on the device (pending); and steps whose start the device takes from the end
// of the previous step (unread), as engines run them.
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/page_count.h"
#include "base/status.h"
#include "base/stopwatch.h"
#include "batcher/engine.h"
#include "benchmarks/executor/cuda/decode_case.h"
#include "benchmarks/executor/cuda/synthetic_acceptance.h"
#include "benchmarks/executor/cuda/wrapped_executor.h"
#include "executor/cuda/cuda_blocking_model.h"
#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/draft/cuda_draft_sampler.h"
#include "executor/drafts/draft_model.h"
#include "model/cuda/cuda_transformer.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
constexpr int kNumPromptTokens = 512;
constexpr int kNumSteps = 150;  // that verify, about
constexpr int kMaxStepTokens = 4096;

struct Options {
  double rate = 0.8;
  std::string target = "8b";
  std::string draft = "68m";
  std::vector<std::string> modes = {"coupled", "rejection"};
  std::vector<int> batches = {1, 8, 32};
  std::vector<int> tokens = {1, 2, 3, 4, 6, 8};
  std::vector<std::string> forms = {"unread"};
  int plain = 0;
};

// Totals over the steps in which all sequences decode.
struct Steps {
  double seconds = 0;  // from the first one's end to the last one's
  int64_t num_tokens = 0;
  int64_t num_steps = 0;
  int64_t num_rows = 0;  // sequences
  int64_t num_plain_tokens = 0;
  double device_seconds = 0;  // time of the target
  double draft_seconds = 0;

  double tokens_per_second() const { return num_tokens / seconds; }
};

// True if the request does not speculate: every `plain`-th one does not. 0: all
// speculate.
bool IsPlain(int64_t request, int plain) {
  return plain > 0 && request % plain == plain - 1;
}

// Notes what steps take that decode; from when all requests do until one ends.
class StepWatch : public WrappedExecutor {
 public:
  StepWatch(std::shared_ptr<StepExecutor> steps, int num_requests, int plain)
      : WrappedExecutor(std::move(steps)),
        num_requests_(num_requests),
        plain_(plain) {}

  void Execute(StepPlan plan, Done done) override {
    if (!plan.ended.empty()) has_ended_ = true;
    const bool is_prompt = plan.tokens.size() > 32u * (num_requests_ + 1) ||
                           (plan.num_logits < std::ssize(plan.tokens));
    if (is_prompt)
      num_since_prompt_ = 0;
    else
      ++num_since_prompt_;
    const bool counts = !has_ended_ && num_since_prompt_ > kNumWarmups;
    steps().Execute(std::move(plan), [this, counts, done = std::move(done)](
                                         absl::StatusOr<StepResult> result) {
      if (counts && result.ok()) Note(*result);
      done(std::move(result));
    });
  }
  const Steps& total() const { return total_; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kNumWarmups = 40;

  static double Seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }

  void Note(const StepResult& result) {
    const Clock::time_point now = Clock::now();
    int64_t num_tokens = 0;
    int64_t num_plain_tokens = 0;
    int64_t num_rows = 0;
    for (const SelectionResult& selection : result.selections) {
      if (IsPlain(selection.request.value, plain_)) {
        num_plain_tokens += std::ssize(selection.candidates);
      } else {
        num_tokens += std::ssize(selection.candidates);
        ++num_rows;
      }
    }
    if (num_tokens + num_plain_tokens == 0) return;
    if (!has_begun_) {
      has_begun_ = true;
      first_ = now;
      return;
    }
    total_.seconds = Seconds(first_, now);
    total_.num_tokens += num_tokens;
    total_.num_plain_tokens += num_plain_tokens;
    total_.num_rows += num_rows;
    total_.device_seconds += absl::ToDoubleSeconds(result.forward_time);
    total_.draft_seconds += absl::ToDoubleSeconds(result.draft_time);
    ++total_.num_steps;
  }

  const int num_requests_;
  const int plain_;
  bool has_ended_ = false;
  int num_since_prompt_ = 0;
  bool has_begun_ = false;
  Clock::time_point first_;
  Steps total_;
};

Request RequestOf(int seed, int vocab_size, int num_new_tokens) {
  std::mt19937 random(seed);
  Request request;
  for (int i = 0; i < kNumPromptTokens; ++i) {
    request.prompt_tokens.push_back(random() % vocab_size);
  }
  request.params.do_sample = true;
  request.params.seed = seed;
  request.params.max_new_tokens = num_new_tokens;
  request.params.eos_token_id.emplace();
  return request;
}

// Without what would say where the next draft begins.
PendingDraft WithoutVerification(const PendingDraft& draft) {
  const auto owner = std::make_shared<PendingDraft>(draft);
  return PendingDraft({owner, owner->tokens()}, owner->stride(),
                      owner->num_tokens());
}

// A sampler that the host waits for, or each of its answers, unless that is
// switched off.
class WaitingSampler : public DraftSampler {
 public:
  explicit WaitingSampler(std::shared_ptr<DraftSampler> sampler)
      : sampler_(std::move(sampler)) {}

  bool CanSample(const DraftSequence& sequence) const override {
    return sampler_->CanSample(sequence);
  }
  int max_row_tokens() const override { return sampler_->max_row_tokens(); }
  int max_draft_tokens() const override { return sampler_->max_draft_tokens(); }
  absl::StatusOr<std::vector<SampledDraft>> Sample(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override {
    return sampler_->Sample(plan, sequences);
  }
  absl::StatusOr<std::vector<SampledDraft>> Start(
      const StepPlan& plan,
      std::span<const DraftSequence* const> sequences) override {
    if (waits) return sampler_->Sample(plan, sequences);
    ASSIGN_OR_RETURN(std::vector<SampledDraft> drafts,
                     sampler_->Start(plan, sequences));
    for (SampledDraft& draft : drafts) {
      if (!answers || draft.pending.empty()) continue;
      draft.pending = WithoutVerification(draft.pending);
    }
    return drafts;
  }
  bool follows_verification() const override {
    return sampler_->follows_verification();
  }
  void* stream() const override { return sampler_->stream(); }
  absl::StatusOr<absl::Duration> Wait() override { return sampler_->Wait(); }

  std::atomic<bool> waits = false;
  std::atomic<bool> answers = false;

 private:
  const std::shared_ptr<DraftSampler> sampler_;
};

Steps RunRequests(const std::shared_ptr<StepExecutor>& steps, int num_requests,
                  int num_new_tokens,
                  const std::optional<SpeculationParams>& speculate,
                  int plain = 0) {
  boost::asio::io_context context(1);
  const auto watch = std::make_shared<StepWatch>(steps, num_requests, plain);
  EngineOptions options;
  options.scheduler.max_step_tokens = kMaxStepTokens;
  Engine engine =
      Engine::Create(context.get_executor(), watch, options).value();
  for (int i = 0; i < num_requests; ++i) {
    Request request =
        RequestOf(i, steps->description().vocab_size, num_new_tokens);
    if (!IsPlain(i, plain)) request.params.speculate = speculate;
    boost::asio::co_spawn(
        context, engine.Generate(std::move(request)),
        [](std::exception_ptr, const absl::StatusOr<Result>& result) {
          CHECK(result.ok()) << result.status().ToString();
        });
  }
  context.run();
  return watch->total();
}

CudaTransformerOptions OptionsOf(const TransformerConfig& config,
                                 int num_requests, int max_new_tokens) {
  const int64_t num_pages =
      num_requests *
          (NumPages(kNumPromptTokens + max_new_tokens, kPageSize) + 4) +
      64;
  return {.page_size = kPageSize,
          .kv_cache_bytes = num_pages * kPageSize * 4 * config.num_layers() *
                            config.kv_size(),
          .dtype = DType::kBFloat16,
          .max_tokens = kMaxStepTokens,
          .max_logits = 1024};
}

// Makes a model of a shape, with another vocabulary size.
absl::StatusOr<std::shared_ptr<CudaModel>> MakeModel(
    const std::string& shape, int vocab_size, int num_requests,
    int max_new_tokens, double agreement, const CudaDevice& device) {
  ASSIGN_OR_RETURN(const DecodeCase c, DecodeCase::Parse(shape + ":1s1/1"));
  TransformerConfig config = c.shape();
  config.vocab_size = vocab_size;
  ASSIGN_OR_RETURN(
      std::shared_ptr<CudaModel> transformer,
      CudaTransformer::Random(
          config, OptionsOf(config, num_requests, max_new_tokens), device));
  return std::make_shared<SyntheticModel>(std::move(transformer), agreement);
}

// Returns the time of one step of the draft model for `num_requests` sequences
// at a position: the slope over the number of drafted tokens.
double DraftStepSeconds(DraftSampler& sampler, int num_requests, int position,
                        bool by_rejection) {
  const auto time_of = [&](int num_tokens) {
    auto params = std::make_shared<SelectionParams>();
    params->verify_mode =
        by_rejection ? VerifyMode::kRejection : VerifyMode::kCoupled;
    const int num_pages = static_cast<int>(NumPages(position + 16, kPageSize));
    std::vector<DraftSequence> sequences(num_requests,
                                         {.request = {},
                                          .prompt = nullptr,
                                          .generated = {1},
                                          .num_tokens = num_tokens,
                                          .params = params});
    StepPlan plan;
    std::vector<const DraftSequence*> asked;
    for (int i = 0; i < num_requests; ++i) {
      plan.rows.push_back({.first_token = i,
                           .num_tokens = 1,
                           .first_position = position,
                           .num_logits = 1});
      plan.tokens.push_back(5 + i);
      for (int page = 0; page < num_pages; ++page) {
        plan.page_indices.push_back(PageId{i * num_pages + page});
      }
      plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
      asked.push_back(&sequences[i]);
    }
    std::vector<double> times;
    for (int round = 0; round < 25; ++round) {
      const Stopwatch watch;
      const auto drafts = sampler.Sample(plan, asked);
      CHECK(drafts.ok()) << drafts.status().ToString();
      if (round >= 5) times.push_back(absl::ToDoubleSeconds(watch.Elapsed()));
    }
    std::ranges::nth_element(times, times.begin() + times.size() / 2);
    return times[times.size() / 2];
  };
  return (time_of(12) - time_of(4)) / 8;
}

// One line: the same numbers of tokens with drafts and without, so that lengths
// are the same.
void MeasureTokens(const Options& options, const std::string& mode,
                   int num_requests, int k, WaitingSampler& sampler,
                   const std::shared_ptr<StepExecutor>& steps) {
  const double expected =
      (1 - std::pow(options.rate, k + 1)) / (1 - options.rate);
  const bool by_rejection = mode == "rejection";
  const SpeculationParams speculate = {.method = SpeculationMethod::kDraft,
                                       .num_tokens = k,
                                       .mode = by_rejection
                                                   ? SpeculationMode::kRejection
                                                   : SpeculationMode::kCoupled,
                                       .always_drafts = true};
  const int num_new = static_cast<int>((kNumSteps + 60) * expected);
  // Nothing else runs meanwhile.
  const double draft_ms =
      1e3 * DraftStepSeconds(sampler, num_requests,
                             kNumPromptTokens + num_new / 2, by_rejection);
  const Steps decode = RunRequests(steps, num_requests, num_new, std::nullopt);
  const double decode_ms = 1e3 * num_requests / decode.tokens_per_second();
  const double c = draft_ms / decode_ms;
  for (const std::string& form : options.forms) {
    sampler.waits = form != "pending" && form != "unread";
    sampler.answers = form != "unread";
    const Steps run =
        RunRequests(steps, num_requests, num_new, speculate, options.plain);
    const int num_plain = options.plain > 0 ? num_requests / options.plain : 0;
    const double device_ms = 1e3 * run.device_seconds / run.num_steps;
    const double v = device_ms / decode_ms;
    const double speedup = run.tokens_per_second() /
                           (num_requests - num_plain) /
                           (decode.tokens_per_second() / num_requests);
    const double ideal = expected / (c * k + 1);
    const double ideal_of_v = expected / (c * k + v);
    std::printf(
        "| %d | %s | %d | %s | %.3f | %.4f | %.3f | %.2f (%.2f) | %.3f | %.3f "
        "| %.3f | %.1f%% | %.1f%% | %.1f | %.0f | %.0f | %.0f |\n",
        num_requests, mode.c_str(), k, form.c_str(), decode_ms, c, v,
        double(run.num_tokens) / run.num_rows, expected, speedup, ideal,
        ideal_of_v, 100 * speedup / ideal, 100 * speedup / ideal_of_v,
        double(run.num_rows) / run.num_steps,
        1e6 * run.draft_seconds / run.num_steps,
        1e3 * (1e3 * run.seconds / run.num_steps - draft_ms * k - device_ms),
        run.num_plain_tokens / run.seconds / std::max(num_plain, 1));
    std::fflush(stdout);
  }
}

absl::Status MeasureBatch(const Options& options, int num_requests,
                          const CudaDevice& device) {
  const int max_tokens = *std::ranges::max_element(options.tokens);
  const int max_new_tokens = (kNumSteps + 80) * (max_tokens + 1);
  ASSIGN_OR_RETURN(const DecodeCase c,
                   DecodeCase::Parse(options.target + ":1s1/1"));
  const int vocab_size = c.shape().vocab_size;
  ASSIGN_OR_RETURN(auto target,
                   MakeModel(options.target, vocab_size, num_requests,
                             max_new_tokens, 1, device));
  ASSIGN_OR_RETURN(auto draft,
                   MakeModel(options.draft, vocab_size, num_requests,
                             max_new_tokens, options.rate, device));
  ASSIGN_OR_RETURN(auto blocking, CudaBlockingModel::Create(draft));
  ASSIGN_OR_RETURN(std::shared_ptr<DraftSampler> on_device,
                   CudaDraftSampler::Create(draft));
  const auto sampler = std::make_shared<WaitingSampler>(std::move(on_device));
  ASSIGN_OR_RETURN(const auto threads, ThreadPool::Create(4));
  ASSIGN_OR_RETURN(std::unique_ptr<DraftModel> model,
                   DraftModel::Create(std::move(blocking), threads, sampler));
  ASSIGN_OR_RETURN(std::shared_ptr<StepExecutor> steps,
                   CudaExecutor::Create(std::move(target),
                                        {.draft_model = std::move(model)}));
  RunRequests(steps, num_requests, 60, std::nullopt);
  for (const std::string& mode : options.modes) {
    for (const int k : options.tokens) {
      MeasureTokens(options, mode, num_requests, k, *sampler, steps);
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(const CudaDevice device, CudaDevice::Open(0));
  std::printf(
      "%s, target %s, draft %s, rate of acceptance %.2f\n\n"
      "| batch | mode | k | form | ms/token | c | v | tokens (E) | speed-up | "
      "E/(ck+1) | E/(ck+v) | of it | of it | rows | draft | rest | plain |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      device.name.c_str(), options.target.c_str(), options.draft.c_str(),
      options.rate);
  for (const int num_requests : options.batches) {
    RETURN_IF_ERROR(MeasureBatch(options, num_requests, device));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> ParseInts(const std::string& text) {
  std::vector<int> values;
  for (const auto part : absl::StrSplit(text, ',')) {
    if (!absl::SimpleAtoi(part, &values.emplace_back()) || values.back() < 1) {
      return InvalidArgument("not numbers: ", text);
    }
  }
  return values;
}

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--rate") {
      options.rate = std::atof(value.c_str());
    } else if (name == "--target") {
      options.target = value;
    } else if (name == "--draft") {
      options.draft = value;
    } else if (name == "--modes") {
      options.modes = absl::StrSplit(value, ',');
    } else if (name == "--batches") {
      ASSIGN_OR_RETURN(options.batches, ParseInts(value));
    } else if (name == "--plain") {
      options.plain = std::atoi(value.c_str());
    } else if (name == "--forms") {
      options.forms = absl::StrSplit(value, ',');
    } else if (name == "--tokens") {
      ASSIGN_OR_RETURN(options.tokens, ParseInts(value));
    } else {
      return InvalidArgument("not an option: ", name);
    }
  }
  if (argc % 2 == 0 || !(options.rate >= 0 && options.rate < 1)) {
    return InvalidArgument("options come with values, --rate below 1");
  }
  return options;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  const auto options = espalier::ParseOptions(argc, argv);
  const absl::Status status =
      options.ok() ? espalier::Run(*options) : options.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "cuda_speculation_benchmark: %s\n",
               espalier::Message(status).c_str());
  return 1;
}
