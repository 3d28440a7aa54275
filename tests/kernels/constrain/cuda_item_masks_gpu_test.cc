// Masks of items made on the device, against the reference: the same bits, for
// jobs of several constraints in one launch, and nothing else is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "kernels/constrain/cuda_item_masks.h"
#include "kernels/constrain/cuda_item_tables.h"
#include "kernels/constrain/token_masks.h"
#include "tests/device_arrays.h"
#include "tests/few_cases.h"
#include "tests/kernels/constrain/random_items.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Cases;
using ::espalier::testing::Download;
using ::espalier::testing::RandomItemConstraint;
using ::espalier::testing::StatusIs;
using ::espalier::testing::TablesOf;
using ::espalier::testing::Upload;

constexpr uint32_t kUntouchedWord = 0xABCD1234u;

// ItemConstraints of one vocabulary, here and on the device.
class ItemConstraints {
 public:
  explicit ItemConstraints(int vocab_size) : vocab_size_(vocab_size) {}

  // With the trie of the last one, if this is of the same catalogue.
  void Add(std::shared_ptr<const ItemConstraint> constraint) {
    if (constraints_.empty() ||
        &constraints_.back()->items() != &constraint->items()) {
      auto copy = CudaItemTrie::Create(constraint->item_tables().trie);
      ASSERT_OK(copy.status());
      trie_ = std::make_shared<const CudaItemTrie>(*std::move(copy));
    }
    auto copy = CudaItemTables::Create(constraint->item_tables(), trie_);
    ASSERT_OK(copy.status());
    on_device_.push_back(*std::move(copy));
    constraints_.push_back(std::move(constraint));
  }

