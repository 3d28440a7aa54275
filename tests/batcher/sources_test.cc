// Requests of an encoder-decoder model: which tokens of their sources are read,
// and how often, their usage, and their errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/page_count.h"
#include "batcher/engine.h"
#include "batcher/scheduler/scheduler.h"
#include "beam/pages/group_pages.h"
#include "executor/drafts/draft_model.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "tests/batcher/generate_all.h"
#include "tests/batcher/toy_requests.h"
#include "tests/family_models.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::ExpectNothingHeld;
using ::espalier::testing::FamilyPath;
using ::espalier::testing::GenerateAll;
using ::espalier::testing::MakeExecutor;
using ::espalier::testing::MakePool;
using ::espalier::testing::RunToEnd;
using ::espalier::testing::SameHypotheses;
using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A model that notes what its encoder reads, and checks the pages of sources.
class ReadingModel : public Model {
 public:
  explicit ReadingModel(int page_size, int64_t host_cache_bytes = 0)
      : model_(*TransformerModel::Load(FamilyPath("marian"),
                                       {.page_size = page_size,
                                        .kv_cache_bytes = 4 << 20,
                                        .host_cache_bytes = host_cache_bytes},
                                       MakePool(1))) {}

  const ModelDescription& description() const override {
    return model_->description();
  }
  absl::Status Forward(const StepPlan& plan, std::span<float> logits) override {
    for (const PlanSource& source : plan.sources) {
      if (!source.is_read()) continue;
      num_read.push_back(source.input->length());
      num_completed += source.num_stored > 0;
    }
    step_tokens.push_back(
        static_cast<int>(std::ssize(plan.tokens) + plan.NumSourceTokens()));
    CheckPages(plan);
    return model_->Forward(plan, logits);
  }

  std::vector<int> num_read;  // tokens of each source, as they are read
  int num_completed = 0;      // sources with a part stored before
  std::vector<int> step_tokens;
  // Pairs of entries in one plan that have the same pages.
  int num_shared = 0;

 private:
  // A page of a source is in no row's table and serves no other source. One
  // that is written now serves this entry alone.
  void CheckPages(const StepPlan& plan) {
    std::map<PageId, const PlanSource*> owners;
    for (const PlanSource& source : plan.sources) {
      ASSERT_EQ(std::ssize(*source.pages),
                NumPages(source.input->length(), description().page_size));
      for (const PageId page : *source.pages) {
        const auto [owner, is_new] = owners.try_emplace(page, &source);
        if (is_new) continue;
        const PlanSource& other = *owner->second;
        ASSERT_EQ(other.input->content_hash(), source.input->content_hash());
        ASSERT_FALSE(source.is_read() || other.is_read());
        if (page == source.pages->front()) ++num_shared;
      }
    }
    for (const PageId page : plan.page_indices) {
      ASSERT_FALSE(owners.contains(page)) << page;
    }
    for (size_t row = 0; row < plan.rows.size(); ++row) {
      ASSERT_NE(plan.source_of(row), nullptr);
    }
  }

  std::unique_ptr<TransformerModel> model_;
};

Request Translate(std::vector<TokenId> source) {
  Request request;
  request.prompt_tokens = std::move(source);
  request.params.num_beams = 4;
  request.params.max_new_tokens = 8;
  request.params.ignore_eos = true;
  return request;
}

std::vector<TokenId> TokensUpTo(int count, TokenId last) {
  std::vector<TokenId> tokens;
  for (int i = 1; i < count; ++i) tokens.push_back(10 + i % 40);
  tokens.push_back(last);
  return tokens;
}

// The results of requests that arrive together.
std::vector<Result> RunTogether(Scheduler& scheduler, Model& model,
                                std::vector<Request> requests) {
  std::vector<Result> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_OK(ValidateRequest(model.description(), &requests[i]));
    static int64_t next_id = 0;
    scheduler.Submit(
        RequestId{next_id++},
        PreparedRequest(requests[i], nullptr, &model.description()),
        [&to = results[i]](absl::StatusOr<Result> from) {
          ASSERT_OK(from);
          to = *std::move(from);
        });
  }
  RunToEnd(scheduler, model);
  return results;
}

