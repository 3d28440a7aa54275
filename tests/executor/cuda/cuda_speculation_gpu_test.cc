// Requests that speculate on a device get the tokens of plain decoding,
// whatever drafts for them; and in mode rejection, where these depend on the
// drafts, those that they get on the host. In float32: verification feeds
// several rows where decoding feeds one, so sums are rounded otherwise, and a
// draw or a choice within rounding of a border may take the other side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/cuda_blocking_model.h"
#include "executor/cuda/draft/cuda_draft_sampler.h"
#include "executor/drafts/draft_model.h"
#include "executor/host/model_executor.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

struct CudaSpeculationCase {
  const char* name;
  SpeculationMethod method = SpeculationMethod::kNgram;
  SpeculationMode mode = SpeculationMode::kCoupled;
  // Few: drafts find no room in many steps.
  int max_step_tokens = 512;
  int64_t kv_cache_mb = 256;
  bool drafts_on_host = false;  // from logits of the device
  // Limit of the draft model's rows. A run above it is waited for.
  int max_draft_rows = 5;
  // Leaves out processors that read the text, whose requests wait for results:
  // steps then begin where the device finds that the previous one has ended.
  bool is_unread = false;
  bool is_beams = false;  // 2 to 6, which draft at every step
  // With this many stop ids, beams with long paths need more candidates than a
  // step has; their drafts are then not verified.
  int num_stop_ids = 0;
  // Number of repetitions in a prompt. Beyond 256 positions, attention reads a
  // group's shared prefix once for all its rows.
  int num_repeats = 2;
};

constexpr CudaSpeculationCase kSpeculationCases[] = {
    {.name = "Ngram"},
    {.name = "NgramByRejection",
     .mode = SpeculationMode::kRejection,
     .max_step_tokens = 1024},
    {.name = "NgramWithLittleRoom", .max_step_tokens = 72, .kv_cache_mb = 12},
    {.name = "Suffix", .method = SpeculationMethod::kSuffix},
    {.name = "Draft", .method = SpeculationMethod::kDraft},
    {.name = "DraftByRejection",
     .method = SpeculationMethod::kDraft,
     .mode = SpeculationMode::kRejection,
     .max_step_tokens = 1024},
    {.name = "DraftWithLittleRoom",
     .method = SpeculationMethod::kDraft,
     .max_step_tokens = 72,
     .kv_cache_mb = 12},
    {.name = "DraftPending",
     .method = SpeculationMethod::kDraft,
     .max_draft_rows = 96},
    {.name = "DraftPendingByRejection",
     .method = SpeculationMethod::kDraft,
     .mode = SpeculationMode::kRejection,
     .max_step_tokens = 1024,
     .max_draft_rows = 96},
    {.name = "DraftPendingWithLittleRoom",
     .method = SpeculationMethod::kDraft,
     .max_step_tokens = 72,
     .kv_cache_mb = 12,
     .max_draft_rows = 96},
    {.name = "DraftUnread",
     .method = SpeculationMethod::kDraft,
     .max_draft_rows = 96,
     .is_unread = true},
    {.name = "DraftUnreadByRejection",
     .method = SpeculationMethod::kDraft,
     .mode = SpeculationMode::kRejection,
     .max_step_tokens = 1024,
     .max_draft_rows = 96,
     .is_unread = true},
    {.name = "DraftUnreadWithLittleRoom",
     .method = SpeculationMethod::kDraft,
     .max_step_tokens = 72,
     .kv_cache_mb = 12,
     .max_draft_rows = 96,
     .is_unread = true},
    {.name = "BeamsByNgram", .is_beams = true},
    {.name = "BeamsByNgramWithLittleRoom",
     .max_step_tokens = 72,
     .kv_cache_mb = 12,
     .is_beams = true},
    // Six beams whose paths have 54 rows of logits, of 366 candidates each; a
    // step of so many rows has 10,368 candidates.
    {.name = "BeamsByNgramWithoutCandidates",
     .max_step_tokens = 72,
     .is_beams = true,
     .num_stop_ids = 60},
    {.name = "NgramAfterLongPrompts", .num_repeats = 8},
    {.name = "BeamsByNgramAfterLongPrompts",
     .is_beams = true,
     .num_repeats = 8},
    {.name = "BeamsByDraft",
     .method = SpeculationMethod::kDraft,
     .max_draft_rows = 96,
     .is_beams = true},
    {.name = "BeamsByDraftWithLittleRoom",
     .method = SpeculationMethod::kDraft,
     .max_step_tokens = 72,
     .kv_cache_mb = 12,
     .is_beams = true},
    {.name = "DraftOnTheHost",
     .method = SpeculationMethod::kDraft,
     .drafts_on_host = true},
    {.name = "DraftOnTheHostByRejection",
     .method = SpeculationMethod::kDraft,
     .mode = SpeculationMode::kRejection,
     .max_step_tokens = 1024,
     .drafts_on_host = true}};

