// Errors of options in the words of C++ and in those of a program.
#include "base/option_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr OptionWords kFlags = {
    .name = [](std::string_view field) { return Concat("--", field); },
    .unit_bytes = 1 << 20,
    .unit = "MiB"};

TEST(OptionErrorTest, IsToldInEithersWords) {
  const absl::Status error =
      OptionError(kInvalid, OptionName{"cache_bytes"}, " must hold a page of ",
                  MemorySize{98304}, " (", OptionName{"page_size"}, " ", 16,
                  "), got ", MemoryValue{3 << 20});
  EXPECT_THAT(error, StatusIs(kInvalid,
                              "cache_bytes must hold a page of 98304 bytes "
                              "(page_size 16), got 3145728"));
  EXPECT_THAT(InWordsOf(kFlags, error),
              StatusIs(kInvalid,
                       "--cache_bytes must hold a page of 1 MiB (--page_size "
                       "16), got 3"));
}

TEST(OptionErrorTest, HintsAreOfProgramsAlone) {
  const absl::Status error =
      OptionError(absl::StatusCode::kResourceExhausted, "there is room for ",
                  17, OptionHint{" (", "max_candidates", ")"});
  EXPECT_EQ(Message(error), "there is room for 17");
  EXPECT_EQ(Message(InWordsOf(kFlags, error)),
            "there is room for 17 (--max_candidates)");
}

TEST(OptionErrorTest, WhatItIsOfIsToldSo) {
  const absl::Status plain = NotFound("no such directory: a");
  const absl::Status of_draft = AnnotateOption(plain, "draft_model");
  EXPECT_THAT(of_draft, StatusIs(absl::StatusCode::kNotFound,
                                 "draft_model: no such directory: a"));
  EXPECT_EQ(Message(InWordsOf(kFlags, of_draft)),
            "--draft_model: no such directory: a");
  const absl::Status size =
      OptionError(kInvalid, OptionName{"page"}, " of ", MemorySize{1});
  EXPECT_EQ(Message(AnnotateOption(size, "draft_model")),
            "draft_model: page of 1 bytes");
  EXPECT_EQ(Message(InWordsOf(kFlags, AnnotateOption(size, "draft_model"))),
            "--draft_model: --page of 1 MiB");
  EXPECT_OK(AnnotateOption(absl::OkStatus(), "draft_model"));
}

// Numbers and fields in other messages do not change.
TEST(OptionErrorTest, OtherErrorsStayAsTheyAre) {
  for (const absl::Status& status :
       {absl::OkStatus(), InvalidArgument("page_size of 98304 bytes, got 7"),
        InvalidArgument("marks \x1f\x1fs5\x1f of others"),
        InvalidArgument("\x1f")}) {
    EXPECT_EQ(InWordsOf(kFlags, status), status);
    const absl::Status of = AnnotateOption(status, "model");
    EXPECT_EQ(of.ok(), status.ok());
    EXPECT_EQ(InWordsOf(kFlags, of).code(), status.code());
  }
}

}  // namespace
}  // namespace espalier::testing
