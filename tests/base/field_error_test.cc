// Errors about fields: their data, and their texts in the words of C++, of a
// request's line and of a program.
#include "base/field_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::Optional;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
const FieldWords& Flags() {
  static const auto* const words = new FieldWords{
      .field = [](std::string_view field) -> std::optional<std::string> {
        if (field == "prompt") return std::nullopt;
        return Concat("--", field);
      },
      .option = [](std::string_view field) { return Concat("--", field); },
      .unit_bytes = 1 << 20,
      .unit = "MiB"};
  return *words;
}

TEST(FieldErrorTest, IsDataAndAText) {
  const absl::Status status =
      InvalidField("`bad_words_ids`[", 3, "][", 1, "] must be at most ",
                   Limit(4), " (`num_beams`)", Got(12), "; lower it");
  EXPECT_THAT(status, StatusIs(kInvalid,
                               "bad_words_ids[3][1] must be at most 4 "
                               "(num_beams), got 12; lower it"));
  const FieldError error = FieldErrorOf(status).value();
  EXPECT_EQ(error.field, "bad_words_ids");
  EXPECT_EQ(error.path, "bad_words_ids[3][1]");
  EXPECT_THAT(error.index, Optional(3));
  EXPECT_EQ(error.problem, "must be at most 4 (num_beams)");
  EXPECT_EQ(error.limit, "4");
  EXPECT_EQ(error.value, "12");
  EXPECT_FALSE(error.exceeds_context);
  EXPECT_FALSE(error.depends_on_prompt);
}

TEST(FieldErrorTest, HasWhatItsPartsSay) {
  const FieldError error =
      FieldErrorOf(InvalidField(FieldName{"messages[0].role"}, " is too long (",
                                ContextLimit{9}, ")", DependsOnPrompt{}))
          .value();
  EXPECT_EQ(error.field, "messages");
  EXPECT_EQ(error.path, "messages[0].role");
  EXPECT_THAT(error.index, Optional(0));
  EXPECT_TRUE(error.exceeds_context);
  EXPECT_TRUE(error.depends_on_prompt);
  EXPECT_FALSE(error.depends_on_all_prompts);
  const FieldError of_none =
      FieldErrorOf(InvalidField("lower `top_k`", DependsOnPrompts{})).value();
  EXPECT_EQ(of_none.field, "");
  EXPECT_EQ(of_none.problem, "lower top_k");
  EXPECT_TRUE(of_none.depends_on_all_prompts);
  EXPECT_EQ(FieldErrorOf(InvalidArgument("top_k must be 1")), std::nullopt);
  EXPECT_EQ(FieldErrorOf(absl::OkStatus()), std::nullopt);
}

TEST(FieldErrorTest, NamesOfFieldsAreTheInterfacesAndValuesAreNot) {
  const absl::Status status =
      InvalidField("`top_k` must be 0 without `do_sample` or `prompt`",
                   Got(R"("top_k")"), "; add `do_sample`");
  const absl::Status flags = InWordsOf(Flags(), status);
  EXPECT_THAT(flags, StatusIs(kInvalid,
                              "--top_k must be 0 without --do_sample or "
                              "prompt, got \"top_k\"; add --do_sample"));
  EXPECT_EQ(FieldErrorOf(flags)->path, "--top_k");
  // A name is written once: the next interface leaves it.
  EXPECT_EQ(InWordsOf(Flags(), flags), flags);
  EXPECT_TRUE(NamesField(status, "do_sample"));
  EXPECT_FALSE(NamesField(status, "sample"));
  EXPECT_FALSE(NamesField(InvalidArgument("do_sample"), "do_sample"));
}

TEST(FieldErrorTest, MoreIsSaidAfterIt) {
  const absl::Status status = MarkPermanent(
      MakeFieldError(absl::StatusCode::kResourceExhausted, "`n` is ", 5));
  const absl::Status more = AppendParts(status, "; lower `n`", "; of `it");
  EXPECT_EQ(Message(more), "n is 5; lower n; of it");
  EXPECT_TRUE(IsPermanent(more));
  EXPECT_TRUE(IsPermanent(InWordsOf(Flags(), more)));
  EXPECT_EQ(Message(WithField(more, "m")), "m is 5; lower n; of it");
  EXPECT_EQ(Message(AnnotateField(status, "items[1]")), "items[1]: n is 5");
  EXPECT_EQ(Message(InWordsOf(Flags(), AnnotateField(status, "items[1]"))),
            "--items[1]: --n is 5");
}

TEST(FieldErrorTest, SizesAreInTheUnitsOfTheInterface) {
  const absl::Status error = InvalidField(
      OptionName{"cache_bytes"}, " must hold a page of ", MemorySize{98304},
      " (", OptionName{"page_size"}, " ", 16, "), got ", MemoryValue{3 << 20});
  EXPECT_THAT(error, StatusIs(kInvalid,
                              "cache_bytes must hold a page of 98304 bytes "
                              "(page_size 16), got 3145728"));
  EXPECT_THAT(InWordsOf(Flags(), error),
              StatusIs(kInvalid,
                       "--cache_bytes must hold a page of 1 MiB (--page_size "
                       "16), got 3"));
}

TEST(FieldErrorTest, HintsAreOfProgramsAlone) {
  const absl::Status error =
      MakeFieldError(absl::StatusCode::kResourceExhausted, "there is room for ",
                     17, OptionHint{" (", "max_candidates", ")"});
  EXPECT_EQ(Message(error), "there is room for 17");
  EXPECT_EQ(Message(InWordsOf(Flags(), error)),
            "there is room for 17 (--max_candidates)");
}

TEST(FieldErrorTest, WhatItIsOfIsToldSo) {
  const absl::Status plain = NotFound("no such directory: a");
  const absl::Status of_draft = AnnotateOption(plain, "draft_model");
  EXPECT_THAT(of_draft, StatusIs(absl::StatusCode::kNotFound,
                                 "draft_model: no such directory: a"));
  EXPECT_EQ(Message(InWordsOf(Flags(), of_draft)),
            "--draft_model: no such directory: a");
  const absl::Status size =
      InvalidField(OptionName{"page"}, " of ", MemorySize{1});
  EXPECT_EQ(Message(AnnotateOption(size, "draft_model")),
            "draft_model: page of 1 bytes");
  EXPECT_EQ(Message(InWordsOf(Flags(), AnnotateOption(size, "draft_model"))),
            "--draft_model: --page of 1 MiB");
  EXPECT_OK(AnnotateOption(absl::OkStatus(), "draft_model"));
}

// Numbers and fields in other messages do not change.
TEST(FieldErrorTest, OtherErrorsStayAsTheyAre) {
  for (const absl::Status& status :
       {absl::OkStatus(), InvalidArgument("page_size of 98304 bytes, got 7"),
        InvalidArgument("marks \x1f\x1fs5\x1f of others"),
        InvalidArgument("\x1f")}) {
    EXPECT_EQ(InWordsOf(Flags(), status), status);
    const absl::Status of = AnnotateOption(status, "model");
    EXPECT_EQ(of.ok(), status.ok());
    EXPECT_EQ(InWordsOf(Flags(), of).code(), status.code());
  }
}

}  // namespace
}  // namespace espalier::testing
