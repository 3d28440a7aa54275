#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/check.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;

absl::StatusOr<std::unique_ptr<int>> Make(bool good) {
  if (!good) return ResourceExhausted("need ", 7, " pages, ", 3, " free");
  return std::make_unique<int>(5);
}

absl::StatusOr<int> Use(bool good) {
  ASSIGN_OR_RETURN(const std::unique_ptr<int> value, Make(good));
  RETURN_IF_ERROR(absl::OkStatus());
  return *value;
}

TEST(StatusTest, MacrosPassValuesDownAndErrorsUp) {
  EXPECT_EQ(*Use(true), 5);
  EXPECT_THAT(Use(false), StatusIs(absl::StatusCode::kResourceExhausted,
                                   "need 7 pages, 3 free"));
}

TEST(StatusTest, AnnotationKeepsTheCode) {
  EXPECT_THAT(Annotate(NotFound("no x"), "config.json"),
              StatusIs(absl::StatusCode::kNotFound, "config.json: no x"));
  EXPECT_OK(Annotate(absl::OkStatus(), "config.json"));
}

TEST(StatusTest, WhatIsForGoodStaysSoWhateverItSays) {
  const absl::Status later = ResourceExhausted("too many");
  EXPECT_FALSE(IsPermanent(later));
  EXPECT_FALSE(IsPermanent(Annotate(later, "engine")));
  const absl::Status never = MarkPermanent(later);
  EXPECT_TRUE(IsPermanent(never));
  EXPECT_TRUE(IsPermanent(Annotate(never, "engine")));
  EXPECT_THAT(WithMessage(never, "other"),
              StatusIs(absl::StatusCode::kResourceExhausted, "other"));
  EXPECT_TRUE(IsPermanent(WithMessage(never, "other")));
}

TEST(StatusTest, CodesAreNamedAsTheRequestFormatDoes) {
  EXPECT_EQ(CodeName(absl::StatusCode::kInvalidArgument), "INVALID_ARGUMENT");
}

TEST(CheckDeathTest, AFailedCheckSaysWhatBroke) {
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3) << "sums", "1 \\+ 1.*2 vs 3 sums");
}

}  // namespace
}  // namespace espalier
