#include "model/ctranslate2/ctranslate2_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/family_models.h"
#include "tests/model/ctranslate2/ctranslate2_bytes.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::BytesOf;
using ::espalier::testing::CTranslate2Content;
using ::espalier::testing::CTranslate2String;
using ::espalier::testing::FamilyPath;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kBadFile = absl::StatusCode::kInvalidArgument;

// Two variables and an alias.
CTranslate2Content SmallFile() {
  CTranslate2Content content;
  content.variables = {{"a/weight", {2, 3}, 1, "abcdef"},
                       {"b", {}, 0, BytesOf(1.5f)}};
  content.aliases = {{"c", "a/weight"}};
  return content;
}

// The status of opening a file of these bytes; its errors name the file.
absl::Status OpenedBytes(const std::string& bytes) {
  const ScratchDirectory directory;
  const std::string path = directory.Write("model.bin", bytes);
  const absl::Status status = CTranslate2File::Open(path).status();
  if (!status.ok()) {
    EXPECT_THAT(Message(status), ::testing::StartsWith(path + ": "));
  }
  return status;
}

TEST(CTranslate2FileTest, HasVariablesAndAliases) {
  const ScratchDirectory directory;
  ASSERT_OK_AND_ASSIGN(
      const CTranslate2File file,
      CTranslate2File::Open(directory.Write("model.bin", SmallFile().Bytes())));
  EXPECT_EQ(file.specification(), "TransformerSpec");
  EXPECT_EQ(file.revision(), 7);
  const StoredTensor* const weight = file.Find("a/weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, "I8");
  EXPECT_THAT(weight->shape, ElementsAre(2, 3));
  EXPECT_EQ(weight->data[5], std::byte{'f'});
  EXPECT_EQ(file.Find("c"), weight);
  EXPECT_EQ(file.NameOf("c"), "a/weight");
  EXPECT_EQ(file.NameOf("b"), "b");
  EXPECT_THAT(file.Find("b")->shape, IsEmpty());
  EXPECT_EQ(file.Find("d"), nullptr);
}

TEST(CTranslate2FileTest, WhatAConverterWroteIsWhatIsWritten) {
  ASSERT_OK_AND_ASSIGN(
      const CTranslate2File file,
      CTranslate2File::Open(FamilyPath("ctranslate2_marian_int8/model.bin")));
  EXPECT_EQ(file.variables().size(), 90u);
  EXPECT_EQ(file.aliases().size(), 3u);
  const std::string again = CTranslate2Content::Of(file).Bytes();
  const auto stored =
      ReadFile(FamilyPath("ctranslate2_marian_int8/model.bin"), 1 << 20);
  EXPECT_TRUE(again == *stored);
}

TEST(CTranslate2FileTest, AFileThatBreaksOffAnywhereIsRefused) {
  const std::string bytes = SmallFile().Bytes();
  ASSERT_OK(OpenedBytes(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THAT(OpenedBytes(bytes.substr(0, size)),
                StatusIs(kBadFile, HasSubstr("the file breaks off: ")))
        << size;
  }
}

TEST(CTranslate2FileTest, WrongFilesAreRefusedByVariableAndValue) {
  struct Case {
    std::string message;
    std::function<void(CTranslate2Content&)> change;
  };
  const std::vector<Case> cases = {
      {"is no CTranslate2 model of binary version 6: it begins with 5; a "
       "converter of CTranslate2 3 or later writes that version",
       [](auto& file) { file.version = 5; }},
      {"it begins with 67324752",
       [](auto& file) { file.version = 0x04034B50; }},
      {"variable a/weight is there twice",
       [](auto& file) { file.variables[1].name = "a/weight"; }},
      {"variable a/weight: has 6 bytes, shape and dtype need 12",
       [](auto& file) { file.variables[0].type = 2; }},
      {"variable a/weight: has 6 bytes, shape and dtype need 8",
       [](auto& file) {
         file.variables[0].shape = {2, 4};
       }},
      {"variable a/weight: dtype must be less than 6, got 6",
       [](auto& file) { file.variables[0].type = 6; }},
      {"variable a/weight: shape overflows at dimension of 4294967295",
       [](auto& file) { file.variables[0].shape.assign(3, 0xFFFFFFFFu); }},
      {"alias c is of d, which is no variable",
       [](auto& file) { file.aliases[0].second = "d"; }},
      {"alias c is of c, which is no variable",
       [](auto& file) { file.aliases[0].second = "c"; }},
      {"alias d is of c, which is no variable",
       [](auto& file) { file.aliases.emplace_back("d", "c"); }},
      {"alias c is there twice",
       [](auto& file) { file.aliases.emplace_back("c", "b"); }},
      {"alias b is there twice",
       [](auto& file) { file.aliases.emplace_back("b", "a/weight"); }},
      {"name of variable 1: the string at offset ",
       [](auto& file) { file.variables[1].name = std::string("b\0b", 3); }},
      {"name of variable 1: the string at offset ",
       [](auto& file) { file.variables[1].name = ""; }},
      {"name of variable 0: the string at offset ",
       [](auto& file) { file.variables[0].name = "\xFF"; }},
  };
  for (const Case& wrong : cases) {
    CTranslate2Content file = SmallFile();
    wrong.change(file);
    EXPECT_THAT(OpenedBytes(file.Bytes()),
                StatusIs(kBadFile, HasSubstr(wrong.message)));
  }
}

TEST(CTranslate2FileTest, LengthsBeyondTheFileAreRefused) {
  const std::string start =
      Concat(BytesOf(uint32_t{6}), CTranslate2String("S"), BytesOf(1u));
  EXPECT_THAT(
      OpenedBytes(start + BytesOf(0xFFFFFFFFu)),
      StatusIs(kBadFile, HasSubstr("number of variables must be at most "
                                   "131072, got 4294967295")));
  EXPECT_THAT(
      OpenedBytes(start + BytesOf(0u) + BytesOf(0xFFFFFFFFu)),
      StatusIs(kBadFile, HasSubstr("number of aliases must be at most")));
  EXPECT_THAT(
      OpenedBytes(start + BytesOf(1u) + BytesOf(uint16_t{0xFFFF}) + "a"),
      StatusIs(kBadFile, AllOf(HasSubstr("name of variable 0"),
                               HasSubstr("breaks off: 65535 bytes"))));
  EXPECT_THAT(
      OpenedBytes(SmallFile().Bytes() + "x"),
      StatusIs(kBadFile, HasSubstr("has 1 bytes after the last alias")));
}

}  // namespace
}  // namespace espalier
