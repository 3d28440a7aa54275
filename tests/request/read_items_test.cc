#include "request/read_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr int kItemsVocabSize = 6000;

// Returns the items, ascending, for a model without a tokenizer.
std::vector<std::vector<TokenId>> ItemsOf(const ItemCatalogue& catalogue) {
  std::vector<std::vector<TokenId>> items;
  const auto add = [&](const auto& self, ItemCatalogue::Node node,
                       const std::vector<TokenId>& tokens) -> void {
    if (catalogue.is_end(node)) items.push_back(tokens);
    const ItemCatalogue::Range children = catalogue.Children(node);
    for (auto child = children.begin; child < children.end; ++child) {
      std::vector<TokenId> longer = tokens;
      longer.push_back(catalogue.token(child));
      self(self, child, longer);
    }
  };
  add(add, ItemCatalogue::kRoot, {});
  return items;
}

absl::StatusOr<std::vector<std::vector<TokenId>>> ReadToLists(
    std::string_view lines, const Tokenizer* tokenizer = nullptr) {
  ASSIGN_OR_RETURN(
      const auto catalogue,
      ReadItems(lines, tokenizer, kItemsVocabSize, /*end_ids=*/{}));
  return ItemsOf(*catalogue);
}

std::string ErrorOfItems(std::string_view lines) {
  const auto items = ReadToLists(lines);
  EXPECT_EQ(items.status().code(), absl::StatusCode::kInvalidArgument);
  return Message(items.status());
}

TEST(ReadItemsTest, ALineIsAnItemHoweverItIsWritten) {
  ASSERT_OK_AND_ASSIGN(
      const auto items,
      ReadToLists(
          "\xEF\xBB\xBF[7,8]\r\n\n  \t\n[ 7 , 9 ]\n\t[5999]\t\n[7]\n[7, 8]\n"
          "[0,\t10]"));
  EXPECT_THAT(items,
              ElementsAre(ElementsAre(0, 10), ElementsAre(7), ElementsAre(7, 8),
                          ElementsAre(7, 9), ElementsAre(5999)));
}

TEST(ReadItemsTest, ATextHasTheTokensOfAnOutput) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model")));
  ASSERT_OK_AND_ASSIGN(
      const auto items,
      ReadToLists("\"La gare\"\n[7]\n\"\\u00c9t\\u00e9\"", tokenizer.get()));
  EXPECT_EQ(items.size(), 3);
  for (const std::string text : {"La gare", "Été"}) {
    EXPECT_THAT(items, ::testing::Contains(*tokenizer->EncodeOutput(text)));
  }
}

TEST(ReadItemsTest, AnErrorNamesTheLineAndTheValue) {
  EXPECT_EQ(ErrorOfItems(""), "there is no item");
  EXPECT_EQ(ErrorOfItems("\n \n"), "there is no item");
  EXPECT_EQ(ErrorOfItems("[7]\n[]\n"),
            "line 2: an item must have a token, got []");
  EXPECT_EQ(ErrorOfItems("[7]\n\n[7, 6000]\n"),
            "line 3: item[1] must be a token id in [0, 6000), got 6000");
  EXPECT_EQ(ErrorOfItems("[-1]"),
            "line 1: item[0] must be a token id in [0, 6000), got -1");
  EXPECT_EQ(ErrorOfItems("[7, 99999999999]"),
            "line 1: item[1] must be a token id in [0, 6000), got "
            "99999999999");
  EXPECT_EQ(ErrorOfItems("[7, \"a\"]"),
            "line 1: item[1] must be an integer, got \"a\"");
  EXPECT_EQ(ErrorOfItems("[7, 1.5]"),
            "line 1: item[1] must be an integer, got 1.5");
  EXPECT_EQ(ErrorOfItems("7"),
            "line 1: item must be a list of token ids or a text, got 7");
  EXPECT_EQ(ErrorOfItems("{\"tokens\": [7]}"),
            "line 1: item must be a list of token ids or a text, got "
            "{\"tokens\": [7]}");
  EXPECT_EQ(ErrorOfItems("\"Paris\""),
            "line 1: a text needs a tokenizer, which the model lacks, got "
            "\"Paris\"");
  std::string longest = "[7";
  for (int i = 1; i < kMaxItemTokens; ++i) longest += ",7";
  EXPECT_OK(ReadToLists(longest + "]").status());
  EXPECT_EQ(ErrorOfItems(longest + ",7]"),
            "line 1: an item must have at most 1024 tokens, got 1025");
}