// Counts answers that say that a step did not verify its drafts.
class UnverifiedCounter : public StepExecutor {
 public:
  UnverifiedCounter(std::shared_ptr<StepExecutor> steps,
                    std::atomic<int>* count)
      : steps_(std::move(steps)), count_(*count) {}
  const ModelDescription& description() const override {
    return steps_->description();
  }
  int max_plans_in_flight() const override {
    return steps_->max_plans_in_flight();
  }
  void Execute(StepPlan plan, Done done) override {
    steps_->Execute(std::move(plan), [this, done = std::move(done)](
                                         absl::StatusOr<StepResult> result) {
      if (result.ok()) {
        count_ += static_cast<int>(std::ranges::count_if(
            result->selections, &SelectionResult::has_unverified_drafts));
      }
      done(std::move(result));
    });
  }

 private:
  const std::shared_ptr<StepExecutor> steps_;
  std::atomic<int>& count_;
};

class CudaSpeculationTest
    : public CudaExecutorTest,
      public ::testing::WithParamInterface<CudaSpeculationCase> {
 protected:
  static CudaTransformerOptions Options() {
    CudaTransformerOptions options = Float32();
    options.max_tokens = GetParam().max_step_tokens;
    options.max_logits = GetParam().max_step_tokens;
    if (GetParam().mode == SpeculationMode::kRejection) {
      // All drafts have room, with the rows that they were drawn from: what is
      // drawn depends on which are verified.
      options.max_tokens = options.max_logits *= 2;
    }
    options.kv_cache_bytes = GetParam().kv_cache_mb << 20;
    return options;
  }

  // The model drafts for itself, in calls of few tokens.
  std::unique_ptr<DraftModel> LoadDraftModel() {
    CudaTransformerOptions options = Options();
    options.max_tokens = std::max(48, 2 * GetParam().max_draft_rows);
    options.max_logits = GetParam().max_draft_rows;
    auto transformer =
        CudaTransformer::Load(SourcePath("models/en-fr"), options, *device_);
    EXPECT_OK(transformer.status());
    const std::shared_ptr<CudaModel> loaded = *std::move(transformer);
    auto model = CudaBlockingModel::Create(loaded);
    EXPECT_OK(model.status());
    std::shared_ptr<DraftSampler> sampler;
    if (!GetParam().drafts_on_host) {
      auto created = CudaDraftSampler::Create(loaded);
      EXPECT_OK(created.status());
      sampler = sampler_ = *std::move(created);
    }
    auto draft = DraftModel::Create(*std::move(model), *pool_, sampler);
    EXPECT_OK(draft.status());
    return *std::move(draft);
  }

  // Greedy ones and samples, with texts that repeat; others that do not
  // speculate between them.
  static std::vector<Request> AnyRequestsThatRepeat(
      int count, const ModelDescription& model) {
    std::mt19937 random(GetParam().max_step_tokens);
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) {
      Request request = AnyRequest(random);
      if (random() % 4 == 0) {
        requests.push_back(std::move(request));
        continue;
      }
      const GenerationParams old = std::exchange(request.params, {});
      GenerationParams& params = request.params;
      const bool reads_text = !GetParam().is_unread;
      if (reads_text) params.repetition_penalty = old.repetition_penalty;
      params.suppress_tokens = old.suppress_tokens;
      params.max_new_tokens = 10 + static_cast<int>(random() % Cases(40, 8));
      if (random() % 5 == 0) params.min_new_tokens = 7;
      if (random() % 5 == 0 && reads_text) params.frequency_penalty = 0.1;
      if (random() % 5 == 0 && reads_text) {
        params.bad_words_ids = {{262}, {17, 300}};
      }
      if (random() % 3 == 0) params.logprobs = random() % 4;
      if (GetParam().is_beams) {
        params.num_beams = 2 + static_cast<int>(random() % 5);
        params.num_return_sequences = 1 + random() % params.num_beams;
        if (random() % 2 == 0) params.early_stopping = EarlyStopping::kTrue;
        for (int id = 0; id < GetParam().num_stop_ids; ++id) {
          params.stop_token_ids.push_back(100 * id + 3);
        }
      } else if (random() % 2 == 0) {
        params.do_sample = true;
        params.num_return_sequences = 1 + static_cast<int>(random() % 4);
        params.temperature = 0.5;
        params.seed = random();
        if (random() % 2 == 0) params.top_k = 20;
        if (random() % 3 == 0) params.top_p = 0.9;
      }
      const std::vector<TokenId> prompt = request.prompt_tokens;
      for (int copy = 1; copy < GetParam().num_repeats; ++copy) {
        request.prompt_tokens.insert(request.prompt_tokens.end(),
                                     prompt.begin(), prompt.end());
      }
      params.speculate = {.method = GetParam().method,
                          .num_tokens = 1 + static_cast<int>(random() % 8),
                          .mode = GetParam().mode,
                          .always_drafts = GetParam().is_beams};
      EXPECT_OK(ValidateRequest(model, &request));
      requests.push_back(std::move(request));
    }
    return requests;
  }

  static Answers Run(StepExecutor& steps,
                     const std::vector<Request>& requests) {
    return Drive(steps, requests,
                 {.num_in_flight = 2,
                  .scheduler = {.max_running = 24,
                                .max_step_tokens = GetParam().max_step_tokens,
                                .validate_steps = true}});
  }

  static bool SameHypotheses(const Result& a, const Result& b) {
    if (a.hypotheses.size() != b.hypotheses.size()) return false;
    for (size_t rank = 0; rank < a.hypotheses.size(); ++rank) {
      const Hypothesis& x = a.hypotheses[rank];
      const Hypothesis& y = b.hypotheses[rank];
      if (x.tokens != y.tokens || !Close(x.score, y.score) ||
          x.logprobs.size() != y.logprobs.size()) {
        return false;
      }
      for (size_t i = 0; i < x.logprobs.size(); ++i) {
        if (!Close(x.logprobs[i].log_prob, y.logprobs[i].log_prob) ||
            x.logprobs[i].token != y.logprobs[i].token) {
          return false;
        }
      }
    }
    return true;
  }

  // Runs the requests on the host, with a draft model as on the device: the
  // sampled tokens depend on which steps have drafts.
  static Answers RunOnHost(const std::vector<Request>& requests) {
    ModelExecutorOptions options = {.run_ahead = true};
    if (GetParam().method == SpeculationMethod::kDraft) {
      auto loaded =
          TransformerModel::Load(SourcePath("models/en-fr"), {}, *pool_);
      EXPECT_OK(loaded.status());
      options.draft_model = *std::move(loaded);
    }
    return Run(*MakeExecutor(host_, *pool_, options), requests);
  }

  // Returns the expected answers to `requests`.
  static Answers Expected(StepExecutor& steps, std::vector<Request> requests) {
    if (GetParam().mode == SpeculationMode::kRejection) {
      return RunOnHost(requests);
    }
    for (Request& request : requests) request.params.speculate.reset();
    return Run(steps, requests);
  }

  std::shared_ptr<CudaDraftSampler> sampler_;  // set by LoadDraftModel
};

