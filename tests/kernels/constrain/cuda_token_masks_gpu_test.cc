// Masks made on the device, against the reference: the same bits, for jobs of
// several constraints in one launch, and nothing else is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/constraint_state.h"
#include "base/cuda.h"
#include "constrain/regex_language.h"
#include "kernels/constrain/cuda_constraint_tables.h"
#include "kernels/constrain/cuda_token_masks.h"
#include "kernels/constrain/token_masks.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/random_constraints.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::Download;
using ::espalier::testing::RandomTextConstraint;
using ::espalier::testing::RandomTokenVocabulary;
using ::espalier::testing::StatusIs;
using ::espalier::testing::Upload;

constexpr uint32_t kUntouched = 0xABCD1234u;

std::vector<uint32_t> Words(const std::vector<uint32_t>& all, int64_t first,
                            int count) {
  return {all.begin() + first, all.begin() + first + count};
}

// Constraints of one vocabulary, here and on the device.
class Constraints {
 public:
  explicit Constraints(int vocab_size) : vocab_size_(vocab_size) {}

  void Add(std::shared_ptr<const TextConstraint> constraint) {
    const ConstraintTables tables = *constraint->tables();
    const auto copy_of =
        [this](
            const TokenTexts& texts) -> std::shared_ptr<const CudaTokenTexts> {
      if (texts.indptr == nullptr) return nullptr;
      auto copy = CudaTokenTexts::Create(texts, vocab_size_);
      EXPECT_OK(copy.status());
      return std::make_shared<const CudaTokenTexts>(*std::move(copy));
    };
    auto copy = CudaConstraintTables::Create(tables, copy_of(tables.inside),
                                             copy_of(tables.first));
    ASSERT_OK(copy.status());
    on_device_.push_back(*std::move(copy));
    constraints_.push_back(std::move(constraint));
  }

  DeviceBuffer<CudaConstraint> UploadAll() const {
    std::vector<CudaConstraint> constraints;
    for (const CudaConstraintTables& constraint : on_device_) {
      constraints.push_back(constraint.constraint());
    }
    return Upload(constraints);
  }

  // Makes all masks in one launch, sized for `num_more` jobs more.
  void ExpectMasks(const std::vector<CudaMaskJob>& jobs, int num_masks,
                   int num_more) const {
    const auto device = CudaDevice::Open(0);
    ASSERT_OK(device.status());
    std::vector<CudaMaskJob> all = jobs;
    // More jobs, which are not to be done.
    for (int i = 0; i < num_more; ++i) all.push_back({.mask = i % num_masks});
    const auto constraints = UploadAll();
    const auto cache = Upload(std::vector<CudaMaskCache>{
        {.num_jobs = static_cast<int>(jobs.size())}});
    const auto device_jobs = Upload(all);
    const int num_words = NumMaskWords(vocab_size_);
    const std::vector<uint32_t> untouched(size_t(num_masks) * num_words,
                                          kUntouched);
    const auto masks = Upload(untouched);
    const auto continuing = Upload(untouched);
    ASSERT_OK(CudaMakeTokenMasks({.vocab_size = vocab_size_,
                                  .num_rows = static_cast<int>(all.size()),
                                  .constraints = constraints.data(),
                                  .cache = cache.data(),
                                  .jobs = device_jobs.data()},
                                 {masks.data(), continuing.data()}, *device,
                                 nullptr));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<uint32_t> found = Download(masks);
    const std::vector<uint32_t> found_continuing = Download(continuing);
    std::vector<const CudaMaskJob*> job_of(num_masks);
    for (const CudaMaskJob& job : jobs) job_of[job.mask] = &job;
    for (int m = 0; m < num_masks; ++m) {
      std::vector<uint32_t> expected(num_words, kUntouched);
      std::vector<uint32_t> expected_continuing = expected;
      if (const CudaMaskJob* const job = job_of[m]; job != nullptr) {
        const ConstraintTables tables =
            *constraints_[job->constraint]->tables();
        expected = reference::TokenMask(tables, {job->state, job->room});
        expected_continuing =
            reference::ContinuingMask(tables, {job->state, job->room});
      }
      const int64_t first = int64_t{m} * num_words;
      ASSERT_EQ(Words(found, first, num_words), expected) << "mask " << m;
      ASSERT_EQ(Words(found_continuing, first, num_words), expected_continuing)
          << "mask " << m;
    }
  }

  int size() const { return static_cast<int>(constraints_.size()); }
  const TextConstraint& at(int i) const { return *constraints_[i]; }

 private:
  const int vocab_size_;
  std::vector<std::shared_ptr<const TextConstraint>> constraints_;
  std::vector<CudaConstraintTables> on_device_;
};

