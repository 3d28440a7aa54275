// Masks of texts with stacks made on the device, against the reference: the
// same bits, for places of several constraints in one launch, given by the host
// or kept of beams, and nothing else is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

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
  std::vector<int32_t> states(num_rows, -1);
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
      states[row.row.beam] = row.place.state;
      places[(position % 2) * num_rows + row.row.beam] = row.place;
    }
    mask_rows.push_back(row.row);
  }
  const int num_words = NumMaskWords(vocab_size);
  const auto on_device = Upload(constraints);
  const auto device_rows = Upload(mask_rows);
  const auto device_states = Upload(states);
  const auto device_tokens = Upload(tokens);
  const auto device_positions = Upload(positions);
  const auto device_places = Upload(places);
  const auto device_frames = Upload(frames);
  const auto cache = Upload(std::vector<CudaMaskCache>(1));
  const auto jobs = Upload(std::vector<CudaMaskJob>(2 * num_rows));
  const auto pushdown_jobs = Upload(std::vector<CudaPushdownJob>(num_rows));
  const auto masks =
      Upload(std::vector<uint32_t>(size_t(num_rows) * num_words, kNotWritten));
  const auto found = Upload(std::vector<int>(num_rows, -7));
  const CudaMaskInputs inputs = {.vocab_size = vocab_size,
                                 .num_rows = num_rows,
                                 .num_cached_masks = 1,
                                 .num_places = num_rows,
                                 .constraints = on_device.data(),
                                 .rows = device_rows.data(),
                                 .states = device_states.data(),
                                 .logits_tokens = device_tokens.data(),
                                 .positions = device_positions.data(),
                                 .places = device_places.data(),
                                 .frames = device_frames.data(),
                                 .cache = cache.data(),
                                 .jobs = jobs.data(),
                                 .pushdown_jobs = pushdown_jobs.data()};
  ASSERT_OK(CudaFindMasks(inputs, num_rows, found.data(), nullptr, 1, nullptr));
  ASSERT_OK(CudaMakePushdownMasks(inputs, masks.data(), *device, nullptr));
  ASSERT_OK(CudaMakeTokenMasks(inputs, masks.data(), *device, nullptr));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<uint32_t> made = Download(masks);
  const std::vector<int> places_of = Download(found);
  for (int r = 0; r < num_rows; ++r) {
    const RowPlace& row = rows[r];
    std::vector<uint32_t> expected(num_words, kNotWritten);
    if (row.row.constraint >= 0) {
      ASSERT_EQ(places_of[r], r);
      // A beam that is none has any mask.
      if (row.row.beam >= 0 && row.place.state < 0) continue;
      expected = reference::TokenMask(
          *all[row.row.constraint].constraint->tables(), row.place, row.room);
    }
    const auto begin = made.begin() + int64_t{r} * num_words;
    ASSERT_EQ(std::vector(begin, begin + num_words), expected)
        << "row " << r << ", state " << row.place.state << ", height "
        << row.place.height << ", room " << row.room;
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

}  // namespace
}  // namespace espalier
