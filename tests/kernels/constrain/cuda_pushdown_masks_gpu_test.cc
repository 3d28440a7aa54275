// Masks of texts with stacks made on the device, against the reference: the
// same bits, for places of several constraints in one launch, given by the host
// or kept of beams, and nothing else is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/constraint_state.h"
#include "base/cuda.h"
#include "kernels/constrain/cuda_constraint_tables.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/constrain/token_masks.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/random_pushdown_constraints.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::Download;
using ::espalier::testing::PushdownConstraintOf;
using ::espalier::testing::PushdownGrammars;
using ::espalier::testing::RandomPushdownConstraint;
using ::espalier::testing::RandomSyntaxVocabulary;
using ::espalier::testing::Upload;

constexpr uint32_t kNotWritten = 0xABCD1234u;

struct OnDevice {
  std::shared_ptr<const PushdownConstraint> constraint;
  CudaConstraintTables tables;
};

OnDevice CopyOf(std::shared_ptr<const PushdownConstraint> constraint) {
  const ConstraintTables tables = *constraint->tables();
  const auto copy_of =
      [&](const TokenTexts& texts) -> std::shared_ptr<const CudaTokenTexts> {
    if (texts.indptr == nullptr) return nullptr;
    auto copy = CudaTokenTexts::Create(texts, tables.vocab_size);
    EXPECT_OK(copy.status());
    return std::make_shared<const CudaTokenTexts>(*std::move(copy));
  };
  auto copy = CudaConstraintTables::Create(tables, copy_of(tables.inside),
                                           copy_of(tables.first));
  EXPECT_OK(copy.status());
  return {std::move(constraint), *std::move(copy)};
}

// The place after some random legal tokens.
PushdownPlace RandomPlace(const PushdownConstraint& constraint,
                          std::mt19937_64& random) {
  int32_t state = constraint.start();
  for (int left = static_cast<int>(random() % 25); left > 0; --left) {
    const auto legal = constraint.LegalTokens(state, 1'000'000).tokens;
    if (legal.empty()) break;
    state = constraint.Advance(state, legal[random() % legal.size()]);
  }
  PushdownPlace place;
  constraint.tables()->stacks.places->Find(state, &place);
  return place;
}

struct RowPlace {
  CudaMaskRow row;
  PushdownPlace place;
  int32_t room = 0;
};

