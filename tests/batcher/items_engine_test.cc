// Items of a catalogue with the embedded translator and its 6,000 tokens:
// beside other requests, and while the catalogue is replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "base/cpu_count.h"
#include "batcher/engine.h"
#include "constrain/item_catalogues.h"
#include "executor/host/model_executor.h"
#include "model/transformer_model.h"
#include "request/read_items.h"
#include "tests/batcher/generate_all.h"
#include "tests/constrain/token_lists.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using testing::GenerateAll;
using testing::MakeEngine;
using testing::MakeExecutor;
using testing::MakePool;
using ::testing::UnorderedElementsAre;

// The tokens are no special symbols.
Lists RandomItems(int count, int num_tokens, uint32_t seed) {
  std::mt19937 random(seed);
  Lists items = RandomLists(random, count, 5, num_tokens);
  for (std::vector<TokenId>& item : items) {
    for (TokenId& token : item) token += 300;
  }
  std::erase_if(items, [](const auto& item) { return item.empty(); });
  return items;
}

std::shared_ptr<const ItemCatalogue> CatalogueOf(const Lists& items) {
  return std::make_shared<const ItemCatalogue>(ListsOf(items));
}

// Translates "Where is the station?" into French.
Request Translation() {
  Request request;
  request.prompt_tokens = {1, 4, 502, 282, 283, 2707, 270, 5};
  return request;
}

Request ForItems(const std::string& name, int64_t num_beams) {
  Request request = Translation();
  GenerationParams& params = request.params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_beams;
  params.max_new_tokens = 6;
  params.early_stopping = EarlyStopping::kNever;
  params.constraint = ConstraintParams{.items = name};
  return request;
}

// Returns the items that outputs are, without the EOS that ends some.
std::set<std::vector<TokenId>> ItemsOf(const Result& result) {
  std::set<std::vector<TokenId>> items;
  for (const Hypothesis& hypothesis : result.hypotheses) {
    std::vector<TokenId> tokens = hypothesis.tokens;
    if (hypothesis.finish_reason == FinishReason::kEos) tokens.pop_back();
    EXPECT_NE(hypothesis.finish_reason, FinishReason::kLength);
    EXPECT_TRUE(items.insert(std::move(tokens)).second);
  }
  return items;
}

class ItemsEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model =
        TransformerModel::Load(SourcePath("models/en-fr"),
                               {.kv_cache_bytes = int64_t{64} << 20}, threads_);
    ASSERT_OK(model);
    model_ = *std::move(model);
    auto tokenizer =
        Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model"));
    ASSERT_OK(tokenizer);
    options_.tokenizer = *std::move(tokenizer);
    options_.items = std::make_shared<ItemCatalogues>();
  }

  std::vector<absl::StatusOr<Result>> RunAll(
      const std::vector<Request>& requests) {
    return GenerateAll(MakeExecutor(model_.get(), threads_), requests,
                       options_);
  }

  const std::shared_ptr<ThreadPool> threads_ = MakePool(NumUsableCpus());
  std::unique_ptr<TransformerModel> model_;
  EngineOptions options_;
};