TEST_P(CudaSpeculationTest, TokensAreThoseOfPlainDecodingOrOfTheHost) {
  CudaExecutorOptions executor;
  if (GetParam().method == SpeculationMethod::kDraft) {
    executor.draft_model = LoadDraftModel();
  }
  OnDevice device = Load(Options(), *device_, std::move(executor));
  ASSERT_NE(device.steps, nullptr);
  const CudaExecutor& figures = *device.steps;
  std::shared_ptr<StepExecutor> steps = std::move(device.steps);
  EXPECT_TRUE(steps->description().has_shareable_pages);
  std::atomic<int> num_unverified = 0;
  steps =
      std::make_shared<UnverifiedCounter>(std::move(steps), &num_unverified);
  const int count = Cases(120, 12);
  const std::vector<Request> requests =
      AnyRequestsThatRepeat(count, steps->description());
  const Answers speculated = Run(*steps, requests);
  PrintFigures(figures);
  if (GetParam().is_unread) {
    EXPECT_GE(sampler_->counts().num_unread_runs, Cases(20, 1));
  }
  const Answers expected = Expected(*steps, requests);
  int64_t num_drafted = 0;
  int64_t num_accepted = 0;
  int num_different = 0;
  for (int i = 0; i < count; ++i) {
    ASSERT_EQ(expected[i].status(), speculated[i].status()) << "request " << i;
    if (!expected[i].ok()) continue;
    num_different += !SameHypotheses(*expected[i], *speculated[i]);
    num_drafted += speculated[i]->usage.num_drafted_tokens;
    num_accepted += speculated[i]->usage.num_accepted_tokens;
  }
  std::printf(
      "%s: %ld of %ld drafts accepted, %d of %d requests different, %d answers "
      "without their drafts\n",
      GetParam().name, num_accepted, num_drafted, num_different, count,
      num_unverified.load());
  if (FewCases()) return;  // too few drafts in some cases
  if (GetParam().num_stop_ids > 0) {
    EXPECT_GT(num_unverified, 50);
  }
  EXPECT_LE(num_different, count / 30);
  EXPECT_GT(num_drafted, 300);
  // A model agrees with itself, but for rounding; its search takes paths, too,
  // that are pruned on the way.
  const bool is_by_model =
      GetParam().method == SpeculationMethod::kDraft && !GetParam().is_beams;
  EXPECT_GT(num_accepted, is_by_model ? num_drafted * 7 / 10 : 20);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CudaSpeculationTest, ::testing::ValuesIn(kSpeculationCases),
    [](const ::testing::TestParamInfo<CudaSpeculationCase>& tested) {
      return std::string(tested.param.name);
    });

