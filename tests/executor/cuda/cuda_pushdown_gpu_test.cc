// Texts of languages that recur or count on the device, which makes their masks
// and keeps their stacks, against those on the host, by lists of legal tokens:
// of searches, samples and drafts, alone, and in steps with texts without
// stacks, items and lists.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "constrain/item_catalogues.h"
#include "executor/cuda/cuda_blocking_model.h"
#include "executor/cuda/draft/cuda_draft_sampler.h"
#include "executor/drafts/draft_model.h"
#include "executor/host/model_executor.h"
#include "tests/constrain/token_lists.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {
namespace {

constexpr int kFirstWord = 300;  // those before are special, or bytes

class CudaPushdownTest : public CudaExecutorTest {
 protected:
  static void SetUpTestSuite() {
    CudaExecutorTest::SetUpTestSuite();
    auto tokenizer =
        Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    ASSERT_OK(tokenizer.status());
    tokenizer_ = new std::shared_ptr<Tokenizer>(*std::move(tokenizer));
  }
  static void TearDownTestSuite() {
    delete std::exchange(tokenizer_, nullptr);
    CudaExecutorTest::TearDownTestSuite();
  }

  static ConstraintParams AnyConstraint(std::mt19937& random) {
    // Texts differ in letters: those of brackets alone tie. Some languages need
    // a stack, some a counter, some both.
    const std::string schemas[] = {
        R"({"type": "object", "additionalProperties": false,
            "properties": {"le": {"$ref": "#"}, "chat": {"$ref": "#"},
                           "noir": {"type": "integer"}}})",
        R"({"type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": "array", "items": {"$ref": "#"}},
                           "b": {"type": "integer"}}})",
        R"({"type": "string", "maxLength": 100000})",
        R"({"type": "array", "items": {"type": "string", "maxLength": 2000}})",
        R"({"type": "array", "items": {"anyOf": [{"$ref": "#"},
            {"type": "string", "maxLength": 2000}]}})"};
    const std::string grammars[] = {
        "root ::= [a-z]+ (\"(\" root \")\" root)?",
        "root ::= [a-z ]* (\"<\" root \">\")?",
        "root ::= root \"+\" t | t\nt ::= [0-9]+ | \"(\" root \")\""};
    const std::string patterns[] = {R"("[^"]{0,100000}")",
                                    R"(\[("[^"]{3,9000}",)*\])",
                                    R"([a-z ]{2,8000}\.)"};
    ConstraintParams params;
    switch (random() % 5) {
      case 0:
        params.regex = patterns[random() % std::size(patterns)];
        break;
      case 1:
      case 2:
        params.json_schema = schemas[random() % std::size(schemas)];
        break;
      default:
        params.grammar = grammars[random() % std::size(grammars)];
    }
    return params;
  }

  static std::vector<Request> Requests(int count, uint32_t seed,
                                       bool draws = false) {
    std::mt19937 random(seed);
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      for (int t = 0; t < 5; ++t) {
        request.prompt_tokens.push_back(kFirstWord + random() % 5000);
      }
      GenerationParams& params = request.params;
      const int widths[] = {1, 2, 5, 16, 40};
      params.num_beams = params.num_return_sequences =
          widths[random() % std::size(widths)];
      params.early_stopping = EarlyStopping::kNever;
      params.max_new_tokens = 8 + random() % 30;
      params.constraint = AnyConstraint(random);
      if (draws) {
        params.do_sample = true;
        params.num_beams = 1;
        params.seed = random();
      }
      if (random() % 4 == 0) params.ignore_eos = true;
      if (random() % 4 == 0) params.logprobs = 1;
      if (random() % 4 == 0) params.repetition_penalty = 1.3;
      EXPECT_OK(ValidateRequest(host_->description(), &request));
    }
    return requests;
  }

  // Gives a request one of the strategies whose results the host ranks.
  static void MakeRanked(std::mt19937& random, GenerationParams* params) {
    params->num_beams = params->num_return_sequences = 2 * (1 + random() % 4);
    params->early_stopping = EarlyStopping::kFalse;
    switch (random() % 3) {
      case 0:
        params->num_beam_groups = 2;
        params->diversity_penalty = 0.7;
        return;
      case 1:
        params->do_sample = true;
        params->temperature = 1.2;
        break;
      default:
        params->stochastic = true;
    }
    params->seed = random();
    params->repetition_penalty = 1;
  }

  // Gives a request a constraint of another kind than those above, or none.
  static void MakeOther(std::mt19937& random, GenerationParams* params) {
    params->constraint.reset();
    switch (random() % 5) {
      case 0:
        params->constraint = ConstraintParams{.regex = "([A-Z][a-z]* ?)+"};
        return;
      case 1:
        params->constraint = ConstraintParams{.items = "ids"};
        return;
      case 2:  // needs several stacks
        params->constraint =
            ConstraintParams{.grammar = R"(root ::= "a" root "a" | "a")"};
        return;
      case 3:
        params->allowed_sequences = {{301, 302}, {301, 400, 17}, {900}};
        return;
      default:
        return;
    }
  }

  // Requests with and without stacks, by every strategy that does not sample.
  static std::vector<Request> MixedRequests(int count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Request> requests = Requests(count, seed);
    for (Request& request : requests) {
      GenerationParams& params = request.params;
      switch (random() % 5) {
        case 0:
          params.num_beams = params.num_return_sequences = 1;
          params.speculate = {.method = random() % 2 == 0
                                            ? SpeculationMethod::kConstraint
                                            : SpeculationMethod::kNgram,
                              .num_tokens = 1 + static_cast<int>(random() % 6),
                              .always_drafts = true};
          break;
        case 1:
          MakeRanked(random, &params);
          break;
        case 2:
          params.start_after = random() % 2 == 0 ? "e" : "s ";
          break;
        case 3:
          MakeOther(random, &params);
          break;
        default:
          break;
      }
      EXPECT_OK(ValidateRequest(host_->description(), &request));
    }
    return requests;
  }

  // Another model, which drafts on the same device.
  static std::unique_ptr<DraftModel> LoadDraftModel() {
    CudaTransformerOptions options = Float32();
    options.max_tokens = options.max_logits = 256;
    options.kv_cache_bytes = 128 << 20;
    auto loaded = CudaTransformer::Load(SourcePath("models/en-fr-draft"),
                                        options, *device_);
    EXPECT_OK(loaded.status());
    const std::shared_ptr<CudaModel> model = *std::move(loaded);
    auto blocking = CudaBlockingModel::Create(model);
    EXPECT_OK(blocking.status());
    auto sampler = CudaDraftSampler::Create(model);
    EXPECT_OK(sampler.status());
    auto draft =
        DraftModel::Create(*std::move(blocking), *pool_, *std::move(sampler));
    EXPECT_OK(draft.status());
    return *std::move(draft);
  }

  static DriveOptions Options(int num_in_flight) {
    return {.num_in_flight = num_in_flight,
            .scheduler = {.max_running = 64,
                          .max_step_tokens = 512,
                          .validate_steps = true},
            .tokenizer = *tokenizer_};
  }
  static DriveOptions OptionsWithItems(int num_in_flight) {
    DriveOptions options = Options(num_in_flight);
    std::mt19937 random(31);
    Lists ids;
    for (int i = 0; i < 2000; ++i) {
      std::vector<TokenId>& id = ids.emplace_back();
      for (int t = 0; t < 4; ++t) id.push_back(kFirstWord + random() % 5000);
    }
    auto items = std::make_shared<ItemCatalogues>();
    items->Put("ids", std::make_shared<const ItemCatalogue>(ListsOf(ids)));
    options.items = std::move(items);
    return options;
  }

  static std::shared_ptr<Tokenizer>* tokenizer_;
};

