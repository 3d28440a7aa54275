#include "base/json_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::StartsWith;

void Nothing(int, std::string_view, const JsonText&) {}

absl::Status Scan(std::string_view text) {
  return ScanJson(text, 0, Nothing).status();
}

TEST(JsonScanTest, MembersAreToldWithWhatTheyHold) {
  std::vector<std::string> told;
  const auto tell = [&](int depth, std::string_view key,
                        const JsonText& value) {
    told.push_back(
        Concat(depth, " ", key, " ", value.text, " ", value.num_values));
  };
  const std::string text =
      R"( { "a" : [1, [2,3] ,{}] ,"b":{"c":"]}","d":{"e":1}}, "\u0066": null } )";
  ASSERT_OK_AND_ASSIGN(const JsonText all, ScanJson(text, 2, tell));
  EXPECT_EQ(all.text, text.substr(1, text.size() - 2));
  EXPECT_EQ(all.num_values, 11);
  EXPECT_THAT(told, ElementsAre(R"(1 "a" [1, [2,3] ,{}] 5)", R"(2 "c" "]}" 0)",
                                R"(2 "d" {"e":1} 1)",
                                R"(1 "b" {"c":"]}","d":{"e":1}} 3)",
                                R"(1 "\u0066" null 0)"));
}

TEST(JsonScanTest, ItemsAreThoseOfTheText) {
  std::vector<std::string> items;
  for (JsonItems list(R"([1 , "a,]" ,[2, 3],{"x" : 4} ])"); list.Next();) {
    items.emplace_back(list.value());
  }
  EXPECT_THAT(items, ElementsAre("1", R"("a,]")", "[2, 3]", R"({"x" : 4})"));
  items.clear();
  for (JsonItems object(R"({ "a:" : 1 , "b":[]})"); object.Next();) {
    items.push_back(Concat(object.key(), object.value()));
  }
  EXPECT_THAT(items, ElementsAre(R"("a:"1)", R"("b"[])"));
  EXPECT_FALSE(JsonItems("[ ]").Next());
  EXPECT_FALSE(JsonItems("{}").Next());
}

TEST(JsonScanTest, TextsAreUnquoted) {
  EXPECT_EQ(Unquoted(R"("")"), "");
  EXPECT_EQ(Unquoted(R"("é a")"), "é a");
  EXPECT_EQ(Unquoted(R"("\u00e9\n\"")"), "é\n\"");
}

TEST(JsonScanTest, TheLargestObjectInAValueIsCounted) {
  std::vector<std::string> counted;
  const auto count = [&](int, std::string_view key, const JsonText& value) {
    counted.push_back(Concat(key, " ", value.max_members));
  };
  constexpr std::string_view kText =
      R"({"a": [1, {"x": 1, "x": 2, "x": 3}, {"y": {}}], "b": 5, "c": {"z": 1}})";
  const absl::StatusOr<JsonText> all = ScanJson(kText, 1, count);
  ASSERT_OK(all);
  EXPECT_EQ(all->max_members, 3);
  EXPECT_THAT(counted,
              ::testing::ElementsAre(R"("a" 3)", R"("b" 0)", R"("c" 1)"));
}