TEST(SourcesTest, EqualSourcesAreReadOnceAndOthersShareNothing) {
  ReadingModel model(/*page_size=*/4);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  // All but the last begin alike, and differ in the last token.
  const Request request = Translate(TokensUpTo(11, 5));
  const auto together =
      RunTogether(scheduler, model,
                  {request, request, Translate(TokensUpTo(11, 6)),
                   Translate(TokensUpTo(10, 19)), request});
  EXPECT_THAT(model.num_read, ElementsAre(11, 11, 10));
  EXPECT_EQ(together[0].usage.num_prompt_tokens, 11);
  EXPECT_EQ(together[0].usage.num_cached_tokens, 0);
  EXPECT_EQ(together[1].usage.num_cached_tokens, 11);
  EXPECT_EQ(together[2].usage.num_cached_tokens, 0);
  EXPECT_EQ(together[3].usage.num_cached_tokens, 0);
  EXPECT_TRUE(SameHypotheses(together[0], together[4]));

  Request salted = request;
  salted.params.cache_salt = "another";
  Request unshared = request;
  unshared.params.prefix_cache = false;
  const auto later = RunTogether(scheduler, model, {request, salted, unshared});
  EXPECT_THAT(model.num_read, ElementsAre(11, 11, 10, 11, 11));
  EXPECT_EQ(later[0].usage.num_cached_tokens, 11);
  for (const Result& result : later) {
    EXPECT_TRUE(SameHypotheses(result, together[0]));
  }
  // Neither padding nor what decoders begin with is of a prompt.
  const SchedulerStats& stats = scheduler.stats();
  EXPECT_EQ(stats.num_prompt_tokens, 11 + 11 + 10 + 11 + 11);
  EXPECT_EQ(stats.num_cached_tokens, 11 + 11 + 11);
  EXPECT_EQ(stats.num_queried_tokens, 11 + 11 + 11 + 10 + 11 + 11 + 11);
  ExpectNothingHeld(scheduler);
}

TEST(SourcesTest, EqualSourcesShareTheirPagesUnlessTheirSaltsDiffer) {
  ReadingModel model(/*page_size=*/4);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  const Request request = Translate(TokensUpTo(11, 5));
  RunTogether(scheduler, model, {request, request});
  EXPECT_GT(model.num_shared, 0);
  EXPECT_THAT(model.num_read, ElementsAre(11));
  // The pages outlive their requests: three of the source.
  EXPECT_GE(scheduler.tree().num_pages(), 3);

  model.num_shared = 0;
  Request salted = request;
  salted.params.cache_salt = "a";
  Request unshared = request;
  unshared.params.prefix_cache = false;
  RunTogether(scheduler, model, {request, salted, unshared, unshared});
  EXPECT_EQ(model.num_shared, 0);
  EXPECT_THAT(model.num_read, ElementsAre(11, 11, 11, 11));
  ExpectNothingHeld(scheduler);
}

// Whose salts and sources, one after the other, are the same bytes.
TEST(SourcesTest, NoSaltIsTakenForPartOfASource) {
  ReadingModel model(/*page_size=*/1);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Request a = Translate({1, 7});
  Request b = Translate({7});
  b.params.cache_salt = std::string("\x01\0\0\0", 4);
  RunTogether(scheduler, model, {a});
  RunTogether(scheduler, model, {b});
  EXPECT_THAT(model.num_read, ElementsAre(2, 1));
}

TEST(SourcesTest, AnEngineThatRunsAheadAnswersTheSame) {
  ReadingModel model(/*page_size=*/4);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) requests.push_back(Translate({7, 8, 9, 10 + i}));
  const auto expected = RunTogether(scheduler, model, requests);
  const auto results =
      GenerateAll(MakeExecutor(&model, MakePool(1), {.run_ahead = true}),
                  requests, {{.validate_steps = true}});
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::StatusOr<Result>& result = results[i];
    ASSERT_OK(result);
    EXPECT_TRUE(SameHypotheses(*result, expected[i]));
    EXPECT_EQ(result->usage.num_prompt_tokens, 4);
  }
}

