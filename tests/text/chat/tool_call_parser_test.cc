#include "text/chat/tool_call_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/few_cases.h"
#include "tests/text/tokenizer_file.h"
#include "text/chat/tool_call_stream.h"

namespace espalier {
namespace {

using testing::Cases;
using ::testing::ElementsAre;
using ::testing::Pair;
using testing::TokenizerFile;

constexpr ToolCallFormat kFormats[] = {
    ToolCallFormat::kNone, ToolCallFormat::kHermes, ToolCallFormat::kLlama3Json,
    ToolCallFormat::kMistral};
constexpr auto kHermes = ToolCallFormat::kHermes;
constexpr auto kLlama3Json = ToolCallFormat::kLlama3Json;
constexpr auto kMistral = ToolCallFormat::kMistral;
const std::vector<std::string> kNames = {"f", "weather", "_g"};

using Call = std::pair<std::string, std::string>;  // name, arguments
using Calls = std::vector<Call>;

struct Found {
  std::string content;
  Calls calls;
  bool operator==(const Found&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Found& found) {
  out << "content \"" << found.content << '"';
  for (const auto& [name, arguments] : found.calls) {
    out << ", " << name << ' ' << arguments;
  }
  return out;
}

// Joins parts; a part out of order is a fault.
class Joined {
 public:
  void Add(const ToolCallText& text) {
    found.content += text.content;
    for (const ToolCallPart& part : text.calls) {
      if (part.call_idx == found.calls.size()) {
        EXPECT_NE(part.name, "");
        found.calls.emplace_back(part.name, part.arguments);
        continue;
      }
      ASSERT_EQ(part.call_idx + 1, found.calls.size());
      EXPECT_EQ(part.name, "");
      found.calls.back().second += part.arguments;
    }
  }
  Found found;
};

Found Parse(std::string_view text, ToolCallFormat format) {
  Joined joined;
  joined.Add(ParseToolCalls(text, format, kNames));
  return joined.found;
}

// In pieces of at most `most` bytes.
Found ParseInPieces(std::string_view text, ToolCallFormat format, int most,
                    std::mt19937& random) {
  Joined joined;
  ToolCallParser parser(format, kNames);
  while (!text.empty()) {
    const size_t size = std::min<size_t>(1 + random() % most, text.size());
    ToolCallText found;
    parser.Feed(text.substr(0, size), &found);
    joined.Add(found);
    text.remove_prefix(size);
  }
  ToolCallText found;
  parser.Finish(&found);
  joined.Add(found);
  return joined.found;
}

struct Example {
  ToolCallFormat format;
  std::string_view text;
  Found found;
};

// As models write them.
const Example kExamples[] = {
    {kHermes, "It rains.", {"It rains.", {}}},
    {kHermes, " \n", {" \n", {}}},
    {kHermes,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, "
     "\"}\"]}}\n</tool_call>",
     {"", {{"f", R"({"x": [1, "}"]})"}}}},
    {kHermes,
     "Let me look.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n"
     "</tool_call>\n<tool_call>\n{\"arguments\": {\"a\": 1}, \"name\": \"g\"}"
     "\n</tool_call>",
     {"Let me look.", {{"f", "{}"}, {"g", R"({"a": 1})"}}}},
    {kHermes,
     R"(<tool_call>{"name": "f", "arguments": "{\"x\": 1}"}</tool_call> Done.)",
     {"Done.", {{"f", R"({"x": 1})"}}}},
    {kHermes,
     R"(<tool_call>{"name": "f", "parameters": {"x": 1}, "id": {"a": 1}})",
     {"", {{"f", R"({"x": 1})"}}}},
    // Cut by its length, and with JSON that breaks off.
    {kHermes,
     R"(<tool_call>{"name": "f", "arguments": {"x": "ab)",
     {"", {{"f", R"({"x": "ab)"}}}},
    {kHermes,
     R"(<tool_call>{"name": "f", "arguments": {"x": 1</tool_call>)",
     {"", {{"f", R"({"x": 1)"}}}},
    // No calls.
    {kHermes, "a <tool_call> b", {"a <tool_call> b", {}}},
    {kHermes,
     "<tool_call>{\"name\": \"f\"}",
     {"<tool_call>{\"name\": \"f\"}", {}}},
    {kHermes,
     "<tool_call>{f: {}}</tool_call>",
     {"<tool_call>{f: {}}</tool_call>", {}}},
    {kHermes,
     R"(<tool_call>{"name": 1, "arguments": {}}</tool_call>)",
     {R"(<tool_call>{"name": 1, "arguments": {}}</tool_call>)", {}}},
    {kHermes,
     R"(<tool_call><tool_call>{"name":"f","arguments":{}}</tool_call>)",
     {"<tool_call>", {{"f", "{}"}}}},
    {kLlama3Json,
     R"({"name": "weather", "parameters": {"city": "Bern"}})",
     {"", {{"weather", R"({"city": "Bern"})"}}}},
    {kLlama3Json,
     R"( <|python_tag|>{"type": "function", "name": "h", "parameters": {}}; )"
     R"({"name": "f", "parameters": {"a": 2}})",
     {"", {{"h", "{}"}, {"f", R"({"a": 2})"}}}},
    // An answer in JSON, a call in the middle of a text, code.
    {kLlama3Json,
     R"({"name": "Ada", "parameters": {"age": 36}} )",
     {R"({"name": "Ada", "parameters": {"age": 36}} )", {}}},
    {kLlama3Json,
     R"(So: {"name": "f", "parameters": {}})",
     {R"(So: {"name": "f", "parameters": {}})", {}}},
    {kLlama3Json,
     "<|python_tag|>search.call(query=\"x\")",
     {"<|python_tag|>search.call(query=\"x\")", {}}},
    {kMistral,
     R"([TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}, )"
     R"({"name": "g", "arguments": {}}])",
     {"", {{"f", R"({"x": 1})"}, {"g", "{}"}}}},
    {kMistral,
     R"(Yes.[TOOL_CALLS]_g[ARGS]{"x": {"y": 1}}[TOOL_CALLS]f{"a": 1})",
     {"Yes.", {{"_g", R"({"x": {"y": 1}})"}, {"f", R"({"a": 1})"}}}},
    {kMistral,
     R"([TOOL_CALLS]f[CALL_ID]abc123xyz[ARGS]{})",
     {"", {{"f", "{}"}}}},
    {kMistral, "[TOOL_CALLS] []", {"[TOOL_CALLS] []", {}}},
    {kMistral, "[TOOL_CALLS]f[ARG]{}", {"[TOOL_CALLS]f[ARG]{}", {}}},
    {kMistral, "a [1] b", {"a [1] b", {}}},
    {ToolCallFormat::kNone,
     R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)",
     {R"(<tool_call>{"name":"f","arguments":{}}</tool_call>)", {}}},
};

TEST(ToolCallParserTest, ReadsWhatModelsWrite) {
  for (const Example& example : kExamples) {
    EXPECT_EQ(Parse(example.text, example.format), example.found)
        << NameOf(example.format) << ": " << example.text;
  }
}

// Texts of what matters to the formats, good and bad.
std::string RandomText(std::mt19937& random) {
  constexpr std::string_view kParts[] = {
      "<tool_call>",
      "</tool_call>",
      "<|python_tag|>",
      "[TOOL_CALLS]",
      "[ARGS]",
      "[CALL_ID]",
      R"({"name": "f", "arguments": {)",
      R"({"name": "f", "parameters": {"x": 1}})",
      R"({"arguments": {"\"": "}\\"}, "name": "weather"})",
      "{",
      "}",
      "}}",
      "[",
      "]",
      ",",
      ";",
      ":",
      "\"",
      "\\",
      "\"name\"",
      "\"arguments\"",
      " ",
      "\n",
      "f",
      "weather",
      "é",
      "<",
      "<tool",
      "a b",
      "1",
      "\xFF"};
  std::string text;
  for (int n = random() % 12; n > 0; --n) {
    text += kParts[random() % std::size(kParts)];
  }
  return text;
}

