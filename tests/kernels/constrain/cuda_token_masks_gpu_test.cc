// Masks made on the device, against the reference: the same bits, for jobs of
// several constraints in one launch, and nothing else is written.
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

  // Makes all masks in one launch, sized for `num_more` jobs more.
  void ExpectMasks(const std::vector<CudaMaskJob>& jobs, int num_masks,
                   int num_more) const {
    const auto device = CudaDevice::Open(0);
    ASSERT_OK(device.status());
    std::vector<ConstraintTables> tables;
    for (const CudaConstraintTables& constraint : on_device_) {
      tables.push_back(constraint.tables());
    }
    std::vector<CudaMaskJob> all = jobs;
    // More jobs, which are not to be done.
    for (int i = 0; i < num_more; ++i) all.push_back({.mask = i % num_masks});
    const auto device_tables = Upload(tables);
    const auto num_jobs =
        Upload(std::vector<int>{static_cast<int>(jobs.size())});
    const auto device_jobs = Upload(all);
    const int num_words = NumMaskWords(vocab_size_);
    const auto masks = Upload(
        std::vector<uint32_t>(size_t(num_masks) * num_words, kUntouched));
    ASSERT_OK(CudaMakeTokenMasks({.vocab_size = vocab_size_,
                                  .max_jobs = static_cast<int>(all.size()),
                                  .constraints = device_tables.data(),
                                  .num_jobs = num_jobs.data(),
                                  .jobs = device_jobs.data()},
                                 masks.data(), *device, nullptr));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<uint32_t> found = Download(masks);
    std::vector<const CudaMaskJob*> job_of(num_masks);
    for (const CudaMaskJob& job : jobs) job_of[job.mask] = &job;
    for (int m = 0; m < num_masks; ++m) {
      std::vector<uint32_t> expected(num_words, kUntouched);
      if (const CudaMaskJob* const job = job_of[m]; job != nullptr) {
        expected = reference::TokenMask(
            *constraints_[job->constraint]->tables(), {job->state, job->room});
      }
      const auto begin = found.begin() + int64_t{m} * num_words;
      ASSERT_EQ(std::vector(begin, begin + num_words), expected)
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
  EXPECT_THAT(CudaMakeTokenMasks({.vocab_size = 10, .max_jobs = 0}, nullptr,
                                 *device, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "cannot make up to 0 masks of 10 tokens"));
}

}  // namespace
}  // namespace espalier
