// Moving a group's slots and homes against a host that copies them one after
// the other: every word, where the ranges overlap and where they do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <random>
#include <vector>

#include "base/cuda.h"
#include "kernels/resident/cuda_resident.h"
#include "tests/kernels/device_words.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using testing::DeviceWords;

struct GroupMove {
  int num_slots;
  int stride;  // pages of a table
  int from;
  int to;
};
std::ostream& operator<<(std::ostream& out, const GroupMove& move) {
  return out << move.num_slots << " slots of " << move.stride << " pages from "
             << move.from << " to " << move.to;
}

class MoveGroupTest : public ::testing::TestWithParam<GroupMove> {
 protected:
  static constexpr int kNumArrays = 11;

  void SetUp() override {
    const GroupMove& move = GetParam();
    const int num_slots = move.from + move.num_slots + 2;
    for (int i = 0; i < kTables; ++i) arrays_[i] = words_.Add(num_slots);
    num_places_ = num_slots;
    arrays_[kStates] = words_.Add(2 * num_slots);
    has_places_ = move.stride <= 100;
    arrays_[kPlaces] =
        words_.Add(has_places_ ? 2 * num_slots * kPlaceWords : 0);
    arrays_[kTables] = words_.Add(num_slots * move.stride);
    std::mt19937 random(move.from + 31 * move.stride);
    // Slots, some of them -1 (unused); all other words are arbitrary.
    for (int& word : words_.host) {
      word = static_cast<int>(random() % (num_slots + 1)) - 1;
    }
    words_.Upload();
    auto stream = CudaStream::Create();
    ASSERT_OK(stream.status());
    stream_ = *std::move(stream);
  }

  CudaBeamState State() const {
    return {.tokens = words_.At<int>(arrays_[0]),
            .cum_log_probs = words_.At<float>(arrays_[1]),
            .slots = words_.At<int>(arrays_[kSlots]),
            .samples = words_.At<uint32_t>(arrays_[3]),
            .parents = words_.At<int>(arrays_[kParents]),
            .constraint_states = words_.At<int32_t>(arrays_[kStates]),
            .places = has_places_ ? words_.At<PushdownPlace>(arrays_[kPlaces])
                                  : nullptr,
            .sources = words_.At<int>(arrays_[kSources]),
            .tails = words_.At<int>(arrays_[5]),
            .tables = words_.At<int>(arrays_[kTables]),
            .positions = words_.At<int>(arrays_[kPositions]),
            .num_places = num_places_,
            .table_stride = GetParam().stride};
  }

  // Returns the expected words.
  std::vector<int> Moved() const {
    const auto& [num_slots, stride, from, to] = GetParam();
    std::vector<int> moved = words_.host;
    const auto copy = [&](int array, int per_slot) {
      std::copy_n(words_.host.begin() + array + from * per_slot,
                  num_slots * per_slot, moved.begin() + array + to * per_slot);
    };
    for (int i = 0; i < kPositions; ++i) copy(arrays_[i], 1);
    copy(arrays_[kTables], stride);
    copy(arrays_[kStates], 1);
    copy(arrays_[kStates] + num_places_, 1);
    if (has_places_) {
      copy(arrays_[kPlaces], kPlaceWords);
      copy(arrays_[kPlaces] + num_places_ * kPlaceWords, kPlaceWords);
    }
    moved[arrays_[kPositions] + to] = words_.host[arrays_[kPositions] + from];
    for (const int array :
         {arrays_[kSlots], arrays_[kSources], arrays_[kParents]}) {
      for (int i = 0; i < num_slots; ++i) {
        int& slot = moved[array + to + i];
        if (slot >= 0) slot += to - from;
      }
    }
    return moved;
  }

  static constexpr int kSlots = 2, kSources = 4, kParents = 6, kPositions = 7,
                       kTables = 8, kPlaces = 9, kStates = 10;
  static constexpr int kPlaceWords = sizeof(PushdownPlace) / sizeof(int);

  DeviceWords words_;
  std::array<int, kNumArrays> arrays_ = {};
  int num_places_ = 0;
  bool has_places_ = false;
  CudaStream stream_;
};

TEST_P(MoveGroupTest, EveryWordIsWhereTheHostPutsIt) {
  const GroupMove& move = GetParam();
  const std::vector<int> expected = Moved();
  ASSERT_OK(CudaMoveGroup(State(), move.from, move.to, move.num_slots,
                          stream_.get()));
  ASSERT_OK(CudaStatus(cudaStreamSynchronize(stream_.get()), "MoveGroup"));
  words_.Download();
  const auto difference =
      std::mismatch(expected.begin(), expected.end(), words_.host.begin());
  EXPECT_EQ(difference.first - expected.begin(), std::ssize(expected))
      << "the first word that differs";
}

INSTANTIATE_TEST_SUITE_P(
    Moves, MoveGroupTest,
    ::testing::Values(
        // One slot; side by side; far apart.
        GroupMove{1, 1, 1, 0}, GroupMove{7, 5, 9, 2}, GroupMove{40, 33, 500, 3},
        // One place down, two, a few: chains of all lengths.
        GroupMove{2, 4, 1, 0}, GroupMove{15, 3, 4, 3}, GroupMove{16, 3, 4, 3},
        GroupMove{17, 3, 4, 3}, GroupMove{33, 100, 7, 5},
        GroupMove{1000, 40, 37, 0},
        // One less than the slots, and as many.
        GroupMove{100, 17, 99, 0}, GroupMove{100, 17, 100, 0},
        GroupMove{100, 17, 101, 0},
        // Wide, with long tables: more than the grid has threads.
        GroupMove{5000, 512, 1, 0}, GroupMove{5000, 512, 64, 0},
        GroupMove{5000, 512, 5000, 0}));

TEST(MoveGroupErrorsTest, OnlyDownAndWithinTheSlots) {
  CudaBeamState state;
  state.table_stride = 1;
  for (const auto& [from, to, num_slots] :
       {std::array{3, 3, 2}, std::array{3, 4, 2}, std::array{3, -1, 2},
        std::array{3, 1, 0}}) {
    EXPECT_EQ(CudaMoveGroup(state, from, to, num_slots, nullptr).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace espalier
