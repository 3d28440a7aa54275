// Searches for items on the device, whose masks it makes and whose states it
// keeps, against those on the host, by lists of legal tokens.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "constrain/item_catalogues.h"
#include "executor/host/model_executor.h"
#include "tests/constrain/token_lists.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier::testing {
namespace {

constexpr int kFirstToken = 300;  // those before are special, or bytes

class CudaItemsTest : public CudaExecutorTest {
 protected:
  // Items of one length, and of many, which begin others.
  static void SetUpTestSuite() {
    CudaExecutorTest::SetUpTestSuite();
    std::mt19937 random(31);
    Lists ids;
    for (int i = 0; i < Cases(50'000, 2000); ++i) {
      std::vector<TokenId>& id = ids.emplace_back();
      for (int t = 0; t < 4; ++t) id.push_back(kFirstToken + random() % 5000);
    }
    Lists any = RandomLists(random, Cases(3000, 300), 6, 40);
    for (std::vector<TokenId>& item : any) {
      for (TokenId& token : item) token += kFirstToken;
    }
    any_ = new Lists(any);
    items_ =
        new std::shared_ptr<ItemCatalogues>(std::make_shared<ItemCatalogues>());
    (*items_)->Put("ids", std::make_shared<const ItemCatalogue>(ListsOf(ids)));
    (*items_)->Put("any", std::make_shared<const ItemCatalogue>(ListsOf(any)));
  }
  static void TearDownTestSuite() {
    delete std::exchange(items_, nullptr);
    delete std::exchange(any_, nullptr);
    CudaExecutorTest::TearDownTestSuite();
  }

  static Request RequestFor(const std::string& name, int num_beams,
                            std::mt19937& random) {
    Request request;
    for (int t = 0; t < 5; ++t) {
      request.prompt_tokens.push_back(kFirstToken + random() % 5000);
    }
    GenerationParams& params = request.params;
    params.num_beams = params.num_return_sequences = num_beams;
    params.early_stopping = EarlyStopping::kNever;
    params.max_new_tokens = 4 + random() % 5;
    params.constraint = ConstraintParams{.items = name};
    return request;
  }

  static std::vector<Request> Requests(int count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Request> requests;
    for (int i = 0; i < count; ++i) {
      const int widths[] = {1, 2, 5, 16, 60};
      Request& request = requests.emplace_back(
          RequestFor(random() % 2 == 0 ? "ids" : "any",
                     widths[random() % std::size(widths)], random));
      GenerationParams& params = request.params;
      if (random() % 3 == 0) {
        params.do_sample = true;
        params.num_beams = 1;
        params.seed = random();
      }
      if (random() % 4 == 0) params.ignore_eos = true;
      if (random() % 4 == 0) params.min_new_tokens = random() % 3;
      if (random() % 4 == 0) params.logprobs = 1;
      if (random() % 3 == 0) {
        for (size_t item = 0; item < any_->size(); item += 1 + random() % 9) {
          if ((*any_)[item].empty()) continue;
          params.constraint->exclude.push_back(TextOrTokens((*any_)[item]));
        }
        params.constraint->exclude_prefixes.push_back({kFirstToken + 3});
      }
      EXPECT_OK(ValidateRequest(host_->description(), &request));
    }
    return requests;
  }

  static DriveOptions Options(int num_in_flight) {
    return {.num_in_flight = num_in_flight,
            .scheduler = {.max_running = 64,
                          .max_step_tokens = 512,
                          .validate_steps = true},
            .items = *items_};
  }

  static std::shared_ptr<ItemCatalogues>* items_;
  static Lists* any_;
};

std::shared_ptr<ItemCatalogues>* CudaItemsTest::items_ = nullptr;
Lists* CudaItemsTest::any_ = nullptr;

TEST_F(CudaItemsTest, ItemsAreThoseOfTheHostWhetherStepsRunAheadOrNot) {
  const std::vector<Request> requests = Requests(Cases(60, 10), 5);
  const Answers expected =
      Drive(*MakeExecutor(host_, *pool_), requests, Options(1));
  OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  const Answers waiting = Drive(*device.steps, requests, Options(1));
  ExpectSame(expected, waiting, "items, waiting");
  const Answers ahead = Drive(*device.steps, requests, Options(2));
  ExpectSame(expected, ahead, "items, ahead");
}

// More beams than keep their scratch in shared memory.
TEST_F(CudaItemsTest, ItemsOfAWideSearch) {
  std::mt19937 random(9);
  Request request = RequestFor("ids", Cases(5000, 1100), random);
  request.params.num_return_sequences = 50;
  ASSERT_OK(ValidateRequest(host_->description(), &request));
  CudaTransformerOptions options = Float32();
  options.max_tokens = options.max_logits = 5120;
  options.kv_cache_bytes = int64_t{4} << 30;
  OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  DriveOptions drive = Options(2);
  drive.scheduler.max_step_tokens = 5120;
  const Answers ahead = Drive(*device.steps, {request}, drive);
  drive.num_in_flight = 1;
  // A page for each beam.
  auto wide_host = TransformerModel::Load(
      SourcePath("models/en-fr"), {.kv_cache_bytes = int64_t{2} << 30}, *pool_);
  ASSERT_OK(wide_host.status());
  const Answers expected =
      Drive(*MakeExecutor(wide_host->get(), *pool_), {request}, drive);
  ExpectSame(expected, ahead, "items, wide");
}

// A request of a version that is gone, and another of the next one, whose
// arrays may be where those were.
TEST_F(CudaItemsTest, VersionsOfACatalogueAreToldApart) {
  std::mt19937 random(3);
  OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  DriveOptions drive = Options(2);
  for (int version = 0; version < 20; ++version) {
    const auto catalogues = std::make_shared<ItemCatalogues>();
    const TokenId token = kFirstToken + version;
    catalogues->Put("ids", std::make_shared<const ItemCatalogue>(ListsOf(
                               {{token, token}, {token, token + 1, 301}})));
    drive.items = catalogues;
    Request request = RequestFor("ids", 2, random);
    ASSERT_OK(ValidateRequest(host_->description(), &request));
    const Answers answers = Drive(*device.steps, {request}, drive);
    ASSERT_OK(answers[0].status());
    ASSERT_EQ(answers[0]->hypotheses.size(), 2);
    for (const Hypothesis& hypothesis : answers[0]->hypotheses) {
      EXPECT_EQ(hypothesis.tokens[0], token);
    }
  }
}

}  // namespace
}  // namespace espalier::testing
