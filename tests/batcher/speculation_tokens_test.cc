// Counted tokens of steps with drafts, wherever sequences end: a request's
// generated tokens are the first token of each sequence, which comes with the
// prompt, plus the tokens that its usage counts for its steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batcher/scheduler/scheduler.h"
#include "beam/strategy/search_watcher.h"
#include "executor/drafts/draft_model.h"
#include "tests/batcher/blended_model.h"
#include "tests/batcher/toy_requests.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"

namespace espalier {
namespace {

using namespace ::espalier::testing;  // NOLINT
using Method = SpeculationMethod;
using Mode = SpeculationMode;

// Its tokens are bytes and symbols.
ToyModelOptions ByteModel() {
  ToyModelOptions options;
  options.vocab_size = 262;
  options.eos_token_ids = {2};
  options.num_tokens_read = 2;
  options.num_pages = 1000;
  options.has_shareable_pages = true;
  return options;
}

// Few tokens are allowed, so that texts repeat themselves.
Request ByteRequest(uint32_t seed) {
  Request request{{1, 5, 9, static_cast<TokenId>(10 + seed)}, {}};
  SharedList<int64_t>& allowed = request.params.allowed_token_ids.emplace();
  allowed.push_back(2);
  for (const char* byte : {"<0x61>", "<0x62>", "<0x63>", "<0x20>"}) {
    allowed.push_back(*EnFrTokenizer().PieceToId(byte));
  }
  request.params.max_new_tokens = 8 + seed % 20;
  return request;
}

struct TokensCase {
  Method method = Method::kNgram;
  Mode mode = Mode::kCoupled;
  int plans_in_flight = 1;
};

std::string NameOfCase(const TokensCase& c) {
  return std::string(NameOf(c.method)) + "_" + std::string(NameOf(c.mode)) +
         "_ahead" + std::to_string(c.plans_in_flight);
}

struct Counted {
  Result result;
  SpeculationFigures figures;
  int64_t num_search_steps = 0;
};

class StepCounter : public SearchWatcher {
 public:
  explicit StepCounter(int64_t* num_steps) : num_steps_(num_steps) {}
  void OnStep(const DecodeStrategy&, const TokenLogProbs*) override {
    ++*num_steps_;
  }
  void OnFinishEarly(const DecodeStrategy&) override {
    ADD_FAILURE() << "nothing ends it";
  }

 private:
  int64_t* const num_steps_;
};

class SpeculationTokensTest : public ::testing::TestWithParam<TokensCase> {
 protected:
  SpeculationTokensTest() : model_(ByteModel()) {
    description_ = model_.description();
    if (GetParam().method != Method::kDraft) return;
    // It disagrees with the model now and then.
    draft_ = *DraftModel::Create(
        std::make_shared<BlendedModel>(ByteModel(), /*other_seed=*/4, 0.2f),
        *ThreadPool::Create(1));
    description_.limits.max_drafted_length = std::numeric_limits<int>::max();
  }

  // Alone, with drafts in every step.
  Counted Run(Request request) {
    request.params.speculate = {.method = GetParam().method,
                                .num_tokens = 6,
                                .mode = GetParam().mode,
                                .always_drafts = true};
    EXPECT_OK(ValidateRequest(description_, &request));
    Scheduler scheduler(description_, {.validate_steps = true});
    Counted counted;
    scheduler.Submit(
        RequestId{0}, PreparedRequest(request, SharedEnFrTokenizer()),
        [&](absl::StatusOr<Result> result) {
          EXPECT_OK(result.status());
          if (result.ok()) counted.result = *std::move(result);
        },
        std::make_unique<StepCounter>(&counted.num_search_steps));
    RunToEnd(
        scheduler, model_, [](int) {}, GetParam().plans_in_flight,
        draft_.get());
    ExpectNothingHeld(scheduler);
    counted.figures = scheduler.stats().speculation;
    return counted;
  }

