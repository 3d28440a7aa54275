#include "examples/cli/output/cut_short.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "tests/status_matchers.h"

namespace espalier::cli {
namespace {

using ::espalier::testing::StatusIs;

TEST(CutShortTest, WhatWasThrownIsSaid) {
  EXPECT_THAT(
      CutShort(std::make_exception_ptr(std::runtime_error("no luck"))),
      StatusIs(absl::StatusCode::kInternal, "the run was cut short: no luck"));
  EXPECT_THAT(CutShort(std::make_exception_ptr(std::bad_alloc())),
              StatusIs(absl::StatusCode::kInternal,
                       "the run was cut short: std::bad_alloc"));
  EXPECT_THAT(CutShort(std::make_exception_ptr(5)),
              StatusIs(absl::StatusCode::kInternal, "the run was cut short"));
}

}  // namespace
}  // namespace espalier::cli
