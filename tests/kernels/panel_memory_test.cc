#include "kernels/panel_memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace espalier {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool HoldsOnly(const PanelMemory& memory, size_t num_bytes, int value) {
  for (size_t i = 0; i < num_bytes; ++i) {
    if (memory.data()[i] != static_cast<std::byte>(value)) return false;
  }
  return true;
}

// Expected sizes: less than a block, several blocks, and none.
class PanelArenaTest : public ::testing::TestWithParam<size_t> {};

INSTANTIATE_TEST_SUITE_P(Expected, PanelArenaTest,
                         ::testing::Values(0, 1000, 2 * kMiB, 9 * kMiB));

TEST_P(PanelArenaTest, MemoriesAreApartAndAligned) {
  PanelArena arena(GetParam());
  const size_t sizes[] = {1, 64, 65, 100'000, 3 * kMiB, 7, 5 * kMiB, 2 * kMiB};
  std::vector<PanelMemory> memories;
  for (const size_t size : sizes) {
    memories.push_back(arena.Allocate(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memories.back().data()) % 64, 0);
    std::memset(memories.back().data(), static_cast<int>(memories.size()),
                size);
  }
  for (size_t i = 0; i < memories.size(); ++i) {
    EXPECT_TRUE(HoldsOnly(memories[i], sizes[i], static_cast<int>(i) + 1)) << i;
  }
}

TEST_P(PanelArenaTest, MemoryOutlivesArenaAndOthers) {
  std::optional<PanelArena> arena(GetParam());
  std::optional<PanelMemory> other = arena->Allocate(1000);
  PanelMemory memory = arena->Allocate(1000);
  std::memset(other->data(), 1, 1000);
  arena.reset();
  other.reset();
  std::memset(memory.data(), 2, 1000);
  EXPECT_TRUE(HoldsOnly(memory, 1000, 2));
}

TEST(PanelArenaBlockTest, SmallMatricesLieOneBehindTheOther) {
  PanelArena arena(3 * kMiB);
  const PanelMemory first = arena.Allocate(100'000);
  const PanelMemory second = arena.Allocate(2 * kMiB);
  EXPECT_EQ(second.data() - first.data(), 100'032);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % (2 * kMiB), 0);
}

}  // namespace
}  // namespace espalier
