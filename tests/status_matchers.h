// gMock matchers for absl::Status and StatusOr.
//
//   EXPECT_THAT(pool.Allocate(), StatusIs(absl::StatusCode::kResourceExhausted,
//                                         HasSubstr("need 7 pages, 3 free")));
//   EXPECT_THAT(Check(), IsOk());
//   ASSERT_OK_AND_ASSIGN(PageRef page, pool.Allocate());
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/status.h"

namespace espalier {

// Code of errors in the input.
inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

}  // namespace espalier

namespace espalier::testing {

inline absl::Status AsStatus(const absl::Status& status) { return status; }
template <typename T>
absl::Status AsStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER_P2(StatusIs, code, message, "") {
  const absl::Status status = AsStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(
             ::testing::MatcherCast<std::string>(message), Message(status),
             result_listener);
}

MATCHER(IsOk, "") {
  *result_listener << AsStatus(arg).ToString();
  return AsStatus(arg).ok();
}

}  // namespace espalier::testing

#define ASSERT_OK(expr) ASSERT_THAT(expr, ::espalier::testing::IsOk())
#define EXPECT_OK(expr) EXPECT_THAT(expr, ::espalier::testing::IsOk())

#define ASSERT_OK_AND_ASSIGN(lhs, expr)                                     \
  ESPALIER_ASSERT_OK_AND_ASSIGN(ESPALIER_CONCAT(status_or_, __LINE__), lhs, \
                                expr)
#define ESPALIER_ASSERT_OK_AND_ASSIGN(result, lhs, expr) \
  auto result = (expr);                                  \
  ASSERT_OK(result.status());                            \
  lhs = *std::move(result)