TEST(JsonScanTest, ErrorsNameTheByte) {
  const auto error = [](std::string_view text) { return Message(Scan(text)); };
  EXPECT_EQ(error(""), "not JSON: there is nothing in it");
  EXPECT_EQ(error(" \n"), "not JSON: there is nothing in it");
  EXPECT_EQ(error(" [1, "), "not JSON at byte 5: incomplete JSON");
  EXPECT_EQ(error("[1 2]"), "not JSON at byte 3: syntax error");
  EXPECT_EQ(error("[1]]"), "not JSON at byte 3: extra data");
  EXPECT_EQ(error("\"a\tb\""),
            "not JSON at byte 2: control character in a string, where it is "
            "escaped");
  for (const char* const text :
       {R"("a\'b")", R"("a\# b")", R"("C:\True")", R"("\u00g0")"}) {
    EXPECT_THAT(error(text), ::testing::EndsWith(": wrong escape in a string"))
        << text;
  }
  EXPECT_EQ(error("{\"a\" 1}"), "not JSON at byte 5: syntax error");
  for (const char* const text : {R"("\ud83d")", R"("\ud83d\n")", R"("\ude00")",
                                 R"("\ud83d\u0041")", R"("\ud83d\ud83d")"}) {
    EXPECT_THAT(error(text), ::testing::EndsWith(": unpaired surrogate"))
        << text;
  }
  EXPECT_EQ(error(R"("\ud83d)"), "not JSON at byte 7: incomplete JSON");
  EXPECT_EQ(error("\"ab\x80\""), "not UTF-8 at byte 3");
  EXPECT_EQ(error(std::string(40, '[')),
            "nested too deep at byte 32: lists and objects nest 32 deep at "
            "most");
  // The field that nests too deep is named.
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  const auto deep_error = [&](std::string_view before, int max_depth) {
    const auto ignore = [](int, std::string_view, const JsonText&) {};
    return Message(
        ScanJson(Concat(before, deep, "}"), max_depth, ignore).status());
  };
  EXPECT_EQ(deep_error(R"({"a": [{"b": 1}], "json_schema": )", 1),
            "json_schema is nested too deep at byte 64: lists and objects nest "
            "32 deep at most");
  EXPECT_THAT(deep_error(R"({"a": {"b": )", 1), StartsWith("a is nested"));
  EXPECT_THAT(deep_error(R"({"a": {"b": )", 2), StartsWith("b is nested"));
  EXPECT_THAT(deep_error(R"({"a": {"c": 1, "b": 2}, "d": )", 2),
              StartsWith("d is nested"));
  // A member that has ended is not named.
  EXPECT_THAT(deep_error(R"({"a": [{"b": 1}, )", 3), StartsWith("a is nested"));
  EXPECT_THAT(deep_error(R"([{"a": 1}, )", 2), StartsWith("nested too deep"));
  EXPECT_THAT(deep_error(R"({"a": )", 0), StartsWith("nested too deep"));
  EXPECT_THAT(deep_error(R"({"`a`": )", 1), StartsWith("nested too deep"));
  EXPECT_THAT(deep_error(Concat("{\"", std::string(100'000, 'a'), "\": "), 1),
              StartsWith("nested too deep"));
  EXPECT_EQ(error("1e999999999"),
            "exponent too long at byte 11: it has 8 digits at most");
}

TEST(JsonScanTest, ErrorsTellWhatOtherLanguagesWriteOtherwise) {
  const auto hint = [](std::string_view text) {
    const std::string message = Message(Scan(text));
    const size_t end = message.find("syntax error");
    return end == message.npos ? message : message.substr(end + 12);
  };
  EXPECT_EQ(hint("{'a': 1}"), "; strings stand in double quotes");
  EXPECT_EQ(hint("[\"a\", 'b']"), "; strings stand in double quotes");
  EXPECT_EQ(hint("{\"a\": 1, \n}"), "; there is a trailing comma before it");
  EXPECT_EQ(hint("[1, 2,]"), "; there is a trailing comma before it");
  EXPECT_EQ(hint("[,]"), "");
  EXPECT_EQ(hint("{\"a\": None}"), "; it is written null, true or false");
  EXPECT_EQ(hint("[True]"), "; it is written null, true or false");
  EXPECT_EQ(hint("[NaN]"), "; there is no such number");
  EXPECT_EQ(hint("[-Infinity]"), "; there is no such number");
  EXPECT_EQ(hint("[1, // one\n2]"), "; there are no comments");
  EXPECT_EQ(hint("# one\n[2]"), "; there are no comments");
  EXPECT_EQ(hint("{\"a\": -inf}"), "; there is no such number");
  for (const char* const text :
       {"{a: 1}", "{\"a\": 1, 8: 2}", "{None: 1}", "{_: 1}"}) {
    EXPECT_EQ(hint(text), "; keys stand in double quotes") << text;
  }
  for (const char* const text :
       {"{\n\"7\" 1}", "True story.", " None of these", "-inf", "[Nancy]",
        "[True_x]", "{]", "[1,-]"}) {
    EXPECT_EQ(hint(text), "") << text;
  }
}

// Any string of up to some pieces that matter to the grammar.
std::string RandomText(std::mt19937& random) {
  static const std::vector<std::string> kPieces = {"[",
                                                   "]",
                                                   "{",
                                                   "}",
                                                   "\"",
                                                   ",",
                                                   ":",
                                                   " ",
                                                   "\n",
                                                   "0",
                                                   "1",
                                                   "-",
                                                   ".",
                                                   "e",
                                                   "E",
                                                   "+",
                                                   "12345678901234567890",
                                                   "true",
                                                   "false",
                                                   "null",
                                                   "tru",
                                                   "\\",
                                                   "\\n",
                                                   "\\u00e9",
                                                   "\\ud83d\\ude00",
                                                   "\\ud83d",
                                                   "\\ude00",
                                                   "é",
                                                   "a",
                                                   "\"a\"",
                                                   "\"a\":",
                                                   "[1, 2]",
                                                   "{\"a\": 1}",
                                                   "1.5e-3",
                                                   "aaaaaaaaaaaaaaaa",
                                                   "\x01",
                                                   "\x7f",
                                                   "01",
                                                   "\"\":"};
  std::string text;
  for (int n = random() % 12; n >= 0; --n) {
    text += kPieces[random() % kPieces.size()];
  }
  switch (random() % 4) {
    case 0:
      return "[" + text + "]";
    case 1:
      return "{\"a\": " + text + "}";
    case 2:
      return "\"" + text + "\"";
    default:
      return text;
  }
}

TEST(JsonScanTest, WhatPassesIsWhatTheParserTakes) {
  std::mt19937 random(1);
  int num_good = 0;
  for (int i = 0; i < 300'000; ++i) {
    const std::string text = RandomText(random);
    const absl::StatusOr<json::value> value = ParseJson(text);
    ASSERT_EQ(Scan(text).ok(), value.ok()) << text << "\n"
                                           << value.status() << Scan(text);
    if (!value.ok()) continue;
    ++num_good;
    EXPECT_EQ(ParseChecked(text), *value);
  }
  EXPECT_GT(num_good, 10'000);
}

// Cut anywhere, and with any byte changed.
TEST(JsonScanTest, DamagedTextsAreJudgedAsTheParserDoes) {
  const std::string good =
      R"({"id": "\u00e9\ud83d\ude00é漢🎈", "a": [1, -2.5e-7, true, null, "x\ny"],)"
      R"( "b": {}, "c": {"d": [[], [0, 10]], "e": false}, "long": )"
      R"("0123456789abcdef0123456789abcdef"})";
  for (size_t length = 0; length <= good.size(); ++length) {
    const std::string text = good.substr(0, length);
    EXPECT_EQ(Scan(text).ok(), ParseJson(text).ok()) << text;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string text = good;
      text[i] = static_cast<char>(byte);
      ASSERT_EQ(Scan(text).ok(), ParseJson(text).ok()) << i << " " << text;
    }
  }
}

}  // namespace
}  // namespace espalier
