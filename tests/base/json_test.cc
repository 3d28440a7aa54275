#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

TEST(JsonTest, WhatIsWrittenReadsBackTheSame) {
  const std::string line =
      R"({"a": [1, -2.5, true, null, "x\ny"], "b": {}, "c": 1e+300})";
  ASSERT_OK_AND_ASSIGN(const json::value value, ParseJson(line));
  ASSERT_OK_AND_ASSIGN(const json::value again, ParseJson(WriteJson(value)));
  EXPECT_EQ(value, again);
  EXPECT_EQ(WriteJson(value), line);
}

TEST(JsonTest, NumbersThatPythonAloneWritesAreTheirNames) {
  ASSERT_OK_AND_ASSIGN(const json::value value,
                       ParsePythonJson(R"({"a": [NaN, Infinity, -Infinity, -1],
                          "NaN": "-Infinity, \\\"NaN", "b": Infinity})"));
  EXPECT_EQ(WriteJson(value),
            R"({"a": ["NaN", "Infinity", "-Infinity", -1], )"
            R"("NaN": "-Infinity, \\\"NaN", "b": "Infinity"})");
  EXPECT_EQ(*ParsePythonJson("NaN"), json::value("NaN"));
  for (const char* text :
       {"", "nan", "+Infinity", "--Infinity", "Infinit", "NaNaN", "[NaN",
        "{NaN: 1}", "[Infinity Infinity]", "\"NaN", "1NaN"}) {
    EXPECT_FALSE(ParsePythonJson(text).ok()) << text;
  }
  EXPECT_THAT(ParsePythonJson("[1,"), StatusIs(ParseJson("[1,").status().code(),
                                               HasSubstr("not JSON at byte")));
}

TEST(JsonTest, NumbersAreWrittenShort) {
  EXPECT_EQ(WriteJson(JsonFloat(0.1f)), "0.1");
  EXPECT_EQ(WriteJson(JsonFloat(-0.37952831387519836f)), "-0.3795283");
  EXPECT_EQ(WriteJson(json::value(4.0)), "4.0");
  EXPECT_EQ(WriteJson(json::value(4)), "4");
  EXPECT_EQ(WriteJson(JsonFloat(std::numeric_limits<float>::infinity())),
            "null");
}

TEST(JsonTest, NumbersAreAppendedAsTheirValuesAreWritten) {
  std::mt19937 random(1);
  std::vector<float> floats = {0.0f, -0.0f, 1e10f, 16777216.0f, 1e-45f, 3e38f};
  for (int i = 0; i < 100'000; ++i) {
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  for (const float value : floats) {
    std::string text;
    AppendJson(value, &text);
    EXPECT_EQ(text, WriteJson(JsonFloat(value)));
  }
  std::string text = "x";
  AppendJson(std::numeric_limits<int64_t>::min(), &text);
  AppendJson(0.1, &text);
  AppendJson("\"\n", &text);
  EXPECT_EQ(text, R"(x-92233720368547758080.1"\"\n")");
}

TEST(JsonTest, LongTextsAreShownUpToAWholeCharacter) {
  EXPECT_EQ(Shown(std::string(60, 'a')), std::string(60, 'a'));
  EXPECT_EQ(Shown(std::string(61, 'a')), std::string(60, 'a') + "...");
  for (const int size : {58, 59}) {
    const std::string start(size, 'a');
    EXPECT_EQ(Shown(start + "漢漢"), start + "...");
  }
  EXPECT_EQ(Shown(std::string(57, 'a') + "漢漢"),
            std::string(57, 'a') + "漢...");
  const json::value list = {1, "b"};
  EXPECT_EQ(Shown(&list), "[1, \"b\"]");
  EXPECT_EQ(Shown(nullptr), "nothing");
  EXPECT_EQ(ShownInQuotes("a\"\n"), R"("a\"\n")");
  // Wherever a long text is cut.
  for (size_t size = 50; size < 80; ++size) {
    for (const char* const rest : {"\u00e9\u00e9\u00e9", "\"\n\"", "b"}) {
      std::string text(size, 'a');
      for (int i = 0; i < 20; ++i) text += rest;
      EXPECT_EQ(ShownInQuotes(text), Shown(WriteJson(json::value(text))));
    }
  }
  EXPECT_EQ(ShownInQuotes(std::string(80, 'a')),
            "\"" + std::string(59, 'a') + "...");
}

TEST(JsonTest, BadUtf8IsNamedByItsByte) {
  for (const std::string bad :
       {"\xC0\xAF", "\xE2\x82", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\x80"}) {
    EXPECT_FALSE(IsUtf8(bad));
    EXPECT_THAT(ParseJson("\"ab" + bad + "\""),
                StatusIs(kInvalid, HasSubstr("not UTF-8 at byte 3")));
  }
  EXPECT_TRUE(IsUtf8("é 漢 🎈"));
}

TEST(JsonTest, BrokenTextIsAnError) {
  for (const std::string bad : {"", "{", "[1,]", "1 2", "nul", "{\"a\" 1}"}) {
    EXPECT_THAT(ParseJson(bad), StatusIs(kInvalid, HasSubstr("not JSON")))
        << bad;
  }
  EXPECT_THAT(ParseJson(std::string(100, '[') + std::string(100, ']')),
              StatusIs(kInvalid, HasSubstr("too deep")));
}

}  // namespace
}  // namespace espalier
