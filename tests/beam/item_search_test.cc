// Searches whose output must be an item of a catalogue.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "beam/constrain_to_items.h"
#include "beam/strategy/length_penalty.h"
#include "tests/beam/search_alone.h"
#include "tests/constrain/token_lists.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using testing::LogitsModel;
using testing::SearchAsTheEngine;
using testing::ToyLogitsModel;

constexpr int kItemVocabSize = 9;
constexpr TokenId kItemEos = 0;

Request ForItems(int64_t num_beams) {
  Request request;
  request.prompt_tokens = {1, 2};
  GenerationParams& params = request.params;
  params.num_beams = num_beams;
  params.num_return_sequences = num_beams;
  params.early_stopping = EarlyStopping::kNever;
  params.max_new_tokens = 7;
  params.eos_token_id = {kItemEos};
  params.constraint = ConstraintParams{.items = "toys"};
  return request;
}

std::shared_ptr<ItemCatalogues> Toys(const Lists& items) {
  auto catalogues = std::make_shared<ItemCatalogues>();
  catalogues->Put("toys",
                  std::make_shared<const ItemCatalogue>(ListsOf(items)));
  return catalogues;
}

absl::StatusOr<Result> SearchItems(const LogitsModel& model,
                                   const Request& request,
                                   const ItemCatalogues& catalogues) {
  ASSIGN_OR_RETURN(auto constraint, ConstrainToItems(catalogues, nullptr,
                                                     kItemVocabSize, request));
  return SearchAsTheEngine(model, request, nullptr, std::move(constraint));
}

// Tokens of the vocabulary but for EOS; some begin others.
Lists RandomItems(std::mt19937& random, int count) {
  Lists items = RandomLists(random, count, 5, kItemVocabSize - 1);
  for (std::vector<TokenId>& item : items) {
    for (TokenId& token : item) ++token;
  }
  return items;
}

std::set<std::vector<TokenId>> Distinct(const Lists& items) {
  std::set<std::vector<TokenId>> distinct(items.begin(), items.end());
  distinct.erase(std::vector<TokenId>());
  return distinct;
}

// The items as outputs, with their scores: those that begin another one that
// has room end in an EOS, if there is one. Best first.
std::vector<Hypothesis> ScoreAll(const LogitsModel& model,
                                 const Request& request,
                                 const std::set<std::vector<TokenId>>& items) {
  const LengthPenalty penalty(request.params);
  const auto room = static_cast<size_t>(*request.params.max_new_tokens);
  std::vector<Hypothesis> all;
  for (const std::vector<TokenId>& item : items) {
    if (item.size() > room) continue;
    const bool goes_on =
        std::ranges::any_of(items, [&](const std::vector<TokenId>& other) {
          return other.size() > item.size() && other.size() <= room &&
                 std::equal(item.begin(), item.end(), other.begin());
        });
    Hypothesis hypothesis = {.tokens = item};
    if (goes_on && !request.params.ignore_eos) {
      hypothesis.tokens.push_back(kItemEos);
    }
    std::vector<TokenId> history = request.prompt_tokens;
    for (const TokenId token : hypothesis.tokens) {
      hypothesis.cum_log_prob += testing::LogSoftmax(model(history))[token];
      history.push_back(token);
    }
    hypothesis.score = penalty.Score(
        hypothesis.cum_log_prob, static_cast<int>(hypothesis.tokens.size()));
    hypothesis.finish_reason = hypothesis.tokens.back() == kItemEos
                                   ? FinishReason::kEos
                                   : FinishReason::kStop;
    all.push_back(hypothesis);
  }
  std::ranges::sort(all, std::greater<>(), &Hypothesis::score);
  return all;
}

TEST(ItemSearchTest, BeamsEnoughForAllGiveThoseOfExhaustiveScoring) {
  std::mt19937 random(2);
  for (uint64_t seed = 0; seed < 120; ++seed) {
    const LogitsModel model = ToyLogitsModel({.vocab_size = kItemVocabSize,
                                              .seed = seed,
                                              .eos_token_ids = {kItemEos}});
    Lists items = RandomItems(random, 1 + random() % 40);
    items.push_back({3});
    Request request = ForItems(std::ssize(items) + 1);
    GenerationParams& params = request.params;
    params.length_penalty = (seed % 4) * 0.5;
    params.ignore_eos = seed % 2 == 0;
    if (seed % 5 == 0) params.max_new_tokens = 1 + random() % 4;
    std::set<std::vector<TokenId>> left = Distinct(items);
    if (seed % 3 == 0) {
      for (const std::vector<TokenId>& item : items) {
        if (item.empty() || item.size() == 1 || random() % 3 > 0) continue;
        params.constraint->exclude.push_back(TextOrTokens(item));
        left.erase(item);
      }
    }
    if (seed % 7 == 0) {
      params.constraint->exclude_prefixes.push_back({4});
      params.constraint->exclude_prefixes.push_back({5, 1});
      std::erase_if(left, [](const std::vector<TokenId>& item) {
        return item[0] == 4 ||
               (item.size() > 1 && item[0] == 5 && item[1] == 1);
      });
    }
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchItems(model, request, *Toys(items)));
    const std::vector<Hypothesis> all = ScoreAll(model, request, left);
    ASSERT_EQ(result.hypotheses.size(), all.size()) << seed;
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(result.hypotheses[i].tokens, all[i].tokens);
      EXPECT_NEAR(result.hypotheses[i].score, all[i].score, 1e-5);
      EXPECT_EQ(result.hypotheses[i].finish_reason, all[i].finish_reason);
    }
  }
}