TEST(SourcesTest, ASourceOfMoreTokensThanAStepHasIsReadAtOnce) {
  ReadingModel model(/*page_size=*/4);
  const Request request = Translate(TokensUpTo(50, 5));
  Scheduler wide(model.description(), {.validate_steps = true});
  const auto expected = RunTogether(wide, model, {request});
  model.num_read.clear();
  model.step_tokens.clear();
  Scheduler narrow(model.description(),
                   {.max_step_tokens = 8, .validate_steps = true});
  const auto results = RunTogether(
      narrow, model, {Translate({7, 8}), request, Translate({9, 8})});
  EXPECT_TRUE(SameHypotheses(results[1], expected[0]));
  EXPECT_EQ(std::ranges::count(model.num_read, 50), 1);
  // With the decoder's first token.
  EXPECT_LE(std::ranges::max(model.step_tokens), 8 + 51);
}

Request GoOnFrom(Request request, std::vector<int64_t> tokens) {
  request.params.decoder_prompt_tokens = std::move(tokens);
  return request;
}

std::vector<int64_t> DecoderTokens(int count) {
  std::vector<int64_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(11 + i * 7 % 50);
  return tokens;
}

// Also where the tokens begin with the decoder's start, 3.
TEST(SourcesTest, WhatADecoderPromptBeginsGoesOnAsItWas) {
  ReadingModel model(/*page_size=*/4);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  Request request = Translate(TokensUpTo(11, 5));
  request.params.num_beams = 1;
  request.params.logprobs = 2;
  const Result whole = RunTogether(scheduler, model, {request})[0];
  const Hypothesis& all = whole.hypotheses[0];
  for (const int count : {1, 3, 7}) {
    std::vector<int64_t> begun(all.tokens.begin(), all.tokens.begin() + count);
    request.params.max_new_tokens = 8 - count;
    const Request plain = GoOnFrom(request, begun);
    begun.insert(begun.begin(), 3);
    const auto rest =
        RunTogether(scheduler, model, {plain, GoOnFrom(request, begun)});
    const Hypothesis& found = rest[0].hypotheses[0];
    EXPECT_EQ(found.tokens, std::vector<TokenId>(all.tokens.begin() + count,
                                                 all.tokens.end()));
    EXPECT_EQ(found.logprobs,
              std::vector<TokenLogProb>(all.logprobs.begin() + count,
                                        all.logprobs.end()));
    EXPECT_TRUE(SameHypotheses(rest[0], rest[1]));
    EXPECT_EQ(rest[0].usage.num_prompt_tokens, 11);
    EXPECT_EQ(rest[0].usage.num_generated_tokens, 8 - count);
  }
}

TEST(SourcesTest, ALongDecoderPromptIsFedInChunks) {
  ReadingModel model(/*page_size=*/4);
  const Request request =
      GoOnFrom(Translate(TokensUpTo(50, 5)), DecoderTokens(40));
  Scheduler wide(model.description(), {.validate_steps = true});
  const auto expected = RunTogether(wide, model, {request});
  EXPECT_EQ(std::ranges::max(model.step_tokens), 50 + 41);
  model.num_read.clear();
  model.step_tokens.clear();
  Scheduler narrow(model.description(),
                   {.max_step_tokens = 8, .validate_steps = true});
  const auto results = RunTogether(narrow, model, {request});
  EXPECT_TRUE(SameHypotheses(results[0], expected[0]));
  EXPECT_THAT(model.num_read, ElementsAre(50));
  EXPECT_EQ(model.step_tokens.front(), 50 + 1);
  EXPECT_EQ(
      *std::max_element(model.step_tokens.begin() + 1, model.step_tokens.end()),
      8);
}

