// End-to-end gain of speculation for beam search on a GPU: a target and a draft
// model of random weights and given shapes, whose distributions agree to a
// given degree (synthetic_language.h).
//
//   cuda_beam_speculation_benchmark [--target M] [--draft M] [--beams 2,4]
//       [--tokens 1,2,4] [--noises 0,0.25,0.5,1] [--new-tokens N]
//
// Requests run one at a time, with prompts of 512 tokens, without drafts and
// with k drafted steps of the search a step, in turns. Prints a line of a
// markdown table a combination:
//
//   greedy       share of contexts whose likeliest token is the draft model's
//   overlap      sum of min(p, q) over tokens, on average over contexts
//   steps        steps of the search a step of the model
//   ms/token     a step of the search without drafts, and with them
//   speed-up     their ratio
#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
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
#include "benchmarks/executor/cuda/synthetic_language.h"
#include "executor/cuda/cuda_blocking_model.h"
#include "executor/cuda/cuda_executor.h"
#include "executor/cuda/draft/cuda_draft_sampler.h"
#include "executor/drafts/draft_model.h"
#include "model/cuda/cuda_transformer.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
constexpr int kNumPromptTokens = 512;
constexpr int kMaxStepTokens = 1024;
constexpr int kNumRounds = 3;

struct Options {
  std::string target = "8b";
  std::string draft = "68m";
  std::vector<int> beams = {2, 4};
  std::vector<int> tokens = {1, 2, 4};
  std::vector<float> noises = {0, 0.25, 0.5, 1};
  int num_new_tokens = 128;
};

struct Agreement {
  double greedy = 0;
  double overlap = 0;
};

Agreement AgreementOf(float noise) {
  constexpr int kNumContexts = 20000;
  Agreement agreement;
  for (int c = 0; c < kNumContexts; ++c) {
    const uint32_t context = ContextHash(c, c);
    double p[kNumContinuations];
    double q[kNumContinuations];
    double sum_p = 0;
    double sum_q = 0;
    for (int i = 0; i < kNumContinuations; ++i) {
      sum_p += p[i] = std::exp(SyntheticLogit(context, i, 0));
      sum_q += q[i] = std::exp(SyntheticLogit(context, i, noise));
    }
    const auto likeliest = [](const double* x) {
      return std::max_element(x, x + kNumContinuations) - x;
    };
    agreement.greedy += likeliest(p) == likeliest(q);
    for (int i = 0; i < kNumContinuations; ++i) {
      agreement.overlap += std::min(p[i] / sum_p, q[i] / sum_q);
    }
  }
  agreement.greedy /= kNumContexts;
  agreement.overlap /= kNumContexts;
  return agreement;
}

struct Run {
  double seconds = 0;
  Result result;
};

Run RunRequest(const std::shared_ptr<StepExecutor>& steps, int seed,
               int num_beams, int num_new_tokens,
               const std::optional<SpeculationParams>& speculate) {
  boost::asio::io_context context(1);
  EngineOptions options;
  options.scheduler.max_step_tokens = kMaxStepTokens;
  Engine engine =
      Engine::Create(context.get_executor(), steps, options).value();
  std::mt19937 random(seed);
  Request request;
  for (int i = 0; i < kNumPromptTokens; ++i) {
    request.prompt_tokens.push_back(random() % steps->description().vocab_size);
  }
  request.params.num_beams = num_beams;
  request.params.max_new_tokens = num_new_tokens;
  request.params.eos_token_id.emplace();
  request.params.speculate = speculate;
  Run run;
  const Stopwatch watch;
  boost::asio::co_spawn(
      context, engine.Generate(std::move(request)),
      [&run](std::exception_ptr, absl::StatusOr<Result> result) {
        CHECK(result.ok()) << result.status().ToString();
        run.result = *std::move(result);
      });
  context.run();
  run.seconds = absl::ToDoubleSeconds(watch.Elapsed());
  return run;
}

// Returns the time of a search without its prompt: the difference between a
// long and a short one.
double SearchSeconds(const std::shared_ptr<StepExecutor>& steps, int num_beams,
                     int num_new_tokens,
                     const std::optional<SpeculationParams>& speculate,
                     double* steps_of_model,
                     std::vector<std::vector<TokenId>>* texts) {
  std::vector<double> times;
  *steps_of_model = 0;
  for (int round = 0; round < kNumRounds; ++round) {
    const Run shorter = RunRequest(steps, round, num_beams, 16, speculate);
    const Run longer =
        RunRequest(steps, round, num_beams, num_new_tokens, speculate);
    times.push_back(longer.seconds - shorter.seconds);
    *steps_of_model +=
        double(longer.result.usage.num_steps - shorter.result.usage.num_steps) /
        kNumRounds;
    texts->push_back(longer.result.hypotheses.front().tokens);
  }
  std::ranges::nth_element(times, times.begin() + times.size() / 2);
  return times[times.size() / 2];
}