  ToyModel model_;
  std::unique_ptr<DraftModel> draft_;  // or null
  ModelDescription description_;
};

TEST_P(SpeculationTokensTest, SamplesHaveWhatTheirStepsGave) {
  std::map<FinishReason, int> num_ends;  // with drafts accepted
  // Steps without a token of the model after the drafts, by what ended them.
  std::map<FinishReason, int64_t> num_ends_in_drafts;
  for (uint32_t seed = 0; seed < Cases(200u, 60u); ++seed) {
    SCOPED_TRACE(seed);
    Request request = ByteRequest(seed);
    GenerationParams& params = request.params;
    params.do_sample = seed % 4 != 0;
    if (params.do_sample) {
      params.temperature = 0.7;
      params.seed = seed;
    }
    params.num_return_sequences = params.do_sample && seed % 4 == 1 ? 3 : 1;
    if (seed % 3 == 1) params.stop = {"ab", "ca", "  "};
    params.ignore_eos = seed % 3 == 2;
    const auto [result, figures, num_search_steps] = Run(request);
    const Usage& usage = result.usage;
    ASSERT_EQ(std::ssize(result.hypotheses), params.num_return_sequences);
    EXPECT_EQ(usage.num_generated_tokens,
              params.num_return_sequences + figures.num_tokens);
    EXPECT_EQ(usage.num_accepted_tokens, figures.num_accepted_tokens);
    const int64_t num_without_model = figures.num_accepted_tokens +
                                      figures.num_target_steps -
                                      figures.num_tokens;
    EXPECT_GE(num_without_model, 0);
    EXPECT_LE(num_without_model, params.num_return_sequences);
    if (params.num_return_sequences > 1) continue;
    const FinishReason reason = result.hypotheses[0].finish_reason;
    num_ends[reason] += usage.num_accepted_tokens > 0;
    num_ends_in_drafts[reason] += num_without_model;
  }
  const int least = Cases(5, 0);
  EXPECT_GT(num_ends[FinishReason::kLength], least);
  EXPECT_GT(num_ends[FinishReason::kEos], least);
  EXPECT_GT(num_ends_in_drafts[FinishReason::kStop], 0);
  // Sampled drafts are cut after an EOS id, others before it. A draft is always
  // shorter than the rest of its sequence may be.
  const bool are_drawn = GetParam().method == Method::kDraft &&
                         GetParam().mode == Mode::kRejection;
  EXPECT_EQ(num_ends_in_drafts[FinishReason::kEos] > 0, are_drawn);
  EXPECT_EQ(num_ends_in_drafts[FinishReason::kLength], 0);
}

TEST_P(SpeculationTokensTest, SearchesHaveTheirSteps) {
  int64_t num_accepted = 0;
  for (uint32_t seed = 0; seed < Cases(200u, 100u); ++seed) {
    SCOPED_TRACE(seed);
    Request request = ByteRequest(seed);
    request.params.num_beams = 2 + seed % 2;
    const Counted counted = Run(request);
    EXPECT_EQ(counted.num_search_steps, 1 + counted.figures.num_tokens);
    EXPECT_EQ(counted.result.usage.num_steps,
              1 + counted.figures.num_target_steps);
    num_accepted += counted.figures.num_accepted_tokens;
  }
  EXPECT_GT(num_accepted, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, SpeculationTokensTest,
    ::testing::Values(
        TokensCase{.method = Method::kNgram},
        TokensCase{.method = Method::kNgram, .mode = Mode::kRejection},
        TokensCase{.method = Method::kSuffix, .plans_in_flight = 2},
        TokensCase{.method = Method::kDraft},
        TokensCase{.method = Method::kDraft, .mode = Mode::kRejection},
        TokensCase{.method = Method::kDraft,
                   .mode = Mode::kRejection,
                   .plans_in_flight = 2},
        TokensCase{.method = Method::kDraft, .plans_in_flight = 2}),
    [](const auto& test) { return NameOfCase(test.param); });

}  // namespace
}  // namespace espalier
