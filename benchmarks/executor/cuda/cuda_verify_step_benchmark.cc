// A step that verifies drafts compared with a decode step of the same
// sequences, in one run: the cost of one more row. Weights are random and the
// sequences greedy.
//
//   cuda_verify_step_benchmark [--drafts N] CASE...
//   cuda_verify_step_benchmark --drafts 4 8b:8s1/512
//
// Cases are those of decode_case.h; samples of a request share the pages of its
// prompt. Prints a line of a markdown table per case and kind of step: medians
// of the time on the device, by its own clock, and from a plan to its result;
// and both as multiples of the decode step's. Steps alternate, with one plan in
// flight.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/page_count.h"
#include "base/stopwatch.h"
#include "benchmarks/executor/cuda/decode_case.h"
#include "executor/cuda/cuda_executor.h"
#include "model/cuda/cuda_transformer.h"
#include "pages/page_table.h"

namespace espalier {
namespace {

constexpr int kPageSize = 16;
constexpr int kNumRounds = 60;
constexpr int kNumWarmups = 10;

// Number of pages that a sequence does not share: the partly filled last page
// of its prompt, and all later ones.
int NumOwnPages(const DecodeCase& c, int num_drafts) {
  return static_cast<int>(
      NumPages(c.num_prompt_tokens % kPageSize + 1 + num_drafts, kPageSize));
}

// One step of all sequences, each after its prompt and a generated token.
StepPlan MakePlan(const DecodeCase& c, int num_drafts) {
  static const auto* const greedy =
      new std::shared_ptr<const SelectionParams>([] {
        SelectionParams params;
        params.verify_mode = VerifyMode::kCoupled;
        params.domain = ScoreDomain::kLogits;
        params.sampling.temperature = 0;
        return std::make_shared<const SelectionParams>(params);
      }());
  const int num_tokens = 1 + num_drafts;
  const int num_shared = c.num_prompt_tokens / kPageSize;
  const int num_own = NumOwnPages(c, num_drafts);
  StepPlan plan;
  int next_page = 0;
  for (int i = 0; i < c.num_requests; ++i) {
    PlanSelection selection;
    selection.request = RequestId{i};
    selection.first_logits = plan.num_logits;
    selection.num_rows = c.num_beams;
    selection.num_slots = c.num_beams;
    selection.num_generated = 1;
    selection.params = *greedy;
    DrawSelection& draws = selection.Choose<DrawSelection>();
    const int first_page = std::exchange(next_page, next_page + num_shared);
    for (int sample = 0; sample < c.num_beams; ++sample) {
      selection.cum_log_probs.push_back(0);
      draws.samples.push_back(sample);
      selection.slots.push_back(sample);
      plan.rows.push_back({.first_token = static_cast<int>(plan.tokens.size()),
                           .num_tokens = num_tokens,
                           .first_position = c.num_prompt_tokens,
                           .num_logits = num_tokens,
                           .first_logits = plan.num_logits});
      for (int t = 0; t < num_tokens; ++t) {
        plan.tokens.push_back(3 + i + sample + t);
      }
      plan.num_logits += num_tokens;
      for (int page = 0; page < num_shared; ++page) {
        plan.page_indices.push_back(PageId{first_page + page});
      }
      for (int page = 0; page < num_own; ++page) {
        plan.page_indices.push_back(PageId{next_page++});
      }
      plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
      if (num_drafts > 0) {
        draws.drafts.tokens.emplace_back(plan.tokens.end() - num_drafts,
                                         plan.tokens.end());
      }
    }
    plan.selections.push_back(std::move(selection));
  }
  return plan;
}

struct Times {
  std::vector<double> on_device;  // ms
  std::vector<double> to_answer;
};

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

void RunOnce(StepExecutor& steps, StepPlan plan, Times* times) {
  std::promise<absl::StatusOr<StepResult>> done;
  const Stopwatch watch;
  steps.Execute(std::move(plan), [&](absl::StatusOr<StepResult> result) {
    done.set_value(std::move(result));
  });
  const absl::StatusOr<StepResult> result = done.get_future().get();
  const double elapsed = absl::ToDoubleMilliseconds(watch.Elapsed());
  CHECK(result.ok()) << result.status().ToString();
  if (times == nullptr) return;
  times->to_answer.push_back(elapsed);
  times->on_device.push_back(absl::ToDoubleMilliseconds(result->forward_time));
}

void Measure(const DecodeCase& c, int num_drafts, const CudaDevice& device) {
  const int num_tokens = c.num_rows() * (1 + num_drafts);
  const int64_t num_pages =
      int64_t{c.num_requests} * (c.num_prompt_tokens / kPageSize) +
      int64_t{c.num_rows()} * NumOwnPages(c, num_drafts) + 64;
  const TransformerConfig& config = c.shape();
  const CudaTransformerOptions options = {
      .page_size = kPageSize,
      .kv_cache_bytes =
          num_pages * kPageSize * 4 * config.num_layers() * config.kv_size(),
      .max_tokens = std::max(256, num_tokens),
      .max_logits = std::max(256, num_tokens)};
  auto model = CudaTransformer::Random(config, options, device);
  CHECK(model.ok()) << model.status().ToString();
  auto steps = CudaExecutor::Create(*std::move(model));
  CHECK(steps.ok()) << steps.status().ToString();
  Times decode;
  Times verify;
  for (int round = 0; round < kNumRounds + kNumWarmups; ++round) {
    const bool counts = round >= kNumWarmups;
    RunOnce(**steps, MakePlan(c, 0), counts ? &decode : nullptr);
    RunOnce(**steps, MakePlan(c, num_drafts), counts ? &verify : nullptr);
  }
  const double decode_device = Median(decode.on_device);
  const double decode_answer = Median(decode.to_answer);
  const double verify_device = Median(verify.on_device);
  const double verify_answer = Median(verify.to_answer);
  std::printf("| %s | decode | %.3f | %.3f | 1.00 | 1.00 |\n", c.name.c_str(),
              decode_device, decode_answer);
  std::printf("| %s | verify %d | %.3f | %.3f | %.2f | %.2f |\n",
              c.name.c_str(), num_drafts, verify_device, verify_answer,
              verify_device / decode_device, verify_answer / decode_answer);
}

int Main(int argc, char** argv) {
  int num_drafts = 4;
  auto device = CudaDevice::Open(0);
  CHECK(device.ok()) << device.status().ToString();
  std::printf(
      "| case | step | ms on the device | ms to the answer | times | times |\n"
      "|---|---|---|---|---|---|\n");
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "--drafts" && i + 1 < argc) {
      num_drafts = std::atoi(argv[++i]);
      CHECK(num_drafts >= 1) << "--drafts";
      continue;
    }
    const auto parsed = DecodeCase::Parse(text);
    CHECK(parsed.ok()) << parsed.status().ToString();
    Measure(*parsed, num_drafts, *device);
  }
  return 0;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) { return espalier::Main(argc, argv); }
