#include "base/device_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace espalier {
namespace {

using ::testing::HasSubstr;

RC_GTEST_PROP(DeviceLayoutTest, RangesAreAlignedAndApart, ()) {
  DeviceLayout layout;
  const auto sizes =
      *rc::gen::container<std::vector<std::pair<size_t, size_t>>>(
          rc::gen::pair(rc::gen::inRange<size_t>(0, 5000),
                        rc::gen::element<size_t>(1, 4, 12, 16)));
  LayoutAudit audit;
  for (const auto& [count, item_bytes] : sizes) {
    const DeviceRange range = layout.Add("part", count, item_bytes);
    RC_ASSERT(range.offset % DeviceLayout::kAlignment == 0u);
    RC_ASSERT(range.end() <= layout.bytes());
    audit.Use(range, 0, static_cast<int64_t>(count));
  }
  RC_ASSERT(audit.fault() == "");
  RC_ASSERT(layout.ranges().size() == sizes.size());
}

TEST(DeviceLayoutTest, AnEmptyRangeIsNowhere) {
  DeviceLayout layout;
  char memory[512];
  EXPECT_EQ(layout.Add("none", 0, 4).At<int>(memory), nullptr);
  const DeviceRange one = layout.Add("one", 1, 4);
  EXPECT_EQ(one.At<char>(memory), memory);
  EXPECT_EQ(one.At<char>(nullptr), nullptr);
}

TEST(LayoutAuditTest, WhatIsOutsideIsNamed) {
  DeviceLayout layout;
  const DeviceRange sums = layout.Add("sums", 10, 4);
  LayoutAudit audit;
  audit.Use(sums, 0, 10);
  EXPECT_EQ(audit.fault(), "");
  audit.Use(sums, 10, 0);  // nothing
  EXPECT_EQ(audit.fault(), "");
  audit.Use(sums, 8, 3);
  EXPECT_EQ(audit.fault(), "items [8, 11) of sums, which has 10");
}

TEST(LayoutAuditTest, WhatOverlapsIsNamed) {
  DeviceLayout layout;
  const DeviceRange a = layout.Add("a", 100, 4);
  LayoutAudit audit;
  audit.Use(a, 50, 50);
  audit.Use(a, 0, 50);
  EXPECT_EQ(audit.fault(), "");
  audit.Use(a, 49, 1);
  EXPECT_THAT(audit.fault(), HasSubstr("overlaps a at [0, 200)"));
}

}  // namespace
}  // namespace espalier