void ExpectMasks(const std::vector<OnDevice>& all, int vocab_size, int num_rows,
                 std::mt19937_64& random) {
  const auto device = CudaDevice::Open(0);
  ASSERT_OK(device.status());
  std::vector<CudaConstraint> constraints;
  for (const OnDevice& one : all) {
    constraints.push_back(one.tables.constraint());
  }
  const int32_t rooms[] = {0, 1, 2, 3, 9, 40, 1'000'000, INT32_MAX};
  std::vector<RowPlace> rows(num_rows);
  std::vector<PushdownPlace> places(2 * num_rows);
  std::vector<int32_t> states(2 * num_rows, -1);
  std::vector<PushdownFrame> frames(1);
  std::vector<int> tokens(num_rows);
  std::vector<int> positions(num_rows);
  std::vector<CudaMaskRow> mask_rows;
  for (int r = 0; r < num_rows; ++r) {
    RowPlace& row = rows[r];
    tokens[r] = num_rows - 1 - r;
    positions[tokens[r]] = static_cast<int>(random() % 50);
    if (random() % 8 == 0) {
      mask_rows.push_back({});
      continue;
    }
    const int c = static_cast<int>(random() % all.size());
    row.place = RandomPlace(*all[c].constraint, random);
    row.room = rooms[random() % std::size(rooms)];
    row.row.constraint = c;
    if (random() % 2 == 0) {
      row.row.state = row.place.state;
      row.row.room = row.room;
      row.row.frame = static_cast<int>(frames.size());
      frames.push_back({row.place.state, row.place.count, row.place.height, 0});
      frames.insert(frames.end(), row.place.frames,
                    row.place.frames + row.place.height);
    } else {
      row.row.beam = (r + 3) % num_rows;
      const int position = positions[tokens[r]];
      if (row.room > 1'000'000) row.room = 1'000'000;
      row.row.room = row.room + position;
      const int entry = position % 2 * num_rows + row.row.beam;
      states[entry] = row.place.state;
      places[entry] = row.place;
    }
    mask_rows.push_back(row.row);
  }
  const int num_words = NumMaskWords(vocab_size);
  const auto on_device = Upload(constraints);
  const auto device_rows = Upload(mask_rows);
  const auto device_states = Upload(states);
  const auto device_parents = Upload(std::vector<int>(num_rows));
  const auto device_tokens = Upload(tokens);
  const auto device_positions = Upload(positions);
  const auto device_places = Upload(places);
  const auto device_frames = Upload(frames);
  const auto cache = Upload(std::vector<CudaMaskCache>(1));
  const auto jobs = Upload(std::vector<CudaMaskJob>(2 * num_rows));
  const auto pushdown_jobs = Upload(std::vector<CudaPushdownJob>(2 * num_rows));
  const std::vector<uint32_t> not_written(size_t(num_rows) * num_words,
                                          kNotWritten);
  const auto masks = Upload(not_written);
  const auto continuing = Upload(not_written);
  const auto found = Upload(std::vector<int>(num_rows, -7));
  const CudaMaskInputs inputs = {.vocab_size = vocab_size,
                                 .num_rows = num_rows,
                                 .num_cached_masks = 1,
                                 .num_places = num_rows,
                                 .constraints = on_device.data(),
                                 .rows = device_rows.data(),
                                 .logits_tokens = device_tokens.data(),
                                 .positions = device_positions.data(),
                                 .parents = device_parents.data(),
                                 .states = device_states.data(),
                                 .places = device_places.data(),
                                 .frames = device_frames.data(),
                                 .cache = cache.data(),
                                 .jobs = jobs.data(),
                                 .pushdown_jobs = pushdown_jobs.data()};
  ASSERT_OK(CudaFindMasks(inputs, num_rows, found.data(), nullptr, 1, nullptr));
  const CudaTokenMasks made_masks = {masks.data(), continuing.data()};
  ASSERT_OK(CudaMakePushdownMasks(inputs, made_masks, *device, nullptr));
  ASSERT_OK(CudaMakeTokenMasks(inputs, made_masks, *device, nullptr));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<uint32_t> made = Download(masks);
  const std::vector<uint32_t> made_continuing = Download(continuing);
  const std::vector<int> places_of = Download(found);
  for (int r = 0; r < num_rows; ++r) {
    const RowPlace& row = rows[r];
    std::vector<uint32_t> expected(num_words, kNotWritten);
    std::vector<uint32_t> expected_continuing = expected;
    if (row.row.constraint >= 0) {
      ASSERT_EQ(places_of[r], r);
      // A beam that is none has any mask.
      if (row.row.beam >= 0 && row.place.state < 0) continue;
      const ConstraintTables tables =
          *all[row.row.constraint].constraint->tables();
      expected = reference::TokenMask(tables, row.place, row.room);
      expected_continuing =
          reference::ContinuingMask(tables, row.place, row.room);
    }
    SCOPED_TRACE("row " + std::to_string(r) + ", state " +
                 std::to_string(row.place.state) + ", height " +
                 std::to_string(row.place.height) + ", room " +
                 std::to_string(row.room));
    const auto words_of = [&](const std::vector<uint32_t>& words) {
      const auto begin = words.begin() + int64_t{r} * num_words;
      return std::vector(begin, begin + num_words);
    };
    ASSERT_EQ(words_of(made), expected);
    ASSERT_EQ(words_of(made_continuing), expected_continuing);
  }
}

TEST(CudaPushdownMasksTest, MasksAreThoseOfTheReference) {
  std::mt19937_64 random(41);
  for (const int vocab_size : {130, 300, 1024, 5001}) {
    SCOPED_TRACE("vocabulary " + std::to_string(vocab_size));
    std::vector<OnDevice> all;
    while (std::ssize(all) < Cases(12, 3)) {
      const auto vocabulary = RandomSyntaxVocabulary(vocab_size, random);
      for (int i = 0; i < 2; ++i) {
        const auto constraint = RandomPushdownConstraint(vocabulary, random);
        if (constraint == nullptr || !constraint->tables()) continue;
        all.push_back(CopyOf(constraint));
      }
    }
    for (const int num_rows : {1, 2, 100}) {
      ASSERT_NO_FATAL_FAILURE(ExpectMasks(all, vocab_size, num_rows, random));
    }
  }
}

// A place of a constraint, and all that its mask depends on beside the room.
struct PooledPlace {
  int constraint = 0;
  PushdownPlace place;
  std::vector<int32_t> key;
};