TEST(SourcesTest, DecoderPromptsAreSharedAmongThoseOfOneSource) {
  ReadingModel model(/*page_size=*/4);
  Scheduler scheduler(model.description(), {.validate_steps = true});
  const auto first_step = [&](const Request& request) {
    model.step_tokens.clear();
    RunTogether(scheduler, model, {request});
    return model.step_tokens.front();
  };
  const Request source = Translate(TokensUpTo(11, 5));
  const Request request = GoOnFrom(source, DecoderTokens(14));
  // Source, start, decoder prompt.
  EXPECT_EQ(first_step(request), 11 + 1 + 14);
  // Its 15 tokens are on three full pages; a fourth has been copied, but for
  // the last token, which is fed for its logits.
  EXPECT_EQ(first_step(request), 1);
  // Another beginning has the first page, of another the source alone.
  std::vector<int64_t> other = DecoderTokens(14);
  other[5] = 9;
  EXPECT_EQ(first_step(GoOnFrom(source, other)), 15 - 6);
  other[0] = 9;
  EXPECT_EQ(first_step(GoOnFrom(source, other)), 15 - 1);
  EXPECT_THAT(model.num_read, ElementsAre(11));
  // Pages of another source are not reused.
  EXPECT_EQ(
      first_step(GoOnFrom(Translate(TokensUpTo(11, 6)), DecoderTokens(14))),
      11 + 1 + 14);
  ExpectNothingHeld(scheduler);
}

// Sources that end on a page's last place and beside it.
std::vector<Request> RequestsOfAllLengths(int max_new_tokens) {
  std::vector<Request> requests;
  for (const int length : {1, 3, 4, 5, 15, 16, 17, 31, 32, 33, 64}) {
    requests.push_back(Translate(TokensUpTo(length, 5)));
    requests.push_back(
        GoOnFrom(requests.back(), DecoderTokens(3 + length % 16)));
    requests.back().params.num_beams = 2;
  }
  for (Request& request : requests) {
    request.params.max_new_tokens = max_new_tokens;
  }
  return requests;
}

TEST(SourcesTest, PageSizesChangeNoHypothesis) {
  const std::vector<Request> requests = RequestsOfAllLengths(8);
  std::vector<Result> expected;
  for (const int page_size : {1, 3, 4, 16}) {
    ReadingModel model(page_size);
    Scheduler scheduler(model.description(), {.validate_steps = true});
    for (int round = 0; round < 2; ++round) {
      const auto results = RunTogether(scheduler, model, requests);
      if (expected.empty()) expected = results;
      for (size_t i = 0; i < requests.size(); ++i) {
        EXPECT_TRUE(SameHypotheses(results[i], expected[i])) << page_size;
      }
    }
    EXPECT_EQ(std::ssize(model.num_read), std::ssize(requests) / 2);
    ExpectNothingHeld(scheduler);
  }
}

// Returns the most pages that one of these requests needs.
int64_t MostPages(const Model& model, std::vector<Request> requests) {
  int64_t most = 0;
  for (Request& request : requests) {
    EXPECT_OK(ValidateRequest(model.description(), &request));
    const PreparedRequest prepared(request, nullptr, &model.description());
    most = std::max(most, GroupPages::WorstCase(prepared.request,
                                                model.description().page_size,
                                                prepared.source_length()));
  }
  return most;
}