TEST(ToolCallParserTest, PiecesGiveWhatTheWholeGives) {
  std::mt19937 random(7);
  const auto check = [&](const std::string& text, ToolCallFormat format) {
    const Found whole = Parse(text, format);
    for (const int most : {1, 3, 20}) {
      EXPECT_EQ(ParseInPieces(text, format, most, random), whole)
          << NameOf(format) << ": " << text;
    }
  };
  for (const Example& example : kExamples) {
    check(std::string(example.text), example.format);
  }
  for (int i = 0; i < Cases(5'000, 500); ++i) {
    check(RandomText(random), kFormats[i % std::size(kFormats)]);
  }
}

bool IsSubsequence(std::string_view part, std::string_view whole) {
  size_t i = 0;
  for (const char c : whole) i += i < part.size() && part[i] == c;
  return i == part.size();
}

TEST(ToolCallParserTest, LosesNoCharacterOfTextsWithoutCalls) {
  std::mt19937 random(8);
  int num_plain = 0, num_calls = 0;
  for (int i = 0; i < Cases(20'000, 4'000); ++i) {
    const std::string text = RandomText(random);
    const Found found = Parse(text, kFormats[i % std::size(kFormats)]);
    EXPECT_TRUE(IsSubsequence(found.content, text)) << text;
    for (const auto& [name, arguments] : found.calls) {
      EXPECT_TRUE(text.find(arguments) != text.npos) << text;
    }
    if (found.calls.empty()) {
      EXPECT_EQ(found.content, text);
      ++num_plain;
    } else {
      ++num_calls;
    }
  }
  EXPECT_GT(num_plain, 100);
  EXPECT_GT(num_calls, 100);
}

// Any number of calls with any arguments, as templates write them.
TEST(ToolCallParserTest, ReadsBackWhatAFormatWrites) {
  std::mt19937 random(9);
  constexpr std::string_view kArguments[] = {
      "{}", R"({"x": "</tool_call> \" \\ [TOOL_CALLS] {"})",
      R"({ "a" : [ { } , { "b" : null } ] })", R"({"é": "\u00e9", "n": -1e9})"};
  for (int i = 0; i < Cases(3'000, 300); ++i) {
    const ToolCallFormat format = kFormats[1 + i % 3];
    Found expected;
    std::string text;
    if (format != kLlama3Json && random() % 2 == 0) {
      text = expected.content = "I look {it} up: [1] <b>";
      text += "\n";
    }
    const int num_calls = 1 + random() % 3;
    for (int call = 0; call < num_calls; ++call) {
      const std::string name = kNames[random() % kNames.size()];
      const std::string arguments(kArguments[random() % std::size(kArguments)]);
      expected.calls.emplace_back(name, arguments);
      const std::string key =
          format == kLlama3Json ? "parameters" : "arguments";
      const std::string object =
          "{\"name\": \"" + name + "\", \"" + key + "\": " + arguments + "}";
      if (format == kHermes) {
        text += "<tool_call>\n" + object + "\n</tool_call>\n";
      } else if (format == kLlama3Json) {
        text += (call > 0 ? "; " : "") + object;
      } else {
        text += (call > 0 ? ", " : "[TOOL_CALLS] [") + object;
      }
    }
    if (format == kMistral) text += "]";
    EXPECT_EQ(Parse(text, format), expected) << text;
  }
}

