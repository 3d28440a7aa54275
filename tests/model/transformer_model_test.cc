#include "model/transformer_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <stop_token>
#include <vector>

#include "tests/model/batch_checks.h"
#include "tests/model/feeder.h"
#include "tests/model/tiny_model.h"
#include "tests/model/twin_checks.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"

namespace espalier {
namespace {

using ::espalier::testing::ExpectMatchesTwin;
using ::espalier::testing::ExpectSameBitsInAnyBatch;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::Feeder;
using ::espalier::testing::FilesOf;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::MakeTinyModel;
using ::espalier::testing::RandomTokens;
using ::espalier::testing::SmallestShape;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TempDirectory;
using ::espalier::testing::TinyModel;
using ::espalier::testing::TinyShape;
using ::espalier::testing::TinyShapes;
using ::testing::HasSubstr;

std::unique_ptr<TransformerModel> LoadTiny(const TinyModel& tiny,
                                           std::shared_ptr<ThreadPool> pool,
                                           int page_size = 16,
                                           int num_shards = 1,
                                           WeightFormat weights = {}) {
  const TempDirectory directory(FilesOf(tiny, num_shards));
  const TransformerOptions options = {
      .page_size = page_size, .kv_cache_bytes = 8 << 20, .weights = weights};
  auto model = TransformerModel::Load(directory.path(), options, pool);
  EXPECT_OK(model);
  return *std::move(model);
}

std::vector<TinyShape> AllShapes() {
  std::vector<TinyShape> shapes = TinyShapes();
  shapes.push_back(SmallestShape(2));
  return shapes;
}

TEST(TransformerModelTest, MatchesTheTwinForEveryShapePageSizeAndChunk) {
  const auto pool = MakePool(1);
  ExpectMatchesTwin(AllShapes(), [&](const TinyModel& tiny, int page_size) {
    return LoadTiny(tiny, pool, page_size);
  });
}

// Pages of 4 tokens are saved by the plan that overwrites them, and loaded into
// other pages by the plan that continues their sequence.
TEST(TransformerModelTest, SwappedPagesHaveTheSameBits) {
  const TinyShape shape = TinyShapes().front();
  const TinyModel tiny = MakeTinyModel(shape, 5);
  const TempDirectory directory(FilesOf(tiny, 1));
  const auto tokens = RandomTokens(11, shape.vocab_size, 6);
  const auto others = RandomTokens(10, shape.vocab_size, 7);
  for (const int num_threads : {1, 2}) {
    const auto model = *TransformerModel::Load(directory.path(),
                                               {.page_size = 4,
                                                .kv_cache_bytes = 1 << 20,
                                                .host_cache_bytes = 1 << 16},
                                               MakePool(num_threads));
    EXPECT_GT(model->description().num_host_slots, 3);
    const auto feed = [&](std::span<const TokenId> fed, int first,
                          const std::vector<PageId>& pages, StepPlan plan) {
      plan.rows = {{.num_tokens = static_cast<int>(fed.size()),
                    .first_position = first,
                    .num_logits = 1}};
      plan.tokens.assign(fed.begin(), fed.end());
      plan.num_logits = 1;
      plan.page_indptr = {0, static_cast<int>(pages.size())};
      plan.page_indices.assign(pages.begin(), pages.end());
      std::vector<float> logits(shape.vocab_size);
      EXPECT_OK(model->Forward(plan, logits));
      return logits;
    };
    const std::vector<PageId> pages = {{0}, {1}, {2}};
    const std::span<const TokenId> all = tokens;
    feed(all.first(10), 0, pages, {});
    const std::vector<float> expected = feed(all.subspan(10), 10, pages, {});
    feed(all.first(10), 0, pages, {});
    StepPlan saving;
    saving.page_saves = {{{0}, {2}}, {{1}, {0}}, {{2}, {1}}};
    feed(others, 0, pages, saving);
    StepPlan loading;
    loading.page_loads = {{{2}, {7}}, {{0}, {1}}, {{1}, {5}}};
    EXPECT_EQ(feed(all.subspan(10), 10, {{7}, {1}, {5}}, loading), expected);
  }
}

TEST(TransformerModelTest, PageSizesChunksAndThreadsChangeNoBits) {
  for (const TinyShape& shape : AllShapes()) {
    const TinyModel tiny = MakeTinyModel(shape, 5);
    const auto tokens = RandomTokens(90, shape.vocab_size, 6);
    const auto one = MakePool(1);
    const auto reference = LoadTiny(tiny, one);
    const LogitsRows expected = FeedAlone(reference.get(), tokens, 90);
    for (const int num_threads : {1, 2, 3}) {
      const auto pool = MakePool(num_threads);
      for (const int page_size : {1, 3, 16, 64}) {
        const auto model = LoadTiny(tiny, pool, page_size);
        for (const int chunk : {1, 4, 33, 90}) {
          ASSERT_EQ(FeedAlone(model.get(), tokens, chunk), expected)
              << "threads " << num_threads << " page size " << page_size
              << " chunk " << chunk;
        }
      }
    }
  }
}

// Also where matrices that are packed as one differ in type.
TEST(TransformerModelTest, ResultsAreThoseOfTheSameWeightsInF32) {
  const auto pool = MakePool(2);
  for (const std::string dtype : {"BF16", "F16"}) {
    for (const bool tied : {false, true}) {
      TinyModel tiny = MakeTinyModel({.tied = tied, .dtype = dtype}, 5);
      tiny.tensors["model.layers.1.mlp.up_proj.weight"].dtype = "F32";
      const auto tokens = RandomTokens(40, 23, 6);
      const LogitsRows stored =
          FeedAlone(LoadTiny(tiny, pool).get(), tokens, 7);
      for (auto& [name, tensor] : tiny.tensors) tensor.dtype = "F32";
      EXPECT_EQ(stored, FeedAlone(LoadTiny(tiny, pool).get(), tokens, 7))
          << dtype << (tied ? ", tied" : "");
    }
  }
}

TEST(TransformerModelTest, ASequenceHasTheSameBitsAloneAndInAnyBatch) {
  const TinyShape shape = {.dtype = "BF16"};
  const auto pool = MakePool(2);
  for (const WeightFormat weights :
       {WeightFormat::kAsStored, WeightFormat::kInt8, WeightFormat::kInt4,
        WeightFormat::kFp8}) {
    const auto model = LoadTiny(MakeTinyModel(shape, 7), pool, 3, 1, weights);
    ExpectSameBitsInAnyBatch(model.get(), /*longest=*/71, /*seed=*/8);
  }
}

// The head is quantised, too, but a tied embedding is not; otherwise int4 would
// be further off.
TEST(TransformerModelTest, QuantizedWeightsGiveLogitsNearTheirOwn) {
  const TinyShape shape = {.hidden_size = 64, .tied = true, .dtype = "BF16"};
  const TinyModel tiny = MakeTinyModel(shape, 9);
  const auto pool = MakePool(2);
  const auto tokens = RandomTokens(60, shape.vocab_size, 10);
  const LogitsRows exact = FeedAlone(LoadTiny(tiny, pool).get(), tokens, 7);
  double last_error = 0;
  for (const WeightFormat weights :
       {WeightFormat::kInt8, WeightFormat::kInt4}) {
    const auto model = LoadTiny(tiny, pool, 16, 1, weights);
    const LogitsRows near = FeedAlone(model.get(), tokens, 7);
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      for (size_t j = 0; j < exact[i].size(); ++j) {
        error += std::pow(near[i][j] - exact[i][j], 2);
        size += std::pow(exact[i][j], 2);
      }
    }
    const double relative = std::sqrt(error / size);
    EXPECT_GT(relative, last_error);
    EXPECT_LT(relative, weights == WeightFormat::kInt8 ? 0.05 : 0.6);
    last_error = relative;
  }
}

// Many rows are divided among threads, a few sequences through all layers each.
TEST(TransformerModelTest, AStepDividedByRowsChangesNoBits) {
  const TinyShape shape = {.dtype = "BF16"};
  const TinyModel tiny = MakeTinyModel(shape, 15);
  constexpr int kNumSequences = 90;
  for (const int num_threads : {2, 3}) {
    const auto pool = MakePool(num_threads);
    const auto model = LoadTiny(tiny, pool, 3);
    std::vector<Feeder::Row> rows;
    std::vector<LogitsRows> alone;
    Feeder feeder(model.get());
    for (int i = 0; i < kNumSequences; ++i) {
      const auto tokens = RandomTokens(1 + i % 3, shape.vocab_size, i);
      alone.push_back(FeedAlone(model.get(), tokens, 1000));
      // Some have no logits, among them the first.
      rows.push_back({feeder.Add(), tokens, i % 4 == 0 ? 0 : -1});
    }
    const std::vector<LogitsRows> together = feeder.Step(rows);
    for (int i = 0; i < kNumSequences; ++i) {
      if (rows[i].num_logits == 0) continue;
      EXPECT_EQ(together[i], alone[i]) << i << " of " << num_threads;
    }
  }
}

// More than go through the layers together.
TEST(TransformerModelTest, AStepOfManySequencesIsThatOfEach) {
  const TinyShape shape;
  const auto pool = MakePool(2);
  const auto model = LoadTiny(MakeTinyModel(shape, 15), pool, 3);
  std::vector<Feeder::Row> rows;
  std::vector<LogitsRows> alone;
  Feeder feeder(model.get());
  for (int i = 0; i < 1300; ++i) {
    const auto tokens = RandomTokens(1 + i % 3, shape.vocab_size, i);
    alone.push_back(FeedAlone(model.get(), tokens, 1000));
    rows.push_back({feeder.Add(), tokens});
  }
  EXPECT_EQ(feeder.Step(rows), alone);
}

TEST(TransformerModelTest, AStepThatNobodyWaitsForIsGivenUp) {
  const auto pool = MakePool(2);
  const auto model = LoadTiny(MakeTinyModel({}, 15), pool);
  StepPlan plan;
  plan.rows = {{.num_tokens = 1, .num_logits = 1}};
  plan.tokens = {3};
  plan.num_logits = 1;
  plan.page_indptr = {0, 1};
  plan.page_indices = {PageId{0}};
  std::vector<float> logits(model->description().vocab_size);
  std::stop_source stop;
  plan.stop = stop.get_token();
  EXPECT_OK(model->Forward(plan, logits));
  stop.request_stop();
  EXPECT_EQ(model->Forward(plan, logits).code(), absl::StatusCode::kCancelled);
  plan.stop = {};
  EXPECT_OK(model->Forward(plan, logits));
}

TEST(TransformerModelTest, ACopiedTailPageCarriesItsTokensOn) {
  const TinyShape shape;
  const auto pool = MakePool(1);
  const auto model = LoadTiny(MakeTinyModel(shape, 9), pool, 4);
  for (const int num_shared : {1, 3, 4, 6, 7}) {
    const auto prefix = RandomTokens(num_shared, shape.vocab_size, num_shared);
    Feeder feeder(model.get());
    const int parent = feeder.Add();
    feeder.Step({{parent, prefix, 0}});
    const int child = feeder.Fork(parent);
    const auto results = feeder.Step({{parent, {3, 8}}, {child, {9, 1}}});
    for (int i = 0; i < 2; ++i) {
      std::vector<TokenId> whole = prefix;
      for (const TokenId token :
           i == 0 ? std::vector<TokenId>{3, 8} : std::vector<TokenId>{9, 1}) {
        whole.push_back(token);
      }
      const LogitsRows expected = FeedAlone(model.get(), whole, 100);
      EXPECT_EQ(results[i], LogitsRows(expected.end() - 2, expected.end()));
    }
  }
}

TEST(TransformerModelTest, ShardsGiveTheModelTheSingleFileGives) {
  const auto pool = MakePool(1);
  const TinyModel tiny = MakeTinyModel({}, 10);
  const auto tokens = RandomTokens(20, 23, 11);
  const auto single = LoadTiny(tiny, pool);
  for (const int num_shards : {2, 5}) {
    const auto sharded = LoadTiny(tiny, pool, 16, num_shards);
    EXPECT_EQ(FeedAlone(sharded.get(), tokens, 20),
              FeedAlone(single.get(), tokens, 20));
  }
}

TEST(TransformerModelTest, APlanWithNothingToFeedIsFine) {
  const auto pool = MakePool(1);
  const auto model = LoadTiny(MakeTinyModel({}, 12), pool);
  EXPECT_OK(model->Forward({}, {}));
}

TEST(TransformerModelTest, TheDescriptionIsWhatConfigsAndOptionsSay) {
  const auto pool = MakePool(1);
  TinyModel tiny = MakeTinyModel({}, 13);
  const auto model = LoadTiny(tiny, pool, 8);
  const ModelDescription& description = model->description();
  EXPECT_EQ(description.vocab_size, 23);
  EXPECT_EQ(description.max_context, 128);
  EXPECT_EQ(description.eos_token_ids, (std::vector<TokenId>{2, 5}));
  EXPECT_EQ(description.page_size, 8);
  // Two layers of keys and values, 8 tokens of 2 heads of 16 floats.
  EXPECT_EQ(description.num_pages, (8 << 20) / (2 * 2 * 8 * 2 * 16 * 4));
}

TEST(TransformerModelTest, OptionsOutOfRangeAreNamed) {
  const auto pool = MakePool(1);
  const TempDirectory directory(FilesOf(MakeTinyModel({}, 14)));
  for (const int page_size : {0, -1, 4097}) {
    EXPECT_THAT(
        TransformerModel::Load(directory.path(), {.page_size = page_size},
                               pool),
        StatusIs(kInvalid, HasSubstr("page_size must be in [1, 4096], got")));
  }
  for (const int64_t bytes : {int64_t{0}, int64_t{-5}, int64_t{8191}}) {
    EXPECT_THAT(TransformerModel::Load(directory.path(),
                                       {.kv_cache_bytes = bytes}, pool),
                StatusIs(kInvalid, HasSubstr("must hold a page of 8192")));
  }
  const auto loaded = TransformerModel::Load(directory.path(), {}, pool);
  ASSERT_OK(loaded);
  EXPECT_THAT(
      TransformerModel::Create((*loaded)->weights(),
                               {.weights = WeightFormat::kInt8}, pool),
      StatusIs(kInvalid, HasSubstr("weights must be stored, as they are "
                                   "loaded, got int8")));
  EXPECT_THAT(
      TransformerModel::Create((*loaded)->weights(), {.page_size = 0}, pool),
      StatusIs(kInvalid, HasSubstr("page_size must be in [1, 4096]")));
  EXPECT_THAT(TransformerModel::Create((*loaded)->weights(), {}, nullptr),
              StatusIs(kInvalid, HasSubstr("pool must not be null")));
  EXPECT_THAT(TransformerModel::Create(nullptr, {}, pool),
              StatusIs(kInvalid, HasSubstr("weights must not be null")));
  // 2^31 pages of 2 MiB are more than an address space.
  const TransformerOptions huge = {.page_size = 4096,
                                   .kv_cache_bytes = int64_t{1} << 62};
  EXPECT_THAT(
      TransformerModel::Load(directory.path(), huge, pool),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("bytes")));
}

}  // namespace
}  // namespace espalier