// By rejection, where how many tokens are drafted does not depend on the clock.
TEST_F(CudaExecutorTest, StepsThatVerifyDraftsAreReplayedFromGraphs) {
  const OnDevice replaying = Load(Float32());
  const OnDevice eager = Load(Float32(), *device_, {.max_graphs = 0});
  ASSERT_NE(replaying.steps, nullptr);
  ASSERT_NE(eager.steps, nullptr);
  const int num_requests = Cases(12, 4);
  int64_t num_drafted = 0;
  for (int i = 0; i < num_requests; ++i) {
    Request request;
    for (int t = 0; t < 24; ++t) request.prompt_tokens.push_back(5 + t % 6);
    GenerationParams& params = request.params;
    params.max_new_tokens = 40;
    params.min_new_tokens = 40;
    params.do_sample = true;
    params.temperature = i % 2 == 0 ? 0.4 : 0.8;
    params.seed = i;
    params.num_return_sequences = 1 + i % 4;
    if (i % 3 == 1) params.frequency_penalty = 0.1;
    if (i % 4 == 2) params.logprobs = 2;
    params.speculate = {.method = SpeculationMethod::kNgram,
                        .num_tokens = 1 + i % 5,
                        .mode = SpeculationMode::kRejection};
    ASSERT_OK(ValidateRequest(eager.steps->description(), &request));
    const Answers expected = Drive(*eager.steps, {request}, {});
    const int64_t num_steps = replaying.steps->figures().num_steps;
    const int64_t num_launches = replaying.steps->figures().num_graph_launches;
    const Answers actual = Drive(*replaying.steps, {request}, {});
    ExpectEqual(expected, actual);
    // All but the prompt's.
    const CudaExecutorFigures figures = replaying.steps->figures();
    EXPECT_EQ(figures.num_graph_launches - num_launches,
              figures.num_steps - num_steps - 1);
    ASSERT_OK(actual[0].status());
    num_drafted += actual[0]->usage.num_drafted_tokens;
  }
  PrintFigures(*replaying.steps);
  EXPECT_GT(num_drafted, 20 * num_requests);
  EXPECT_EQ(eager.steps->figures().num_graph_launches, 0);
  EXPECT_LT(replaying.steps->figures().num_graphs, 40);
}

// The model on the device, run plan by plan in calls that are smaller than the
// plans, against the one on the host.
class CudaBlockingModelTest : public CudaExecutorTest {};

TEST_F(CudaBlockingModelTest, LogitsAreThoseOfTheHost) {
  CudaTransformerOptions options = Float32();
  options.max_tokens = 7;
  options.max_logits = 3;
  auto transformer =
      CudaTransformer::Load(SourcePath("models/en-fr"), options, *device_);
  ASSERT_OK(transformer.status());
  auto model = CudaBlockingModel::Create(*std::move(transformer));
  ASSERT_OK(model.status());
  const int vocab_size = host_->description().vocab_size;
  std::mt19937 random(1);
  StepPlan plan;
  int page = 0;
  for (int r = 0; r < 9; ++r) {
    const int num_tokens = 1 + static_cast<int>(random() % 30);
    const int num_logits =
        static_cast<int>(random() % std::min(num_tokens + 1, 9));
    plan.rows.push_back({.first_token = static_cast<int>(plan.tokens.size()),
                         .num_tokens = num_tokens,
                         .num_logits = num_logits,
                         .first_logits = plan.num_logits});
    plan.num_logits += num_logits;
    for (int i = 0; i < num_tokens; ++i) {
      plan.tokens.push_back(3 + static_cast<int>(random() % (vocab_size - 3)));
      if (i % 16 == 0) plan.page_indices.push_back(PageId{page++});
    }
    plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
  }
  const size_t size = size_t{1} * plan.num_logits * vocab_size;
  std::vector<float> expected(size);
  std::vector<float> actual(size);
  ASSERT_OK(host_->Forward(plan, expected));
  ASSERT_OK((*model)->Forward(plan, actual));
  int num_far = 0;
  for (size_t i = 0; i < size; ++i) {
    num_far += std::abs(expected[i] - actual[i]) > 1e-3f;
  }
  EXPECT_EQ(num_far, 0);
  // A copy of a tail, of seven tokens.
  StepPlan copy;
  copy.page_copies = {{.from = PageId{0}, .to = PageId{page}, .num_tokens = 7}};
  EXPECT_OK((*model)->Forward(copy, {}));
}

}  // namespace
}  // namespace espalier::testing