TEST(ReadItemsTest, AnIdThatEndsTheOutputIsTheLastOfAnItem) {
  const std::vector<TokenId> end_ids = {9, 2};
  const auto read = [&](std::string_view lines) {
    return ReadItems(lines, nullptr, kItemsVocabSize, end_ids).status();
  };
  EXPECT_OK(read("[7, 8, 2]\n[9]\n"));
  EXPECT_EQ(Message(read("[7, 8]\n\n[7, 2, 8]\n[9, 9]\n")),
            "line 3: item[1], which is not its last token, must not be an id "
            "that ends the model's output, got 2");
  EXPECT_EQ(Message(read("[9, 9]\n")),
            "line 1: item[0], which is not its last token, must not be an id "
            "that ends the model's output, got 9");
}

// Nor does that take the memory and time of all its tokens.
TEST(ReadItemsTest, AFarTooLongTextIsRefusedByItsBeginning) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      Tokenizer::Load(SourcePath("models/en-fr/tokenizer.model")));
  const std::string text(20'000'000, 'a');
  const auto items = ReadItems(Concat("[7]\n\"", text, "\""), tokenizer.get(),
                               kItemsVocabSize, /*end_ids=*/{});
  EXPECT_EQ(Message(items.status()),
            "line 2: an item must have at most 1024 tokens, got a text of "
            "20000000 bytes");
  // A text of more bytes than tokens.
  EXPECT_OK(ReadItems(Concat("\"", std::string(1500, ' '), "la gare\""),
                      tokenizer.get(), kItemsVocabSize, /*end_ids=*/{})
                .status());
}

// No text makes it crash, and none that is not JSON is taken.
TEST(ReadItemsTest, HostileLinesAreErrors) {
  for (const std::string line :
       {"[",       "[7",       "[7,",       "[7,]",        "[,7]", "[07]",
        "[7 8]",   "[7]]",     "[[7]]",     "[7] [8]",     "[+7]", "[0x7]",
        "[7.]",    "[--7]",    "\"",        "\"\\ud800\"", "nul",  "\x01",
        "[7]\x01", "\xff\xff", "[\xc3\x28]"}) {
    EXPECT_THAT(ErrorOfItems(line), HasSubstr("line 1: ")) << line;
    EXPECT_THAT(ErrorOfItems("[3]\n" + line + "\n[4]"), HasSubstr("line 2: "));
  }
  EXPECT_THAT(ErrorOfItems(std::string("[7]\0", 4)), HasSubstr("line 1: "));
  EXPECT_THAT(ErrorOfItems(std::string(100'000, '[')), HasSubstr("line 1: "));
  std::mt19937 random(1);
  constexpr std::string_view kBytes = "[],0123456789 -.\"\\u{}e\n\r\t\xC3\xA9";
  for (int round = 0; round < 20'000; ++round) {
    std::string lines;
    for (int i = 0; i < 12; ++i) lines += kBytes[random() % kBytes.size()];
    ReadToLists(lines).IgnoreError();
  }
}

TEST(ReadItemsTest, AFileIsNamedInItsErrors) {
  const testing::ScratchDirectory scratch;
  const std::string path = scratch.path("songs.jsonl");
  std::ofstream(path) << "[7, 8]\n[9]\n";
  ASSERT_OK_AND_ASSIGN(
      const auto items,
      LoadItems(path, nullptr, kItemsVocabSize, /*end_ids=*/{}));
  EXPECT_EQ(items->num_items(), 2);
  std::ofstream(path) << "[7, 8]\n[9\n";
  const auto error =
      LoadItems(path, nullptr, kItemsVocabSize, /*end_ids=*/{}).status();
  EXPECT_THAT(Message(error), HasSubstr(path + ": line 2: "));
  const auto missing =
      LoadItems(path + "x", nullptr, kItemsVocabSize, /*end_ids=*/{}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(missing), HasSubstr(path + "x"));
}

TEST(ReadItemsTest, NamesOfCataloguesAreShortAndPlain) {
  for (const char* const name : {"songs", "a", "Songs_2.v-1",
                                 "0123456789012345678901234567890123456789"}) {
    EXPECT_OK(CheckCatalogueName(name));
  }
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a/b"),
        std::string("\xC3\xA9"), std::string(65, 'a')}) {
    EXPECT_EQ(CheckCatalogueName(name).code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace espalier
