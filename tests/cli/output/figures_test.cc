#include "examples/cli/output/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier::cli {
namespace {

using ::testing::StartsWith;

TEST(FiguresTest, AllBeamsAreToldWhereTheyAreMoreThanIsReturned) {
  EngineStats stats;
  stats.num_generated_tokens = 8;
  stats.num_decode_rows = 7;
  EXPECT_THAT(FormatFigures(stats, 1, absl::Seconds(2)),
              StartsWith("1 request in 2.000 s: 8 tokens returned, "
                         "4 tokens/s\n"));
  stats.num_accepted_tokens = 13;
  EXPECT_THAT(FormatFigures(stats, 1, absl::Seconds(2)),
              StartsWith("1 request in 2.000 s: 8 tokens returned, "
                         "4 tokens/s (10/s with all beams)\n"));
}

}  // namespace
}  // namespace espalier::cli
