#include "examples/cli/output/loading_progress.h"

#include <gtest/gtest.h>

namespace espalier::cli {
namespace {

TEST(LoadingProgressTest, TheLineSaysHowFarAndHowFast) {
  EXPECT_EQ(FormatLoading(3'210'000'000, 16'060'000'000, absl::Seconds(2)),
            "loading the model: 3.2 of 16.1 GB, 1.6 GB/s");
  EXPECT_EQ(FormatLoading(0, 16'060'000'000, absl::ZeroDuration()),
            "loading the model: 0.0 of 16.1 GB, 0.0 GB/s");
}

}  // namespace
}  // namespace espalier::cli
