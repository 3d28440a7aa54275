#include "base/make_largest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsNull;
using ::testing::Pointee;

using MadeSize = absl::StatusOr<std::unique_ptr<int64_t>>;

// Allocates up to `available`, in pieces of 10.
struct SizeMaker {
  int64_t available = 0;
  std::vector<int64_t>* tried = nullptr;

  MadeSize operator()(int64_t size) const {
    tried->push_back(size);
    if (size < 10) return InvalidArgument("holds no piece");
    if (size > available) return ResourceExhausted("no memory");
    return std::make_unique<int64_t>(size);
  }
};

TEST(MakeLargestTest, HalvesUntilThereIsMemory) {
  std::vector<int64_t> tried;
  MadeSize made = MakeLargest(100, SizeMaker{30, &tried});
  ASSERT_OK(made.status());
  EXPECT_THAT(*made, Pointee(25));
  EXPECT_THAT(tried, ElementsAre(100, 50, 25));
  made = MakeLargest(std::numeric_limits<int64_t>::max(),
                     SizeMaker{1 << 20, &tried});
  ASSERT_OK(made.status());
  EXPECT_THAT(*made, Pointee((1 << 20) - 1));
}

TEST(MakeLargestTest, NothingIsNoError) {
  std::vector<int64_t> tried;
  MadeSize made = MakeLargest(100, SizeMaker{0, &tried});
  ASSERT_OK(made.status());
  EXPECT_THAT(*made, IsNull());
  EXPECT_THAT(tried, ElementsAre(100, 50, 25, 12, 6));
  made = MakeLargest(0, SizeMaker{100, &tried});
  ASSERT_OK(made.status());
  EXPECT_THAT(*made, IsNull());
}

// As a default that holds no page of this model.
TEST(MakeLargestTest, ASizeThatIsTooSmallIsNothing) {
  std::vector<int64_t> tried;
  const MadeSize made = MakeLargest(9, SizeMaker{100, &tried});
  ASSERT_OK(made.status());
  EXPECT_THAT(*made, IsNull());
  EXPECT_THAT(tried, ElementsAre(9));
}

TEST(MakeLargestTest, OtherErrorsAreReturned) {
  const auto fail = [](int64_t) -> MadeSize { return Internal("broken"); };
  EXPECT_THAT(MakeLargest(100, fail).status(),
              StatusIs(absl::StatusCode::kInternal, "broken"));
}

}  // namespace
}  // namespace espalier