TEST(ItemSearchTest, EveryOutputIsAnItemWhateverTheStrategy) {
  std::mt19937 random(3);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Lists items = RandomItems(random, 5 + random() % 60);
    const std::set<std::vector<TokenId>> distinct = Distinct(items);
    const auto toys = Toys(items);
    for (int way = 0; way < 6; ++way) {
      Request request = ForItems(way < 4 ? 6 : 1);
      GenerationParams& params = request.params;
      params.seed = seed;
      params.do_sample = way == 1 || way == 5;
      params.stochastic = way == 2;
      if (way == 3) params.num_beam_groups = 2;
      if (way == 3) params.diversity_penalty = 0.5;
      if (way == 5) params.num_return_sequences = 4;
      const LogitsModel model = ToyLogitsModel({.vocab_size = kItemVocabSize,
                                                .seed = seed,
                                                .eos_token_ids = {kItemEos}});
      ASSERT_OK_AND_ASSIGN(const Result result,
                           SearchItems(model, request, *toys));
      ASSERT_GE(result.hypotheses.size(), 1);
      for (const Hypothesis& hypothesis : result.hypotheses) {
        std::vector<TokenId> tokens = hypothesis.tokens;
        if (tokens.back() == kItemEos) tokens.pop_back();
        EXPECT_TRUE(distinct.contains(tokens));
        EXPECT_NE(hypothesis.finish_reason, FinishReason::kLength);
      }
    }
  }
}

TEST(ItemSearchTest, ShorterItemsThanMinNewTokensDoNotCome) {
  const auto toys = Toys({{3}, {3, 4}, {3, 4, 5}, {6, 7}, {8}});
  for (const bool ignore_eos : {false, true}) {
    Request request = ForItems(9);
    request.params.ignore_eos = ignore_eos;
    request.params.min_new_tokens = 2;
    ASSERT_OK_AND_ASSIGN(
        const Result result,
        SearchItems(ToyLogitsModel({.vocab_size = kItemVocabSize}), request,
                    *toys));
    std::set<std::vector<TokenId>> found;
    for (const Hypothesis& hypothesis : result.hypotheses) {
      found.insert(hypothesis.tokens);
    }
    if (ignore_eos) {
      EXPECT_THAT(found, ElementsAre(ElementsAre(3, 4), ElementsAre(3, 4, 5),
                                     ElementsAre(6, 7)));
    } else {
      EXPECT_THAT(found, ElementsAre(ElementsAre(3, 4, 0), ElementsAre(3, 4, 5),
                                     ElementsAre(6, 7)));
    }
  }
}

TEST(ItemSearchTest, ErrorsNameFieldAndValue) {
  const auto toys = Toys({{3, 4}, {3, 4, 5}, {6, 7, 8}});
  const auto error = [&](auto change) {
    Request request = ForItems(2);
    change(request.params);
    const auto made = ConstrainToItems(*toys, nullptr, kItemVocabSize, request);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    return Message(made.status());
  };
  EXPECT_EQ(error([](auto& params) { params.constraint->items = "boats"; }),
            "constraint.items must name a catalogue, of which there are "
            "\"toys\", got \"boats\"");
  EXPECT_EQ(error([](auto& params) { params.stop_token_ids = {4}; }),
            "constraint.items: an item of \"toys\" must not have an id that "
            "ends the output before its last token, got 4 as token 1 of "
            "[3, 4, 5]");
  EXPECT_EQ(error([](auto& params) { params.max_new_tokens = 1; }),
            "max_new_tokens must be at least 2, which an item of constraint "
            "needs, got 1");
  EXPECT_EQ(error([](auto& params) { params.min_new_tokens = 4; }),
            "min_new_tokens must leave an item of \"toys\", the longest of "
            "which has 3 tokens, got 4");
  EXPECT_EQ(error([](auto& params) {
              params.constraint->exclude_prefixes = {{3}, {6}};
            }),
            "constraint.exclude_prefixes must leave an item of \"toys\", got "
            "2 exclusions");
  EXPECT_EQ(error([](auto& params) {
              params.constraint->exclude = {
                  TextOrTokens(std::vector<TokenId>{6, 7, 8})};
              params.constraint->exclude_prefixes = {{3}};
            }),
            "constraint must leave an item of \"toys\", got 2 exclusions");
  EXPECT_EQ(error([](auto& params) {
              params.constraint->exclude = {TextOrTokens("ball")};
            }),
            "constraint.exclude[0] must be a list of ids without a tokenizer, "
            "got \"ball\"");
  Request request = ForItems(2);
  EXPECT_EQ(Message(ConstrainToItems(*toys, nullptr, 8, request).status()),
            "constraint.items: ids of \"toys\" must be less than 8, got 8");
  EXPECT_EQ(Message(ConstrainToItems(ItemCatalogues(), nullptr, kItemVocabSize,
                                     request)
                        .status()),
            "constraint.items must name a catalogue, of which there is none, "
            "got \"toys\"");
}