// In few pages requests are preempted, and their sources evicted: they are read
// again or loaded from host memory.
TEST(SourcesTest, PreemptedRequestsResumeWithTheirSources) {
  std::vector<Request> requests = RequestsOfAllLengths(24);
  for (const int page_size : {1, 4, 16}) {
    for (const bool is_shared : {true, false}) {
      for (Request& request : requests) {
        request.params.prefix_cache = is_shared;
      }
      std::vector<Result> expected;
      for (const int host_cache_bytes : {0, 1 << 20}) {
        SCOPED_TRACE(::testing::Message() << page_size << " " << is_shared
                                          << " " << host_cache_bytes);
        ReadingModel model(page_size, host_cache_bytes);
        if (expected.empty()) {
          Scheduler wide(model.description(), {});
          expected = RunTogether(wide, model, requests);
          model.num_read.clear();
        }
        ModelDescription narrow = model.description();
        narrow.num_pages = static_cast<int>(MostPages(model, requests));
        Scheduler scheduler(narrow, {.validate_steps = true});
        const auto results = RunTogether(scheduler, model, requests);
        for (size_t i = 0; i < requests.size(); ++i) {
          EXPECT_TRUE(SameHypotheses(results[i], expected[i])) << i;
        }
        const SchedulerStats& stats = scheduler.stats();
        EXPECT_GT(stats.num_preemptions, 0);
        if (host_cache_bytes == 0) {
          EXPECT_GT(stats.num_tokens_fed_again + stats.num_tokens_shared_again,
                    0);
          EXPECT_GE(std::ssize(model.num_read), is_shared
                                                    ? std::ssize(requests) / 2
                                                    : std::ssize(requests) + 1);
        } else {
          EXPECT_GT(stats.num_swapped_pages_in, 0);
        }
        // Each source is counted once, however often it is read.
        int64_t num_tokens = 0;
        for (const Request& request : requests) {
          num_tokens += std::ssize(request.prompt_tokens);
        }
        EXPECT_EQ(stats.num_prompt_tokens + stats.num_cached_tokens,
                  num_tokens);
        ExpectNothingHeld(scheduler);
      }
    }
  }
}

// One request at a time, in so few pages that each evicts others' pages.
class EvictedSourcesTest : public ::testing::Test {
 protected:
  EvictedSourcesTest() {
    for (int i = 0; i < 8; ++i) {
      const int length = 4 * (i + 3) + i % 3;
      requests_.push_back(Translate(TokensUpTo(length, 20 + i)));
    }
    Scheduler wide(model_.description(), {});
    expected_ = RunTogether(wide, model_, requests_);
    model_.num_read.clear();
    description_ = model_.description();
    description_.num_pages = static_cast<int>(MostPages(model_, requests_)) + 8;
  }

  void Run(Scheduler& scheduler, int request) {
    const auto results = RunTogether(scheduler, model_, {requests_[request]});
    EXPECT_TRUE(SameHypotheses(results[0], expected_[request])) << request;
  }

  ReadingModel model_{/*page_size=*/4};
  ModelDescription description_;
  std::vector<Request> requests_;
  std::vector<Result> expected_;
};

TEST_F(EvictedSourcesTest, DecoderPagesAreEvictedBeforeTheirSource) {
  description_.num_pages += 2;
  Scheduler scheduler(description_, {.validate_steps = true});
  for (const int request : {6, 7, 6, 7, 6, 7}) Run(scheduler, request);
  EXPECT_GT(scheduler.tree().num_evicted(), 0);
  EXPECT_THAT(model_.num_read, ElementsAre(36, 41));
}

TEST_F(EvictedSourcesTest, APartThatIsLeftIsReusedAndCountedOnce) {
  for (int round = 0; round < 8; ++round) {
    ++description_.num_pages;
    Scheduler scheduler(description_, {.validate_steps = true});
    int64_t num_tokens = 0;
    for (int i = 0; i < 40; ++i) {
      const int request = (i * i + i / 7) % 8;
      Run(scheduler, request);
      num_tokens += std::ssize(requests_[request].prompt_tokens);
      const SchedulerStats& stats = scheduler.stats();
      ASSERT_EQ(stats.num_prompt_tokens + stats.num_cached_tokens, num_tokens);
    }
  }
  EXPECT_GT(model_.num_completed, 0);
}

TEST_F(EvictedSourcesTest, PagesWithoutSharingIncludeEachBeamsSource) {
  Scheduler scheduler(description_, {});
  Run(scheduler, 7);  // 40 tokens
  EXPECT_GT(scheduler.stats().peak_unshared_pages, 4 * 40 / 4);
}