TEST_F(ItemsEngineTest, RequestsTogetherGetWhatEachGetsAlone) {
  const Lists many = RandomItems(50'000, 3000, 1);
  const Lists few = RandomItems(60, 4, 2);
  options_.items->Put("many", CatalogueOf(many));
  options_.items->Put("few", CatalogueOf(few));
  std::vector<Request> requests = {ForItems("many", 100), ForItems("few", 70),
                                   ForItems("many", 1), Translation()};
  requests.push_back(ForItems("few", 8));
  for (size_t i = 0; i < few.size(); i += 2) {
    requests.back().params.constraint->exclude.push_back(TextOrTokens(few[i]));
  }
  requests.push_back(ForItems("many", 20));
  requests.back().params.constraint->exclude_prefixes = {{300}, {301, 302}};
  requests.back().params.max_new_tokens = 3;
  requests.push_back(ForItems("few", 4));
  requests.back().params.stochastic = true;
  requests.back().params.early_stopping = EarlyStopping::kFalse;
  requests.back().params.seed = 3;
  requests.push_back(ForItems("many", 1));
  requests.back().params.do_sample = true;
  requests.back().params.num_return_sequences = 5;
  requests.back().params.seed = 4;
  requests.push_back(Translation());
  requests.back().params.num_beams = 4;
  requests.back().params.constraint = ConstraintParams{.regex = "[a-z ]+"};
  requests.back().params.max_new_tokens = 8;
  requests.push_back(Translation());
  requests.back().params.num_beams = 6;
  requests.back().params.allowed_sequences = {{400, 401}, {400, 402, 403}};
  const std::vector<absl::StatusOr<Result>> together = RunAll(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_OK(together[i]) << i;
    const std::vector<absl::StatusOr<Result>> alone = RunAll({requests[i]});
    ASSERT_OK(alone[0]);
    const auto& a = together[i]->hypotheses;
    const auto& b = alone[0]->hypotheses;
    ASSERT_EQ(a.size(), b.size());
    for (size_t j = 0; j < a.size(); ++j) {
      EXPECT_EQ(a[j].tokens, b[j].tokens);
      EXPECT_EQ(a[j].score, b[j].score);
      EXPECT_EQ(a[j].finish_reason, b[j].finish_reason);
    }
  }
  const std::set<std::vector<TokenId>> all_few(few.begin(), few.end());
  const std::set<std::vector<TokenId>> all_many(many.begin(), many.end());
  EXPECT_EQ(ItemsOf(*together[1]), all_few);
  EXPECT_EQ(ItemsOf(*together[0]).size(), 100);
  for (const std::vector<TokenId>& item : ItemsOf(*together[0])) {
    EXPECT_TRUE(all_many.contains(item));
  }
  for (const std::vector<TokenId>& item : ItemsOf(*together[5])) {
    EXPECT_TRUE(all_many.contains(item));
    EXPECT_LE(item.size(), 3);
    EXPECT_NE(item[0], 300);
    EXPECT_FALSE(item.size() > 1 && item[0] == 301 && item[1] == 302);
  }
}

TEST_F(ItemsEngineTest, TextsHaveTheTokensThatTheModelWrites) {
  ASSERT_OK_AND_ASSIGN(
      const auto cities,
      ReadItems("\"Paris\"\n\"Lyon\"\n\"Où est la gare ?\"\n",
                options_.tokenizer.get(), model_->description().vocab_size,
                model_->description().eos_token_ids));
  options_.items->Put("cities", cities);
  std::vector<Request> requests = {ForItems("cities", 9),
                                   ForItems("cities", 9)};
  for (Request& request : requests) request.params.max_new_tokens = 20;
  requests[1].params.constraint->exclude = {TextOrTokens("Lyon"),
                                            TextOrTokens("Marseille")};
  std::vector<std::set<std::string>> found;
  for (const absl::StatusOr<Result>& result : RunAll(requests)) {
    ASSERT_OK(result);
    std::set<std::string>& texts = found.emplace_back();
    for (const Hypothesis& hypothesis : result->hypotheses) {
      texts.insert(*options_.tokenizer->Decode(hypothesis.tokens));
    }
  }
  EXPECT_THAT(found[0],
              UnorderedElementsAre("Paris", "Lyon", "Où est la gare ?"));
  EXPECT_THAT(found[1], UnorderedElementsAre("Paris", "Où est la gare ?"));
  // Not tokenized as a whole.
  requests[1].params.constraint->exclude = {
      TextOrTokens("Lyon"), TextOrTokens(std::string(20'000'000, 'a'))};
  EXPECT_EQ(Message(RunAll({requests[1]})[0].status()),
            "constraint.exclude[1]: an item must have at most 1024 tokens, got "
            "a text of 20000000 bytes");
}

// A request has the version of when it was prepared, whenever it runs.
TEST_F(ItemsEngineTest, ARunningRequestKeepsTheVersionThatIsReplaced) {
  const Lists first = RandomItems(40, 4, 5);
  const Lists second = RandomItems(40, 4, 6);
  options_.items->Put("items", CatalogueOf(first));
  boost::asio::io_context context(1);
  Engine engine = MakeEngine(context.get_executor(),
                             MakeExecutor(model_.get(), threads_), options_);
  const auto prepare = [&] { return engine.Prepare(ForItems("items", 60)); };
  const auto run = [&](Engine::Prepared request) {
    return boost::asio::co_spawn(context, engine.Generate(std::move(request)),
                                 boost::asio::use_future);
  };
  auto of_first = prepare();
  ASSERT_OK(of_first);
  auto first_result = run(*std::move(of_first));
  for (int i = 0; i < 4; ++i) context.poll_one();  // it runs
  EXPECT_EQ(&engine.items(), options_.items.get());
  engine.items().Put("items", CatalogueOf(second));
  auto of_second = prepare();
  ASSERT_OK(of_second);
  engine.items().Remove("items");
  EXPECT_EQ(Message(prepare().status()),
            "constraint.items must name a catalogue, of which there is none, "
            "got \"items\"");
  auto second_result = run(*std::move(of_second));
  context.run();
  const absl::StatusOr<Result> results[] = {first_result.get(),
                                            second_result.get()};
  ASSERT_OK(results[0]);
  ASSERT_OK(results[1]);
  EXPECT_EQ(ItemsOf(*results[0]),
            std::set<std::vector<TokenId>>(first.begin(), first.end()));
  EXPECT_EQ(ItemsOf(*results[1]),
            std::set<std::vector<TokenId>>(second.begin(), second.end()));
}

}  // namespace
}  // namespace espalier