// No id may end the output before min_new_tokens, so an item that ends by one
// there does not come.
TEST(ItemSearchTest, AnEndIdOfAnItemDoesNotCountTowardItsLength) {
  const auto toys = Toys({{5, kItemEos}, {6, 7, 8}, {6, 7, kItemEos}});
  const LogitsModel model = ToyLogitsModel({.vocab_size = kItemVocabSize});
  for (const int64_t min_new_tokens : {0, 1, 2, 3}) {
    Request request = ForItems(3);
    request.params.min_new_tokens = min_new_tokens;
    ASSERT_OK_AND_ASSIGN(const Result result,
                         SearchItems(model, request, *toys));
    EXPECT_EQ(result.hypotheses.size(), min_new_tokens < 2   ? 3
                                        : min_new_tokens < 3 ? 2
                                                             : 1);
  }
  Request request = ForItems(3);
  request.params.min_new_tokens = 2;
  EXPECT_EQ(Message(ConstrainToItems(*Toys({{5, kItemEos}}), nullptr,
                                     kItemVocabSize, request)
                        .status()),
            "min_new_tokens must leave an item of \"toys\", the longest of "
            "which has 2 tokens, got 2");
}

// A request may exclude items that the catalogue has no more.
TEST(ItemSearchTest, ExcludingOthersThanItemsHasNoEffect) {
  const auto toys = Toys({{3, 4}, {3, 4, 5}});
  Request request = ForItems(4);
  request.params.constraint->exclude = {
      TextOrTokens(std::vector<TokenId>{3}),
      TextOrTokens(std::vector<TokenId>{3, 4, 5, 6}),
      TextOrTokens(std::vector<TokenId>{8})};
  ASSERT_OK_AND_ASSIGN(
      const Result result,
      SearchItems(ToyLogitsModel({.vocab_size = kItemVocabSize}), request,
                  *toys));
  EXPECT_EQ(result.hypotheses.size(), 2);
}

TEST(ItemCataloguesTest, LaterRequestsGetTheLatestVersion) {
  ItemCatalogues catalogues;
  const auto first = std::make_shared<const ItemCatalogue>(ListsOf({{1}}));
  const auto second = std::make_shared<const ItemCatalogue>(ListsOf({{2}}));
  EXPECT_EQ(catalogues.Find("toys"), nullptr);
  EXPECT_EQ(catalogues.Put("toys", first).number, 1);
  EXPECT_EQ(catalogues.Find("toys"), first);
  EXPECT_EQ(catalogues.Put("toys", second).number, 2);
  EXPECT_EQ(catalogues.Find("toys"), second);
  EXPECT_EQ(catalogues.Put("boats", first).number, 3);
  EXPECT_THAT(catalogues.Names(), ElementsAre("boats", "toys"));
  EXPECT_TRUE(catalogues.Remove("toys"));
  EXPECT_FALSE(catalogues.Remove("toys"));
  EXPECT_EQ(catalogues.Find("toys"), nullptr);
  EXPECT_EQ(catalogues.All().at("boats").number, 3);
}

// The one that a request has outlives its replacement, and is destroyed by a
// later call.
TEST(ItemCataloguesTest, AReplacedVersionLivesAsLongAsARequestHasIt) {
  ItemCatalogues catalogues;
  catalogues.Put("toys", std::make_shared<const ItemCatalogue>(ListsOf({{1}})));
  std::shared_ptr<const ItemCatalogue> held = catalogues.Find("toys");
  const std::weak_ptr<const ItemCatalogue> watched = held;
  catalogues.Put("toys", std::make_shared<const ItemCatalogue>(ListsOf({{2}})));
  EXPECT_EQ(held->Child(ItemCatalogue::kRoot, 1), 1);
  held.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_NE(catalogues.Find("toys"), nullptr);
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace espalier