std::shared_ptr<Tokenizer>* CudaPushdownTest::tokenizer_ = nullptr;

TEST_F(CudaPushdownTest, TextsAreThoseOfTheHostWhetherStepsRunAheadOrNot) {
  const std::vector<Request> requests = Requests(Cases(60, 30), 5);
  const Answers expected =
      Drive(*MakeExecutor(host_, *pool_), requests, Options(1));
  OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  const Answers waiting = Drive(*device.steps, requests, Options(1));
  ExpectSame(expected, waiting, "waiting");
  const Answers ahead = Drive(*device.steps, requests, Options(2));
  ExpectSame(expected, ahead, "ahead");
}

// As many beams as a search may have, each with a state or count of its own.
TEST_F(CudaPushdownTest, TextsOfWideSearches) {
  std::vector<Request> requests;
  for (const ConstraintParams& constraint :
       {ConstraintParams{.regex = "([A-Z][a-z]* ?)+"},
        ConstraintParams{.regex = R"([a-z ]{2,80000}\.)"}}) {
    Request& request = requests.emplace_back();
    request.prompt_tokens = {kFirstWord + 7, kFirstWord + 70, kFirstWord + 700};
    GenerationParams& params = request.params;
    params.num_beams = Cases(5000, 1100);
    params.num_return_sequences = 50;
    params.early_stopping = EarlyStopping::kNever;
    params.max_new_tokens = 7;
    params.constraint = constraint;
    ASSERT_OK(ValidateRequest(host_->description(), &request));
  }
  CudaTransformerOptions options = Float32();
  options.max_tokens = options.max_logits = 5120;
  options.kv_cache_bytes = int64_t{4} << 30;
  OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  // A page for each beam.
  auto wide_host = TransformerModel::Load(
      SourcePath("models/en-fr"), {.kv_cache_bytes = int64_t{2} << 30}, *pool_);
  ASSERT_OK(wide_host.status());
  DriveOptions drive = Options(1);
  drive.scheduler.max_step_tokens = 5120;
  for (const Request& request : requests) {
    drive.num_in_flight = 1;
    const Answers expected =
        Drive(*MakeExecutor(wide_host->get(), *pool_), {request}, drive);
    const Answers waiting = Drive(*device.steps, {request}, drive);
    ExpectSame(expected, waiting, "wide, waiting");
    drive.num_in_flight = 2;
    const Answers ahead = Drive(*device.steps, {request}, drive);
    ExpectSame(expected, ahead, "wide, ahead");
  }
}