  // Makes all masks in one launch, of `num_more` rows more than there are jobs.
  void ExpectMasks(const std::vector<CudaMaskJob>& jobs, int num_masks,
                   int num_more) const {
    const auto device = CudaDevice::Open(0);
    ASSERT_OK(device.status());
    std::vector<CudaConstraint> on_device(on_device_.size());
    for (size_t i = 0; i < on_device.size(); ++i) {
      on_device[i].tables = {.vocab_size = vocab_size_,
                             .items = on_device_[i].tables()};
    }
    const auto num_jobs = static_cast<int>(jobs.size());
    const int num_rows = num_jobs + num_more;
    // Jobs of items are last, in reverse order. Others are not to be done.
    std::vector<CudaMaskJob> all(size_t{2} * num_rows);
    std::ranges::reverse_copy(jobs, all.end() - num_jobs);
    const auto constraints = Upload(on_device);
    const auto cache = Upload(
        std::vector<CudaMaskCache>{{.num_jobs = 1, .num_item_jobs = num_jobs}});
    const auto device_jobs = Upload(all);
    const int num_words = NumMaskWords(vocab_size_);
    const std::vector<uint32_t> untouched(size_t(num_masks) * num_words,
                                          kUntouchedWord);
    const auto masks = Upload(untouched);
    const auto continuing = Upload(untouched);
    ASSERT_OK(CudaMakeItemMasks({.vocab_size = vocab_size_,
                                 .num_rows = num_rows,
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
      std::vector<uint32_t> expected(num_words, kUntouchedWord);
      std::vector<uint32_t> expected_continuing = expected;
      if (const CudaMaskJob* const job = job_of[m]; job != nullptr) {
        const ConstraintTables tables =
            TablesOf(*constraints_[job->constraint], vocab_size_);
        expected = reference::TokenMask(tables, {job->state, job->room});
        expected_continuing =
            reference::ContinuingMask(tables, {job->state, job->room});
      }
      SCOPED_TRACE(
          "mask " + std::to_string(m) + ", state " +
          std::to_string(job_of[m] == nullptr ? -2 : job_of[m]->state));
      const auto words_of = [&](const std::vector<uint32_t>& words) {
        const auto begin = words.begin() + int64_t{m} * num_words;
        return std::vector(begin, begin + num_words);
      };
      ASSERT_EQ(words_of(found), expected);
      ASSERT_EQ(words_of(found_continuing), expected_continuing);
    }
  }

  int size() const { return static_cast<int>(constraints_.size()); }
  const ItemConstraint& at(int i) const { return *constraints_[i]; }

 private:
  const int vocab_size_;
  std::vector<std::shared_ptr<const ItemConstraint>> constraints_;
  std::vector<CudaItemTables> on_device_;
  std::shared_ptr<const CudaItemTrie> trie_;
};

std::vector<int> ShuffledMasks(int count, std::mt19937& random) {
  std::vector<int> places(count);
  std::iota(places.begin(), places.end(), 0);
  std::ranges::shuffle(places, random);
  return places;
}

// The largest number has more jobs than there are warps.
TEST(CudaItemMasksTest, MasksAreThoseOfTheReference) {
  std::mt19937 random(23);
  for (const int vocab_size : {3, 33, 1024, 1025, 5001, 40'000}) {
    SCOPED_TRACE("vocabulary " + std::to_string(vocab_size));
    ItemConstraints constraints(vocab_size);
    while (constraints.size() < Cases(8, 2)) {
      ASSERT_NO_FATAL_FAILURE(
          constraints.Add(RandomItemConstraint(vocab_size, random)));
    }
    for (const int num_jobs : {1, 2, 100, vocab_size > 2000 ? 300 : 10'000}) {
      const std::vector<int> places = ShuffledMasks(num_jobs + 5, random);
      std::vector<CudaMaskJob> jobs;
      for (int j = 0; j < num_jobs; ++j) {
        const int constraint = static_cast<int>(random() % constraints.size());
        const auto num_nodes = static_cast<int32_t>(
            constraints.at(constraint).items().num_nodes());
        // With none, the root, the one after an end id.
        const int32_t states[] = {-1, 0, num_nodes};
        const int32_t rooms[] = {0, 1, 2, 3, 4, 5, 6, 7, INT32_MAX};
        jobs.push_back({.constraint = constraint,
                        .state = random() % 4 == 0 ? states[random() % 3]
                                                   : static_cast<int32_t>(
                                                         random() % num_nodes),
                        .room = rooms[random() % std::size(rooms)],
                        .mask = places[j]});
      }
      ASSERT_NO_FATAL_FAILURE(
          constraints.ExpectMasks(jobs, num_jobs + 5, num_jobs % 3));
    }
  }
}

// Numbers of children beside those that a warp reads at once, from any node
// on: some are excluded in half of the constraints.
TEST(CudaItemMasksTest, AnyNumberOfChildren) {
  constexpr int kVocabSize = 3000;
  std::mt19937 random(5);
  Lists items;
  Lists excluded;
  TokenId first = 0;
  for (const int num_children :
       {1,   2,   3,   4,   5,   31,   32,   33,   127,  128,  129, 130,
        511, 512, 513, 514, 515, 1023, 1024, 1025, 2047, 2049, 3000}) {
    std::vector<TokenId> tokens(kVocabSize);
    std::iota(tokens.begin(), tokens.end(), 0);
    std::ranges::shuffle(tokens, random);
    for (int i = 0; i < num_children; ++i) {
      items.push_back({first, tokens[i]});
      if (random() % 50 == 0) excluded.push_back(items.back());
    }
    ++first;
  }
  const auto catalogue = std::make_shared<const ItemCatalogue>(ListsOf(items));
  ItemConstraints constraints(kVocabSize);
  ASSERT_NO_FATAL_FAILURE(
      constraints.Add(std::make_shared<const ItemConstraint>(catalogue)));
  ASSERT_NO_FATAL_FAILURE(
      constraints.Add(std::make_shared<const ItemConstraint>(
          catalogue, ItemOptions{.excluded = ListsOf(excluded)})));
  std::vector<CudaMaskJob> jobs;
  for (int32_t state = 0; state <= first; ++state) {
    for (const int constraint : {0, 1}) {
      jobs.push_back({.constraint = constraint,
                      .state = state,
                      .room = 4,
                      .mask = static_cast<int>(jobs.size())});
    }
  }
  ASSERT_NO_FATAL_FAILURE(
      constraints.ExpectMasks(jobs, static_cast<int>(jobs.size()), 0));
  for (const CudaMaskJob& job : jobs) {  // with all warps for one
    ASSERT_NO_FATAL_FAILURE(
        constraints.ExpectMasks({job}, static_cast<int>(jobs.size()), 0));
  }
}

TEST(CudaItemMasksTest, SizesMustBePossible) {
  const auto device = CudaDevice::Open(0);
  ASSERT_OK(device.status());
  EXPECT_THAT(
      CudaMakeItemMasks({.vocab_size = 0, .num_rows = 3}, {}, *device, nullptr),
      StatusIs(absl::StatusCode::kInvalidArgument,
               "cannot make masks of 3 rows of 0 tokens"));
}

}  // namespace
}  // namespace espalier
