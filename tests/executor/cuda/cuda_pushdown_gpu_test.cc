// Texts of languages that recur or count on the device, which makes their masks
// and keeps their stacks, against those on the host, by lists of legal tokens.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "executor/host/model_executor.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {
namespace {

constexpr int kFirstToken = 300;  // those before are special, or bytes

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
    const std::string schemas[] = {
        R"({"type": "array", "items": {"$ref": "#"}})",
        R"({"type": "object", "required": ["a"], "additionalProperties": false,
            "properties": {"a": {"type": "array", "items": {"$ref": "#"}},
                           "b": {"type": "integer"}}})",
        R"({"type": "string", "maxLength": 100000})",
        R"({"type": "array", "items": {"type": "string", "maxLength": 2000}})",
        R"({"type": "array", "items": {"anyOf": [{"$ref": "#"},
            {"type": "string", "maxLength": 2000}]}})"};
    const std::string grammars[] = {
        "root ::= \"(\" root \")\" root | [a-z]",
        "root ::= [a-z ]* (\"<\" root \">\")?",
        "root ::= root \"+\" t | t\nt ::= [0-9]+ | \"(\" root \")\""};
    ConstraintParams params;
    if (random() % 2 == 0) {
      params.json_schema = schemas[random() % std::size(schemas)];
    } else {
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
        request.prompt_tokens.push_back(kFirstToken + random() % 5000);
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

  static DriveOptions Options(int num_in_flight) {
    return {.num_in_flight = num_in_flight,
            .scheduler = {.max_running = 64,
                          .max_step_tokens = 512,
                          .validate_steps = true},
            .tokenizer = *tokenizer_};
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

// Beams move to other slots, and few pages preempt some, whose stacks are sent
// again.
TEST_F(CudaPushdownTest, StacksMoveWithTheirBeams) {
  const std::vector<Request> requests = Requests(Cases(40, 30), 6);
  const Answers expected =
      Drive(*MakeExecutor(host_, *pool_), requests, Options(1));
  CudaTransformerOptions options = Float32();
  options.page_size = 3;
  options.kv_cache_bytes = 24 << 20;
  OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  DriveOptions drive = Options(2);
  drive.scheduler.max_running = 8;
  const Answers ahead = Drive(*device.steps, requests, drive);
  ExpectSame(expected, ahead, "few pages");
}

}  // namespace
}  // namespace espalier::testing