PooledPlace PooledPlaceOf(const std::vector<OnDevice>& all, int constraint,
                          std::mt19937_64& random) {
  PooledPlace pooled = {
      constraint, RandomPlace(*all[constraint].constraint, random), {}};
  const ConstraintTables tables = *all[constraint].constraint->tables();
  const PushdownPlace& place = pooled.place;
  pooled.key = {constraint, place.state};
  if (!HasTokens(tables, place.state)) return pooled;
  pooled.key.push_back(SimilarCount(
      tables.stacks, AutomatonState(tables, place.state), place.count));
  for (int i = 0; i < place.height; ++i) {
    pooled.key.push_back(place.frames[i].state);
  }
  return pooled;
}

// Masks that the device keeps from step to step.
struct KeptMasks {
  int num_cached = 0;
  DeviceBuffer<CudaMaskCache> cache;
  DeviceBuffer<CudaKeptPlace> places;
  DeviceBuffer<uint32_t> legal;
  DeviceBuffer<uint32_t> continuing;
  std::set<std::vector<int32_t>> keys;  // that had a mask
};

// A step of rows that are at places of a pool.
//   finds_all  keys of earlier steps have a mask
//   num_found  is increased by the rows that have a kept mask
void ExpectStep(const std::vector<OnDevice>& all,
                const DeviceBuffer<CudaConstraint>& constraints,
                const std::vector<PooledPlace>& pool, int vocab_size,
                int num_rows, bool finds_all, std::mt19937_64& random,
                KeptMasks* masks, int* num_found) {
  const auto device = CudaDevice::Open(0);
  ASSERT_OK(device.status());
  const int32_t rooms[] = {0,         1,         3,         9,
                           1'000'000, 1'000'000, 1'000'000, INT32_MAX};
  std::vector<const PooledPlace*> places;
  std::vector<PushdownFrame> frames(1);
  std::vector<CudaMaskRow> rows;
  for (int r = 0; r < num_rows; ++r) {
    const PooledPlace& pooled = pool[random() % pool.size()];
    const PushdownPlace& place = pooled.place;
    places.push_back(&pooled);
    rows.push_back({.constraint = pooled.constraint,
                    .state = place.state,
                    .frame = static_cast<int>(frames.size()),
                    .room = rooms[random() % std::size(rooms)]});
    frames.push_back({place.state, place.count, place.height, 0});
    frames.insert(frames.end(), place.frames, place.frames + place.height);
  }
  const auto device_rows = Upload(rows);
  const auto device_frames = Upload(frames);
  const auto jobs = Upload(std::vector<CudaMaskJob>(2 * num_rows));
  const auto pushdown_jobs = Upload(std::vector<CudaPushdownJob>(2 * num_rows));
  const auto found = Upload(std::vector<int>(num_rows, -7));
  const CudaMaskInputs inputs = {
      .vocab_size = vocab_size,
      .num_rows = num_rows,
      .num_cached_masks = masks->num_cached,
      .num_kept_places = static_cast<int>(masks->places.size()),
      .constraints = constraints.data(),
      .rows = device_rows.data(),
      .frames = device_frames.data(),
      .cache = masks->cache.data(),
      .jobs = jobs.data(),
      .pushdown_jobs = pushdown_jobs.data(),
      .kept_places = masks->places.data()};
  ASSERT_OK(CudaFindMasks(inputs, num_rows, found.data(), nullptr, 1, nullptr));
  ASSERT_OK(CudaMakePushdownMasks(
      inputs, {masks->legal.data(), masks->continuing.data()}, *device,
      nullptr));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<uint32_t> legal = Download(masks->legal);
  const std::vector<uint32_t> continuing = Download(masks->continuing);
  const std::vector<int> numbers = Download(found);
  const int num_words = NumMaskWords(vocab_size);
  for (int r = 0; r < num_rows; ++r) {
    const auto& [constraint, place, key] = *places[r];
    const ConstraintTables tables = *all[constraint].constraint->tables();
    SCOPED_TRACE("row " + std::to_string(r) + ", state " +
                 std::to_string(place.state) + ", count " +
                 std::to_string(place.count) + ", height " +
                 std::to_string(place.height) + ", room " +
                 std::to_string(rows[r].room));
    const bool is_kept = numbers[r] >= num_rows;
    ASSERT_TRUE(is_kept || numbers[r] == r);
    *num_found += is_kept ? 1 : 0;
    if (finds_all && rows[r].room == 1'000'000 &&
        HasTokens(tables, place.state) && masks->keys.contains(key)) {
      ASSERT_TRUE(is_kept);
    }
    const auto words_of = [&](const std::vector<uint32_t>& words) {
      const auto begin = words.begin() + int64_t{numbers[r]} * num_words;
      return std::vector(begin, begin + num_words);
    };
    ASSERT_EQ(words_of(legal),
              reference::TokenMask(tables, place, rows[r].room));
    ASSERT_EQ(words_of(continuing),
              reference::ContinuingMask(tables, place, rows[r].room));
  }
  for (int r = 0; r < num_rows; ++r) {
    if (rows[r].room >= 1 && rows[r].room < INT32_MAX) {
      masks->keys.insert(places[r]->key);
    }
  }
  // As CudaUpdateBeams ends a step.
  CudaMaskCache after = Download(masks->cache)[0];
  after.num_jobs = after.num_pushdown_jobs = 0;
  if (after.num_taken >= masks->num_cached) {
    after = {.epoch = after.epoch + 1};
    masks->keys.clear();
  }
  masks->cache = Upload(std::vector<CudaMaskCache>{after});
}