// Rounding may change what a sample draws, but not that its tokens are legal,
// which is validated.
TEST_F(CudaPushdownTest, SamplesAreTextsOfTheLanguage) {
  const std::vector<Request> requests =
      Requests(Cases(60, 8), 7, /*draws=*/true);
  OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  for (const int num_in_flight : {1, 2}) {
    const Answers answers =
        Drive(*device.steps, requests, Options(num_in_flight));
    for (const auto& answer : answers) {
      ASSERT_OK(answer.status());
      for (const Hypothesis& hypothesis : answer->hypotheses) {
        EXPECT_NE(hypothesis.finish_reason, FinishReason::kLength);
      }
    }
  }
}

TEST_F(CudaPushdownTest, StepsMixLanguagesAndStrategies) {
  const std::vector<Request> requests = MixedRequests(Cases(100, 30), 11);
  DriveOptions options = OptionsWithItems(1);
  const Answers expected =
      Drive(*MakeExecutor(host_, *pool_), requests, options);
  OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  Answers alone;
  for (const Request& request : requests) {
    alone.push_back(Drive(*device.steps, {request}, options)[0]);
  }
  ExpectSame(expected, alone, "alone");
  options.num_in_flight = 2;
  ExpectSame(expected, Drive(*device.steps, requests, options), "mixed");
}

