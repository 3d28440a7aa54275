// A file that makes much of little is refused, or its texts are, by the step
// that does so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/status_matchers.h"
#include "tests/text/tokenizer_file.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::espalier::testing::TokenizerFile;
using ::testing::HasSubstr;

constexpr auto kTooLarge = absl::StatusCode::kInvalidArgument;

json::value Replacing(std::string_view pattern, std::string_view content) {
  return {{"type", "Replace"},
          {"pattern", {{"String", pattern}}},
          {"content", content}};
}

json::value Sequence(const char* list, size_t num_steps,
                     const json::value& step) {
  return {{"type", "Sequence"}, {list, json::array(num_steps, step)}};
}

TokenizerFile FileWithoutSteps() {
  TokenizerFile file;
  file.At("/normalizer") = nullptr;
  file.At("/pre_tokenizer") = nullptr;
  return file;
}

TEST(JsonTokenizerGrowthTest, StepsThatDoubleATextEndInAnError) {
  TokenizerFile file = FileWithoutSteps();
  file.At("/normalizer") = Sequence("normalizers", 32, Replacing("a", "aa"));
  const auto tokenizer = file.Parse().value();
  EXPECT_THAT(tokenizer->Encode("a"),
              StatusIs(kTooLarge, HasSubstr("normalizer.normalizers[10] makes "
                                            "more than 1056 bytes of a text "
                                            "of 1")));
  EXPECT_OK(tokenizer->Encode("b"));
}

TEST(JsonTokenizerGrowthTest, StepsThatGrowATextWithinReasonAreRun) {
  TokenizerFile file = FileWithoutSteps();
  file.At("/normalizer") = Sequence("normalizers", 5, Replacing("a", "aa"));
  const auto tokenizer = file.Parse().value();
  EXPECT_EQ(tokenizer->Encode(std::string(1000, 'a'))->size(), 32'000);
}

TEST(JsonTokenizerGrowthTest, EachKindOfStepIsBounded) {
  const std::string large(2000, 'a');
  const json::value steps[] = {
      Replacing("b", large),
      {{"type", "Replace"}, {"pattern", {{"Regex", ""}}}, {"content", large}},
      {{"type", "Prepend"}, {"prepend", large}}};
  for (const json::value& step : steps) {
    TokenizerFile file = FileWithoutSteps();
    file.At("/normalizer") = step;
    EXPECT_THAT(file.Parse().value()->Encode("b"),
                StatusIs(kTooLarge, HasSubstr("normalizer makes more than")))
        << json::serialize(step);
  }
}

TEST(JsonTokenizerGrowthTest, AnAddedTokenThatGrowsIsRefused) {
  TokenizerFile file = FileWithoutSteps();
  file.At("/normalizer") = Sequence("normalizers", 32, Replacing("o", "oo"));
  file.At("/added_tokens/2/normalized") = true;
  EXPECT_THAT(file.Parse(),
              StatusIs(kTooLarge, HasSubstr("normalizers[9] makes more")));
}

// Each step cuts a text into its characters and puts a sign before them.
TEST(JsonTokenizerGrowthTest, PreTokenizersThatDoubleATextEndInAnError) {
  TokenizerFile file = FileWithoutSteps();
  json::array steps;
  for (int i = 0; i < 20; ++i) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", "."}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
    steps.push_back({{"type", "Metaspace"},
                     {"replacement", i % 2 == 0 ? "x" : "y"},
                     {"prepend_scheme", "always"},
                     {"split", false}});
  }
  file.At("/pre_tokenizer") = {{"type", "Sequence"}, {"pretokenizers", steps}};
  EXPECT_THAT(file.Parse().value()->Encode(std::string(1000, 'a')),
              StatusIs(kTooLarge, HasSubstr("makes more than 33024 bytes of a "
                                            "text of 1000")));
}

TEST(JsonTokenizerGrowthTest, ATokenOfALargeSpellingIsRefused) {
  TokenizerFile file = FileWithoutSteps();
  file.At("/decoder") = Replacing("a", std::string(2'000'000, 'a'));
  EXPECT_THAT(file.Parse(),
              StatusIs(kTooLarge, HasSubstr("decoder must spell tokens in "
                                            "at most 65536 bytes, got more "
                                            "for \"a\"")));
  file.At("/decoder") = Sequence("decoders", 40, Replacing("a", "aa"));
  EXPECT_THAT(file.Parse(),
              StatusIs(kTooLarge, HasSubstr("decoder.decoders[16] must")));
}