TEST(CudaTokenMasksTest, MasksAreThoseOfTheReference) {
  std::mt19937_64 random(21);
  for (const int vocab_size : {33, 1024, 2000, 5001}) {
    SCOPED_TRACE("vocabulary " + std::to_string(vocab_size));
    Constraints constraints(vocab_size);
    while (constraints.size() < Cases(8, 2)) {
      const auto vocabulary = RandomTokenVocabulary(vocab_size, random);
      for (int i = 0; i < 2; ++i) {  // share it
        const auto constraint = RandomTextConstraint(vocabulary, random);
        if (constraint == nullptr) continue;
        ASSERT_NO_FATAL_FAILURE(constraints.Add(constraint));
      }
    }
    for (const int num_jobs : {1, 2, 100}) {
      std::vector<int> places(num_jobs + 5);
      std::iota(places.begin(), places.end(), 0);
      std::ranges::shuffle(places, random);
      std::vector<CudaMaskJob> jobs;
      for (int j = 0; j < num_jobs; ++j) {
        const int constraint = static_cast<int>(random() % constraints.size());
        // With the one after an end id.
        const int num_states = constraints.at(constraint).texts().num_states();
        const int32_t rooms[] = {0, 1, 2, 3, 9, 1'000'000, INT32_MAX};
        jobs.push_back({.constraint = constraint,
                        .state = static_cast<int32_t>(
                            random() % 2 == 0 ? num_states - 2 + random() % 3
                                              : random() % (num_states + 1)),
                        .room = rooms[random() % std::size(rooms)],
                        .mask = places[j]});
      }
      ASSERT_NO_FATAL_FAILURE(
          constraints.ExpectMasks(jobs, num_jobs + 5, num_jobs % 3));
    }
  }
}

TEST(CudaTokenMasksTest, SizesMustBePossible) {
  const auto device = CudaDevice::Open(0);
  ASSERT_OK(device.status());
  const auto is_refused = StatusIs(absl::StatusCode::kInvalidArgument,
                                   "cannot make masks of 0 rows of 10 tokens");
  const CudaMaskInputs inputs = {.vocab_size = 10};
  EXPECT_THAT(CudaMakeTokenMasks(inputs, {}, *device, nullptr), is_refused);
  EXPECT_THAT(CudaAdvancePlaces(inputs, nullptr), is_refused);
  EXPECT_THAT(CudaFindMasks(inputs, 0, nullptr, nullptr, 1, nullptr),
              is_refused);
}