// Tries at a head cost their length, and there is one for an object.
TEST(ToolCallParserTest, LongTextsTakeTimeOfTheirLength) {
  const int size = Cases(1 << 17, 1 << 12);
  std::string many;
  while (std::ssize(many) < size) many += R"(<tool_call>{"a":{)";
  std::string deep = "<tool_call>" + std::string(size, '{');
  std::string long_name = "[TOOL_CALLS]" + std::string(size, 'f');
  std::string keys = R"(<tool_call>{"name": "f")";
  while (std::ssize(keys) < size) keys += R"(, "a": {})";
  std::mt19937 random(10);
  for (const std::string& text : {many, deep, long_name, keys}) {
    for (const ToolCallFormat format : kFormats) {
      EXPECT_EQ(ParseInPieces(text, format, 3, random).content, text);
    }
  }
}

TEST(ToolCallFormatTest, IsTheTemplates) {
  const auto plain = *TokenizerFile().Parse();
  TokenizerFile file;
  file.At("/added_tokens")
      .as_array()
      .push_back(json::object{{"id", 10},
                              {"content", "<|python_tag|>"},
                              {"special", true},
                              {"normalized", false}});
  const auto llama = *file.Parse();
  const auto of = [&](std::string_view source) {
    return ToolCallFormatOf(source, *plain);
  };
  EXPECT_EQ(of("{{ tools }} <tool_call>"), kHermes);
  EXPECT_EQ(of("{{ tools }} [TOOL_CALLS] <tool_call>"), kMistral);
  EXPECT_EQ(of("{{ tools }} <|python_tag|>"), kLlama3Json);
  EXPECT_EQ(of("{{ tools }}"), ToolCallFormat::kNone);
  EXPECT_EQ(of("<tool_call>"), ToolCallFormat::kNone);
  EXPECT_EQ(of("{{ tools }}<tool_call><function=f>"), ToolCallFormat::kNone);
  EXPECT_EQ(ToolCallFormatOf("{{ tools }}", *llama), kLlama3Json);
  for (const ToolCallFormat format : kFormats) {
    EXPECT_EQ(ToolCallFormatNamed(NameOf(format)), format);
  }
  EXPECT_EQ(ToolCallFormatNamed("pythonic"), std::nullopt);
}