TEST(SourcesTest, ASourceThatNoPagesHoldIsRefused) {
  ReadingModel model(/*page_size=*/4);
  ModelDescription narrow = model.description();
  Request request = Translate(TokensUpTo(33, 5));
  request.params.num_beams = 1;
  narrow.num_pages = static_cast<int>(MostPages(model, {request}));
  EXPECT_EQ(narrow.num_pages, 9 + 2);
  ASSERT_OK(ValidateRequest(model.description(), &request));
  for (const int num_missing : {0, 1}) {
    narrow.num_pages -= num_missing;
    Scheduler scheduler(narrow, {.validate_steps = true});
    absl::Status status = absl::UnknownError("none");
    scheduler.Submit(
        RequestId{1}, PreparedRequest(request, nullptr, &model.description()),
        [&](absl::StatusOr<Result> result) { status = result.status(); });
    RunToEnd(scheduler, model);
    if (num_missing == 0) {
      EXPECT_OK(status);
    } else {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                   HasSubstr("it needs 11 pages of 4 tokens "
                                             "at worst (33 prompt tokens")));
    }
  }
}

TEST(SourcesTest, WhatIsTooLongOrHasNoMeaningIsRefused) {
  ReadingModel model(/*page_size=*/4);
  const auto check = [&](const Request& from) {
    Request request = from;
    return ValidateRequest(model.description(), &request);
  };
  EXPECT_OK(check(Translate(TokensUpTo(64, 5))));
  EXPECT_THAT(check(Translate(TokensUpTo(65, 5))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "the prompt has 65 tokens, and the model's encoder "
                       "reads at most 64"));
  Request request = Translate({7});
  request.params.max_new_tokens = 63;
  EXPECT_OK(check(request));
  request.params.max_new_tokens = 64;
  EXPECT_THAT(
      check(request),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("max_new_tokens must be at most 63 (the decoder's "
                         "context of 64 less 1 token that it begins with), "
                         "got 64")));
  request = Translate({7});
  request.params.prompt_logprobs = 0;
  EXPECT_THAT(check(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("prompt_logprobs must be")));
}

TEST(SourcesTest, DraftModelsWithOrBesideAnEncoderAreRefused) {
  const auto model = std::make_shared<ReadingModel>(4);
  EXPECT_THAT(DraftModel::Create(model, MakePool(1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "draft_model must name a model without an encoder"));
  EXPECT_THAT(ModelExecutor::Create(model, MakePool(1), {.draft_model = model}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("draft_model must be unset for a model with "
                                 "an encoder: ")));
  ModelDescription description = model->description();
  Request request = Translate({7});
  request.params.speculate = {.method = SpeculationMethod::kDraft};
  EXPECT_THAT(
      ValidateRequest(description, &request),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          "speculate.method must be \"ngram\", \"suffix\", \"constraint\" or "
          "\"off\" for a model with an encoder, got \"draft\""));
}

TEST(SourcesTest, DescriptionsThatNoEngineCanRunAreRefused) {
  ModelDescription model = ReadingModel(4).description();
  EXPECT_OK(CheckDescription(model));
  const auto refuses = [&](auto change, const char* message) {
    ModelDescription changed = model;
    change(changed);
    EXPECT_THAT(
        CheckDescription(changed),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refuses([](auto& m) { m.encoder->max_source_tokens = 0; },
          "encoder.max_source_tokens must be at least 1, got 0");
  refuses([](auto& m) { m.encoder->features = {.num_rows = 0, .num_cols = 3}; },
          "encoder.features.num_rows must be at least 1, got 0");
  refuses([](auto& m) { m.encoder->features = {.num_rows = 3, .num_cols = 0}; },
          "encoder.features.num_cols must be at least 1, got 0");
  refuses([](auto& m) { m.encoder->decoder_prompt.clear(); },
          "encoder.decoder_prompt must not be empty");
  refuses([](auto& m) { m.encoder->decoder_prompt = {64}; },
          "encoder.decoder_prompt must be token ids in [0, 64), got 64");
  refuses([](auto& m) { m.max_context = 1; },
          "max_context must be at least 2, got 1");
}

}  // namespace
}  // namespace espalier