// Steps whose rows come upon states again and again, with room enough and with
// too little, in a cache of any size: each row has the mask of its place, and
// once all states are kept nothing is made.
TEST(CudaTokenMasksTest, EachRowFindsTheMaskOfItsPlace) {
  const auto device = CudaDevice::Open(0);
  ASSERT_OK(device.status());
  std::mt19937_64 random(22);
  constexpr int kVocabSize = 1100;
  Constraints constraints(kVocabSize);
  const auto vocabulary = RandomTokenVocabulary(kVocabSize, random);
  while (constraints.size() < 4) {
    const auto constraint = RandomTextConstraint(vocabulary, random);
    if (constraint == nullptr) continue;
    ASSERT_NO_FATAL_FAILURE(constraints.Add(constraint));
  }
  const int num_words = NumMaskWords(kVocabSize);
  uint32_t epoch = 1;
  for (const int num_rows : {1, 40, 300}) {
    for (const int num_cached : {1, 7, 1024}) {
      const auto on_device = constraints.UploadAll();
      // Constraints still have what the last cache left.
      epoch += 100;
      auto cache = Upload(std::vector<CudaMaskCache>{{.epoch = epoch}});
      const std::vector<uint32_t> untouched(
          size_t(num_rows + num_cached) * num_words, kUntouched);
      const auto masks = Upload(untouched);
      const auto continuing = Upload(untouched);
      const auto jobs = Upload(std::vector<CudaMaskJob>(2 * num_rows));
      int64_t num_made = 0;
      for (int step = 0; step < Cases(30, 8); ++step) {
        SCOPED_TRACE(std::to_string(num_rows) + " rows, " +
                     std::to_string(num_cached) + " masks, step " +
                     std::to_string(step));
        std::vector<CudaMaskRow> rows(num_rows);
        const int num_places = num_rows + 2;
        std::vector<int32_t> states(2 * num_places);
        std::vector<int> parents(num_places, -1);
        std::vector<TokenId> fed(num_places);
        std::vector<int> tokens(num_rows);
        std::iota(tokens.begin(), tokens.end(), 0);
        std::ranges::shuffle(tokens, random);
        std::vector<int> positions(num_rows);
        std::vector<MaskedState> places(num_rows);
        std::set<int> parents_of;
        for (int row = 0; row < num_rows; ++row) {
          // One half of the states is read, and the other one written.
          positions[row] = static_cast<int>(random() % 25) * 2 + step % 2;
        }
        for (int row = 0; row < num_rows; ++row) {
          if (random() % 8 == 0) continue;  // without a constraint
          const int constraint =
              static_cast<int>(random() % constraints.size());
          const int num_states =
              constraints.at(constraint).texts().num_states();
          const int32_t rooms[] = {0, 1, 2, 3, 5, 9, 100, 100, 100, 100};
          places[row] = {static_cast<int32_t>(random() % (num_states + 1)),
                         rooms[random() % std::size(rooms)]};
          const bool is_beam = random() % 2 == 0;
          rows[row] = {.constraint = constraint,
                       .state = places[row].state,
                       .room = places[row].room};
          if (!is_beam) continue;
          // A beam after a token of its parent, if it has one.
          const int position = positions[tokens[row]];
          const int parent = (row * 7 + 3) % num_places;
          const TextConstraint& texts = constraints.at(constraint);
          const auto legal =
              texts.LegalTokens(places[row].state, 1'000'000).tokens;
          if (parents_of.insert(parent).second && !legal.empty() &&
              random() % 8 != 0) {
            parents[row + 2] = parent;
            fed[row + 2] = legal[random() % legal.size()];
            states[(position + 1) % 2 * num_places + parent] =
                places[row].state;
            places[row].state =
                AdvanceState(*texts.tables(), places[row].state, fed[row + 2]);
          } else {
            places[row].state = -1;
          }
          rows[row] = {.constraint = constraint,
                       .beam = row + 2,
                       .room = places[row].room + positions[tokens[row]]};
        }
        const auto device_rows = Upload(rows);
        const auto device_parents = Upload(parents);
        const auto device_fed = Upload(fed);
        const auto device_states = Upload(states);
        const auto device_tokens = Upload(tokens);
        const auto device_positions = Upload(positions);
        constexpr int kStride = 3;
        const auto numbers = Upload(std::vector<int>(kStride * num_rows, -1));
        const auto again = Upload(std::vector<int>(kStride * num_rows, -1));
        const CudaMaskInputs inputs = {.vocab_size = kVocabSize,
                                       .num_rows = num_rows,
                                       .num_cached_masks = num_cached,
                                       .num_places = num_places,
                                       .constraints = on_device.data(),
                                       .rows = device_rows.data(),
                                       .logits_tokens = device_tokens.data(),
                                       .positions = device_positions.data(),
                                       .parents = device_parents.data(),
                                       .tokens = device_fed.data(),
                                       .states = device_states.data(),
                                       .cache = cache.data(),
                                       .jobs = jobs.data()};
        ASSERT_OK(CudaFindMasks(inputs, num_rows, numbers.data(), again.data(),
                                kStride, nullptr));
        ASSERT_OK(CudaMakeTokenMasks(inputs, {masks.data(), continuing.data()},
                                     *device, nullptr));
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        const auto found_numbers = Download(numbers);
        ASSERT_EQ(Download(again), found_numbers);
        const auto found = Download(masks);
        const auto found_states = Download(device_states);
        const auto found_continuing = Download(continuing);
        for (int row = 0; row < num_rows; ++row) {
          const int mask = found_numbers[kStride * row];
          if (rows[row].constraint < 0) {
            ASSERT_EQ(mask, -1);
            continue;
          }
          ASSERT_GE(mask, 0);
          ASSERT_TRUE(mask == row || mask >= num_rows) << mask;
          if (rows[row].beam >= 0) {
            ASSERT_EQ(found_states[positions[tokens[row]] % 2 * num_places +
                                   rows[row].beam],
                      places[row].state);
          }
          if (rows[row].beam >= 0 && places[row].state < 0) continue;
          SCOPED_TRACE("row " + std::to_string(row) + ", state " +
                       std::to_string(places[row].state) + ", room " +
                       std::to_string(places[row].room));
          const ConstraintTables tables =
              *constraints.at(rows[row].constraint).tables();
          const int64_t first = int64_t{mask} * num_words;
          ASSERT_EQ(Words(found, first, num_words),
                    reference::TokenMask(tables, places[row]));
          ASSERT_EQ(Words(found_continuing, first, num_words),
                    reference::ContinuingMask(tables, places[row]));
        }
        // As CudaUpdateBeams ends a step.
        CudaMaskCache after = Download(cache)[0];
        num_made = after.num_jobs;
        after.num_jobs = 0;
        if (after.num_taken >= num_cached) {
          after = {.epoch = after.epoch + 1, .num_taken = 0, .num_jobs = 0};
        }
        cache = Upload(std::vector<CudaMaskCache>{after});
      }
      if (num_cached == 1024 && num_rows > 1) {
        EXPECT_LT(num_made, num_rows);
      }
    }
  }
}

}  // namespace
}  // namespace espalier