// Drafts of any method change no token; by rejection all tokens are legal,
// which is validated. A draw within rounding of a border may be another.
TEST_F(CudaPushdownTest, DraftsAreVerifiedWithTheirStacks) {
  std::vector<Request> plain = Requests(Cases(90, 12), 8);
  std::mt19937 random(12);
  for (Request& request : plain) {
    GenerationParams& params = request.params;
    params.num_beams = params.num_return_sequences = 1;
    params.max_new_tokens = 20 + random() % 20;
    if (random() % 3 == 0) continue;
    params.do_sample = true;
    params.num_return_sequences = 1 + random() % 4;
    params.temperature = 0.7;
    params.seed = random();
  }
  const Answers expected =
      Drive(*MakeExecutor(host_, *pool_), plain, Options(1));
  OnDevice device =
      Load(Float32(), *device_, {.draft_model = LoadDraftModel()});
  ASSERT_NE(device.steps, nullptr);
  for (const SpeculationMethod method :
       {SpeculationMethod::kConstraint, SpeculationMethod::kNgram,
        SpeculationMethod::kDraft}) {
    for (const SpeculationMode mode :
         {SpeculationMode::kCoupled, SpeculationMode::kRejection}) {
      std::vector<Request> requests = plain;
      for (Request& request : requests) {
        request.params.speculate = {
            .method = method, .num_tokens = 4, .mode = mode};
        request.params.speculate->always_drafts = true;
        EXPECT_OK(ValidateRequest(device.steps->description(), &request));
      }
      const Answers answers = Drive(*device.steps, requests, Options(2));
      int num_drafted = 0;
      int num_accepted = 0;
      int num_different = 0;
      for (size_t i = 0; i < plain.size(); ++i) {
        ASSERT_OK(expected[i].status());
        ASSERT_OK(answers[i].status()) << "request " << i;
        num_drafted += answers[i]->usage.num_drafted_tokens;
        num_accepted += answers[i]->usage.num_accepted_tokens;
        const bool is_checked =
            mode == SpeculationMode::kCoupled || !plain[i].params.do_sample;
        for (size_t rank = 0;
             is_checked && rank < expected[i]->hypotheses.size(); ++rank) {
          num_different += answers[i]->hypotheses[rank].tokens !=
                           expected[i]->hypotheses[rank].tokens;
        }
      }
      std::printf("%s, %s: %d of %d drafts accepted, %d different\n",
                  std::string(NameOf(method)).c_str(),
                  std::string(NameOf(mode)).c_str(), num_accepted, num_drafted,
                  num_different);
      EXPECT_LE(num_different, std::ssize(plain) / 30);
      EXPECT_GT(num_accepted, 0);
    }
  }
}

// Beams move to other slots, and few pages preempt some, whose stacks are sent
// again.
TEST_F(CudaPushdownTest, StacksMoveWithTheirBeams) {
  std::vector<Request> requests = Requests(Cases(40, 30), 6);
  for (Request& request : requests) {
    GenerationParams& params = request.params;
    params.num_beams = std::min<int64_t>(params.num_beams, 16);
    params.num_return_sequences = params.num_beams;
  }
  const Answers expected =
      Drive(*MakeExecutor(host_, *pool_), requests, Options(1));
  CudaTransformerOptions options = Float32();
  options.page_size = 3;
  options.kv_cache_bytes = 5 << 20;  // one request at its longest
  OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  DriveOptions drive = Options(2);
  drive.scheduler.max_running = 16;
  SchedulerStats stats;
  drive.before_plan = [&](const Scheduler& scheduler, int) {
    stats = scheduler.stats();
  };
  const Answers ahead = Drive(*device.steps, requests, drive);
  ExpectSame(expected, ahead, "few pages");
  std::printf("%d preemptions, %d tail copies, %d pages at most\n",
              static_cast<int>(stats.num_preemptions),
              static_cast<int>(stats.num_tail_copies),
              static_cast<int>(stats.peak_pages));
  EXPECT_GT(stats.num_preemptions, 0);
  EXPECT_GT(stats.num_tail_copies, 0);  // beams changed slots
}

}  // namespace
}  // namespace espalier::testing