// Each step reads the whole text, and each token's spelling.
TEST(JsonTokenizerGrowthTest, StepsOfAPartAreCounted) {
  struct Part {
    const char* name;
    const char* list;
    json::value step;
  };
  const Part parts[] = {
      {"normalizer", "normalizers", {{"type", "Lowercase"}}},
      {"pre_tokenizer", "pretokenizers", {{"type", "WhitespaceSplit"}}},
      {"post_processor",
       "processors",
       {{"type", "BertProcessing"}, {"cls", {"a", 3}}, {"sep", {"b", 4}}}},
      {"decoder",
       "decoders",
       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}};
  for (const auto& [name, list, step] : parts) {
    const std::string pointer = Concat("/", name);
    TokenizerFile file;
    file.At(pointer) = Sequence(list, 64, step);
    EXPECT_OK(file.Parse()) << name;
    file.At(pointer) = Sequence(list, 3000, step);
    EXPECT_THAT(
        file.Parse(),
        StatusIs(kTooLarge,
                 HasSubstr(Concat(name, ".", list,
                                  " must have at most 64 steps, with those of "
                                  "sequences around it, got 3000"))));
  }
  // Sequences within sequences: 20 of 10 steps.
  TokenizerFile file;
  file.At("/normalizer") = Sequence(
      "normalizers", 20,
      Sequence("normalizers", 10, json::object{{"type", "Lowercase"}}));
  EXPECT_THAT(file.Parse(),
              StatusIs(kTooLarge,
                       HasSubstr("normalizer.normalizers[4].normalizers must "
                                 "have at most 64 steps, with those of "
                                 "sequences around it, got 70")));
}

// At each place all of it is compared, but for the last byte.
TEST(JsonTokenizerGrowthTest, AddedTokensAreBounded) {
  TokenizerFile file = FileWithoutSteps();
  file.At("/added_tokens/2/content") = std::string(255, 'a') + "b";
  const auto tokenizer = file.Parse().value();
  EXPECT_EQ(tokenizer->Encode(std::string(300, 'a') + "b")->size(), 46);
  EXPECT_EQ(tokenizer->Encode(std::string(1'000'000, 'a'))->size(), 1'000'000);
  file.At("/added_tokens/2/content") = std::string(256, 'a') + "b";
  EXPECT_THAT(file.Parse(),
              StatusIs(kTooLarge, HasSubstr("added_tokens[2].content must be a "
                                            "string of 1 to 256 bytes")));
  // The bound also counts the normalizer's output.
  file.At("/added_tokens/2/content") = "aaab";
  file.At("/added_tokens/2/normalized") = true;
  file.At("/normalizer") = Replacing("a", std::string(100, 'a'));
  EXPECT_THAT(file.Parse(),
              StatusIs(kTooLarge,
                       HasSubstr("added_tokens[2].content must be normalized "
                                 "to at most 256 bytes, got \"aaab\"")));
}

TEST(JsonTokenizerGrowthTest, SpellingsAreBoundedTogether) {
  TokenizerFile file = FileWithoutSteps();
  json::object& vocab = file.At("/model/vocab").as_object();
  for (int i = 0; i < 5000; ++i) {
    vocab["d" + std::to_string(i)] = 1000 + i;
  }
  file.At("/decoder") = Replacing("d", std::string(65000, 'd'));
  EXPECT_THAT(file.Parse(),
              StatusIs(kTooLarge, HasSubstr("decoder must spell all tokens in "
                                            "at most 536870912 bytes")));
}

// Each line end takes those after it: they are looked at once.
TEST(JsonTokenizerGrowthTest, WhitespaceThatTokensTakeIsLookedAtOnce) {
  constexpr size_t kNumLines = 1'000'000;
  TokenizerFile file = FileWithoutSteps();
  file.At("/added_tokens")
      .as_array()
      .push_back({{"id", 10},
                  {"content", "\n"},
                  {"rstrip", true},
                  {"normalized", false}});
  file.At("/added_tokens")
      .as_array()
      .push_back({{"id", 11}, {"content", "\t"}, {"normalized", false}});
  const auto tokenizer = file.Parse().value();
  EXPECT_EQ(tokenizer->Encode(std::string(kNumLines, '\n') + "a").value(), [] {
    std::vector<TokenId> tokens(kNumLines, 10);
    tokens.push_back(3);
    return tokens;
  }());
  std::string text;
  for (size_t i = 0; i < kNumLines / 2; ++i) text += "\n\t";
  EXPECT_EQ(tokenizer->Encode(text)->size(), kNumLines);
}

TEST(JsonTokenizerGrowthTest, PiecesOfUnigramAreBounded) {
  const auto file = [](size_t num_bytes) {
    return json::serialize(json::value(
        {{"model",
          {{"type", "Unigram"},
           {"unk_id", 0},
           {"vocab",
            json::array{json::array{"<unk>", 0.0}, json::array{"a", -1.0},
                        json::array{std::string(num_bytes, 'a'), -2.0}}}}}}));
  };
  EXPECT_THAT(JsonTokenizer::Parse(file(257), {}),
              StatusIs(kTooLarge, HasSubstr("model.vocab[2] must be a piece of "
                                            "at most 256 bytes, got one of "
                                            "257")));
  const auto tokenizer = JsonTokenizer::Parse(file(256), {}).value();
  EXPECT_EQ(tokenizer->Encode(std::string(256 * 2000, 'a')).value(),
            std::vector<TokenId>(2000, 2));
}

}  // namespace
}  // namespace espalier