// Tables of any size: of one entry, so that all places have the same, and with
// room for fewer masks than there are places. No place has the mask of another
// one, with the same state and another stack, say, and those that recur are
// found, whatever their count if it does not matter.
TEST(CudaPushdownMasksTest, PlacesThatRecurHaveTheirMasksKept) {
  constexpr int kVocabSize = 700;
  std::mt19937_64 random(43);
  const auto vocabulary = RandomSyntaxVocabulary(kVocabSize, random);
  std::vector<OnDevice> all;
  const auto add = [&](absl::StatusOr<GrammarLanguage> language) {
    const auto constraint =
        PushdownConstraintOf(std::move(language), vocabulary, random);
    ASSERT_TRUE(constraint != nullptr && constraint->tables());
    all.push_back(CopyOf(constraint));
  };
  for (const char* const schema :
       {R"({"type": "array", "items": {"anyOf": [{"$ref": "#"},
            {"type": "string", "maxLength": 90}]}})",
        R"({"type": "string", "minLength": 80})",
        R"({"type": "string", "maxLength": 2000000})"}) {
    ASSERT_NO_FATAL_FAILURE(
        add(CompileJsonSchemaWithCalls(schema, {.max_unrolled_length = 16,
                                                .max_unrolled_least = 16,
                                                .max_unrolled_lengths = 0})));
  }
  ASSERT_NO_FATAL_FAILURE(
      add(CompileGbnf(PushdownGrammars()[0], {.max_depth = 5})));
  std::vector<CudaConstraint> constraints;
  for (const OnDevice& one : all) {
    constraints.push_back(one.tables.constraint());
  }
  const auto on_device = Upload(constraints);
  std::vector<PooledPlace> pool;
  for (int i = 0; i < 120; ++i) {
    pool.push_back(
        PooledPlaceOf(all, static_cast<int>(i % all.size()), random));
  }
  std::set<std::vector<int32_t>> keys;
  std::set<std::pair<int, int32_t>> states;
  std::set<std::vector<int32_t>> counts;
  for (const auto& [constraint, place, key] : pool) {
    keys.insert(key);
    states.insert({constraint, place.state});
    std::vector<int32_t> exact = key;
    exact.push_back(place.count);
    counts.insert(exact);
  }
  ASSERT_LT(states.size() + 5, keys.size());
  ASSERT_LT(keys.size() + 5, counts.size());
  const int num_words = NumMaskWords(kVocabSize);
  for (const int num_rows : {1, 30, 200}) {
    for (const auto& [num_cached, num_kept] :
         {std::pair{1024, 2048}, {50, 2048}, {1024, 1}, {1024, 9}, {7, 9}}) {
      SCOPED_TRACE(std::to_string(num_rows) + " rows, " +
                   std::to_string(num_cached) + " masks of " +
                   std::to_string(num_kept) + " places");
      const std::vector<uint32_t> not_written(
          size_t(num_rows + num_cached) * num_words, kNotWritten);
      KeptMasks masks = {.num_cached = num_cached,
                         .cache = Upload(std::vector<CudaMaskCache>(1)),
                         .places = Upload(std::vector<CudaKeptPlace>(num_kept)),
                         .legal = Upload(not_written),
                         .continuing = Upload(not_written),
                         .keys = {}};
      int num_found = 0;
      for (int step = 0; step < Cases(25, 6); ++step) {
        SCOPED_TRACE("step " + std::to_string(step));
        ASSERT_NO_FATAL_FAILURE(ExpectStep(all, on_device, pool, kVocabSize,
                                           num_rows, num_kept > 1000, random,
                                           &masks, &num_found));
      }
      // A step of many rows fills few places, and the next one begins anew.
      const bool recurs =
          num_rows > 1 && (num_cached > 1000 || num_rows < num_cached);
      EXPECT_TRUE(!recurs || num_found > 0);
    }
  }
}

}  // namespace
}  // namespace espalier