// A tokenizer with the marks of Mistral as special tokens, and its letters.
std::unique_ptr<Tokenizer> MistralTokenizer() {
  TokenizerFile file;
  for (const auto& [id, content] :
       {std::pair(10, "[TOOL_CALLS]"), std::pair(11, "[ARGS]")}) {
    file.At("/added_tokens")
        .as_array()
        .push_back(json::object{{"id", id},
                                {"content", content},
                                {"special", true},
                                {"normalized", false}});
  }
  file.At("/added_tokens")
      .as_array()
      .push_back(json::object{{"id", 12},
                              {"content", "{}"},
                              {"special", false},
                              {"normalized", false}});
  return *file.Parse();
}

TEST(ToolCallStreamTest, SeesMarksThatSpellNothing) {
  const auto tokenizer = MistralTokenizer();
  const std::vector<TokenId> tokens = {3, 10, 4, 11, 12, 10, 5, 11, 12};
  EXPECT_EQ(*tokenizer->Decode(tokens), "ab{}c{}");
  std::mt19937 random(11);
  for (int i = 0; i < Cases(300, 50); ++i) {
    ToolCallStream stream({kMistral, {}}, *tokenizer,
                          IncrementalDetokenizer(*tokenizer));
    IncrementalDetokenizer detokenizer(*tokenizer);
    Joined joined;
    // The text comes later than its tokens now and then.
    std::string late;
    size_t begin = 0;
    while (begin < tokens.size()) {
      const size_t size =
          std::min<size_t>(1 + random() % 4, tokens.size() - begin);
      const auto some = std::span(tokens).subspan(begin, size);
      for (const TokenId token : some) detokenizer.Feed(token, &late);
      begin += size;
      const size_t num_certain =
          begin == tokens.size() ? late.size() : random() % (late.size() + 1);
      ToolCallText found;
      stream.Feed(some, late.substr(0, num_certain), &found);
      joined.Add(found);
      late.erase(0, num_certain);
    }
    ToolCallText found;
    stream.Finish(&found);
    joined.Add(found);
    EXPECT_EQ(joined.found.content, "a");
    EXPECT_THAT(joined.found.calls,
                ElementsAre(Pair("b", "{}"), Pair("c", "{}")));
  }
}

// A text that a stop string cut has no marks behind the cut.
TEST(ToolCallStreamTest, MarksThatTheTextShowsAreReadOnce) {
  const auto tokenizer = MistralTokenizer();
  const std::vector<TokenId> tokens = {3, 10, 4, 11, 12, 10, 5, 11, 12};
  const std::string text = *tokenizer->Decode(tokens, {.show_special = true});
  ToolCallStream stream({kMistral, {}}, *tokenizer,
                        IncrementalDetokenizer(*tokenizer, /*is_opening=*/true,
                                               /*shows_special=*/true));
  ToolCallText found;
  stream.Feed(tokens, text, &found);
  stream.Finish(&found);
  Joined joined;
  joined.Add(found);
  EXPECT_EQ(joined.found.content, "a");
  EXPECT_THAT(joined.found.calls,
              ElementsAre(Pair("b", "{}"), Pair("c", "{}")));
}

TEST(ToolCallStreamTest, MarksBehindTheTextAreNotRead) {
  const auto tokenizer = MistralTokenizer();
  ToolCallStream stream({kMistral, {}}, *tokenizer,
                        IncrementalDetokenizer(*tokenizer));
  ToolCallText found;
  stream.Feed(std::vector<TokenId>{3, 4, 10, 5}, "a", &found);
  stream.Finish(&found);
  EXPECT_EQ(found.content, "a");
  EXPECT_TRUE(found.calls.empty());
}

}  // namespace
}  // namespace espalier