absl::StatusOr<std::shared_ptr<CudaModel>> MakeModel(const std::string& shape,
                                                     int vocab_size,
                                                     float noise,
                                                     const CudaDevice& device) {
  ASSIGN_OR_RETURN(const DecodeCase c, DecodeCase::Parse(shape + ":1s1/1"));
  TransformerConfig config = c.shape();
  config.vocab_size = vocab_size;
  const int64_t num_pages = 2048;
  ASSIGN_OR_RETURN(
      std::shared_ptr<CudaModel> transformer,
      CudaTransformer::Random(
          config,
          {.page_size = kPageSize,
           .kv_cache_bytes = num_pages * kPageSize * 4 * config.num_layers() *
                             config.kv_size(),
           .dtype = DType::kBFloat16,
           .max_tokens = kMaxStepTokens,
           .max_logits = 256},
          device));
  return std::make_shared<SyntheticLanguage>(std::move(transformer), noise);
}

absl::Status Measure(const Options& options) {
  ASSIGN_OR_RETURN(const CudaDevice device, CudaDevice::Open(0));
  std::printf(
      "%s, target %s, draft %s\n\n"
      "| beams | noise | greedy | overlap | k | steps | ms/token without | "
      "with | speed-up | equal |\n|---|---|---|---|---|---|---|---|---|---|\n",
      device.name.c_str(), options.target.c_str(), options.draft.c_str());
  ASSIGN_OR_RETURN(const DecodeCase c,
                   DecodeCase::Parse(options.target + ":1s1/1"));
  const int vocab_size = c.shape().vocab_size;
  ASSIGN_OR_RETURN(auto target,
                   MakeModel(options.target, vocab_size, 0, device));
  ASSIGN_OR_RETURN(const auto threads, ThreadPool::Create(4));
  const int num_steps = options.num_new_tokens - 16;
  for (const float noise : options.noises) {
    const Agreement agreement = AgreementOf(noise);
    ASSIGN_OR_RETURN(auto draft,
                     MakeModel(options.draft, vocab_size, noise, device));
    ASSIGN_OR_RETURN(auto blocking, CudaBlockingModel::Create(draft));
    ASSIGN_OR_RETURN(std::shared_ptr<DraftSampler> sampler,
                     CudaDraftSampler::Create(draft));
    ASSIGN_OR_RETURN(std::unique_ptr<DraftModel> model,
                     DraftModel::Create(std::move(blocking), threads, sampler));
    ASSIGN_OR_RETURN(
        std::shared_ptr<StepExecutor> steps,
        CudaExecutor::Create(target, {.draft_model = std::move(model)}));
    for (const int num_beams : options.beams) {
      double steps_without = 0;
      std::vector<std::vector<TokenId>> expected;
      RunRequest(steps, 0, num_beams, 24, std::nullopt);
      const double without =
          SearchSeconds(steps, num_beams, options.num_new_tokens, std::nullopt,
                        &steps_without, &expected);
      for (const int k : options.tokens) {
        const SpeculationParams speculate = {
            .method = SpeculationMethod::kDraft,
            .num_tokens = k,
            .always_drafts = true};
        RunRequest(steps, 0, num_beams, 24, speculate);
        double steps_with = 0;
        std::vector<std::vector<TokenId>> texts;
        const double with =
            SearchSeconds(steps, num_beams, options.num_new_tokens, speculate,
                          &steps_with, &texts);
        std::printf(
            "| %d | %.2f | %.3f | %.3f | %d | %.2f | %.3f | %.3f | %.2f | %s "
            "|\n",
            num_beams, noise, agreement.greedy, agreement.overlap, k,
            num_steps / steps_with, 1e3 * without / num_steps,
            1e3 * with / num_steps, without / with,
            texts == expected ? "yes" : "NO");
        std::fflush(stdout);
      }
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<std::vector<T>> ParseNumbers(const std::string& text) {
  std::vector<T> values;
  for (const auto part : absl::StrSplit(text, ',')) {
    float value = 0;
    if (!absl::SimpleAtof(part, &value) || value < 0) {
      return InvalidArgument("not numbers: ", text);
    }
    values.push_back(static_cast<T>(value));
  }
  return values;
}

absl::StatusOr<Options> ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const std::string value = argv[i + 1];
    if (name == "--target") {
      options.target = value;
    } else if (name == "--draft") {
      options.draft = value;
    } else if (name == "--beams") {
      ASSIGN_OR_RETURN(options.beams, ParseNumbers<int>(value));
    } else if (name == "--tokens") {
      ASSIGN_OR_RETURN(options.tokens, ParseNumbers<int>(value));
    } else if (name == "--noises") {
      ASSIGN_OR_RETURN(options.noises, ParseNumbers<float>(value));
    } else if (name == "--new-tokens") {
      options.num_new_tokens = std::atoi(value.c_str());
    } else {
      return InvalidArgument("not an option: ", name);
    }
  }
  if (argc % 2 == 0 || options.num_new_tokens < 32) {
    return InvalidArgument("options come with values, --new-tokens from 32");
  }
  return options;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  const auto options = espalier::ParseOptions(argc, argv);
  const absl::Status status =
      options.ok() ? espalier::Measure(*options) : options.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "cuda_beam_speculation_benchmark: %s\n",
               espalier::Message(status).c_str());
  return 1;
}
