// Answers in a language, by each way to decode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "espalier/generator.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<GenerationParams> WaysToDecode() {
  std::vector<GenerationParams> all(8);
  all[1].num_beams = all[1].num_return_sequences = 4;
  all[2].do_sample = true;
  all[2].num_return_sequences = 8;
  all[2].temperature = 1.5;
  all[3].speculate = {.method = SpeculationMethod::kNgram};
  all[4] = all[1];
  all[4].speculate = {.method = SpeculationMethod::kSuffix, .num_tokens = 8};
  all[5] = all[1];
  all[5].stochastic = true;
  all[6] = all[1];
  all[6].num_beam_groups = 2;
  all[6].diversity_penalty = 0.5;
  all[7] = all[1];
  all[7].do_sample = true;
  for (GenerationParams& params : all) params.seed = 5;
  return all;
}

class GeneratorConstraintsTest : public ::testing::Test {
 protected:
  GeneratorConstraintsTest()
      : generator_(Generator::Load(EnFrDir(), {.num_threads = 1}).value()) {}

  absl::StatusOr<Generation> Run(GenerationParams params) {
    return generator_.Generate(
        {.prompt = "It is raining.", .params = std::move(params)});
  }

  // Returns the least max_new_tokens that `params` may have, which errors name.
  int64_t LeastNewTokens(GenerationParams params) {
    params.max_new_tokens = 1;
    const absl::StatusOr<Generation> one = Run(params);
    if (one.ok()) return 1;
    constexpr std::string_view kBegin = "max_new_tokens must be at least ";
    EXPECT_THAT(one, StatusIs(absl::StatusCode::kInvalidArgument,
                              StartsWith(std::string(kBegin))));
    const int64_t least =
        std::stol(std::string(one.status().message().substr(kBegin.size())));
    params.max_new_tokens = least - 1;
    EXPECT_EQ(Run(params).status().message(),
              "max_new_tokens must be at least " + std::to_string(least) +
                  ", which a text of constraint needs, got " +
                  std::to_string(least - 1));
    return least;
  }

  Generator generator_;
};

TEST_F(GeneratorConstraintsTest, TextsAreInTheLanguage) {
  const std::vector<std::pair<std::string, std::regex>> languages = {
      {"[0-9]{4}-[0-9]{2}-[0-9]{2}", std::regex("\\d{4}-\\d{2}-\\d{2}")},
      {"Il (pleut|neige)( [a-z]{1,8}){0,2}\\.",
       std::regex("Il (pleut|neige)( [a-z]{1,8}){0,2}\\.")},
      {" ?[a-z]+", std::regex(" ?[a-z]+")}};
  for (const auto& [pattern, regex] : languages) {
    for (GenerationParams params : WaysToDecode()) {
      params.constraint = {.regex = pattern};
      const int64_t least = LeastNewTokens(params);
      for (const int64_t max_new_tokens : {least, least + 1, least + 4, 40L}) {
        params.max_new_tokens = max_new_tokens;
        ASSERT_OK_AND_ASSIGN(const Generation answer, Run(params));
        ASSERT_FALSE(answer.texts.empty());
        for (size_t i = 0; i < answer.texts.size(); ++i) {
          EXPECT_TRUE(std::regex_match(answer.texts[i], regex))
              << pattern << ": " << answer.texts[i];
          EXPECT_NE(answer.hypotheses[i].finish_reason, FinishReason::kLength);
          EXPECT_LE(answer.hypotheses[i].tokens.size(), max_new_tokens);
        }
      }
    }
  }
}

// Returns the text without its outer pairs of brackets.
std::string_view WithinPairs(std::string_view text) {
  while (text.size() >= 2 && text.front() == '(' && text.back() == ')') {
    text = text.substr(1, text.size() - 2);
  }
  return text;
}

TEST_F(GeneratorConstraintsTest, TextsOfAGrammarHavePairsOfBrackets) {
  for (GenerationParams params : WaysToDecode()) {
    params.constraint = {.grammar =
                             "root ::= \"(\" root \")\" | \"Il \" verb \".\"\n"
                             "verb ::= \"pleut\" | \"neige\""};
    const int64_t least = LeastNewTokens(params);
    for (const int64_t max_new_tokens : {least, least + 1, least + 4, 40L}) {
      params.max_new_tokens = max_new_tokens;
      ASSERT_OK_AND_ASSIGN(const Generation answer, Run(params));
      ASSERT_FALSE(answer.texts.empty());
      for (size_t i = 0; i < answer.texts.size(); ++i) {
        const std::string_view text = WithinPairs(answer.texts[i]);
        EXPECT_TRUE(text == "Il pleut." || text == "Il neige.")
            << answer.texts[i];
        EXPECT_NE(answer.hypotheses[i].finish_reason, FinishReason::kLength);
        EXPECT_LE(answer.hypotheses[i].tokens.size(), max_new_tokens);
      }
    }
  }
}

TEST_F(GeneratorConstraintsTest, AChoiceIsOneOfTheTexts) {
  const std::set<std::string> texts = {"Il pleut.", "Il neige.", "Il pleut",
                                       "Elle pleure.", "{\"a\": 1}"};
  for (GenerationParams params : WaysToDecode()) {
    params.max_new_tokens = 20;
    params.constraint = {
        .choice = std::vector<std::string>(texts.begin(), texts.end())};
    ASSERT_OK_AND_ASSIGN(const Generation answer, Run(params));
    for (const std::string& text : answer.texts) {
      EXPECT_EQ(texts.count(text), 1) << text;
    }
  }
}

// Integers of a range and an enumeration, which Python's json would read.
TEST_F(GeneratorConstraintsTest, JsonSatisfiesItsSchema) {
  const std::string schema =
      R"({"type": "object", "required": ["year", "tags"],
          "additionalProperties": false,
          "properties": {"year": {"type": "integer", "minimum": 1990,
                                  "maximum": 2030},
                         "tags": {"type": "array", "maxItems": 2,
                                  "items": {"enum": ["a", "\u00e9\""]}}}})";
  const std::vector<ConstraintParams> constraints = {
      {.json_schema = schema, .has_spaces = false},
      {.json_schema = schema},
      {.json_schema = schema, .whitespace = "\\n{1,2}"}};
  for (const ConstraintParams& constraint : constraints) {
    int way = 0;
    for (GenerationParams params : WaysToDecode()) {
      params.constraint = constraint;
      params.max_new_tokens =
          ++way % 2 == 0 ? LeastNewTokens(params) + way / 2 : 60;
      ASSERT_OK_AND_ASSIGN(const Generation answer, Run(params));
      ASSERT_FALSE(answer.texts.empty());
      for (size_t i = 0; i < answer.texts.size(); ++i) {
        EXPECT_NE(answer.hypotheses[i].finish_reason, FinishReason::kLength);
        ASSERT_OK_AND_ASSIGN(const json::value value,
                             ParseJson(answer.texts[i]));
        EXPECT_GE(value.at("year").as_int64(), 1990) << answer.texts[i];
        EXPECT_LE(value.at("year").as_int64(), 2030) << answer.texts[i];
        EXPECT_LE(value.at("tags").as_array().size(), 2) << answer.texts[i];
        for (const json::value& tag : value.at("tags").as_array()) {
          EXPECT_TRUE(tag == "a" || tag == "\xC3\xA9\"") << answer.texts[i];
        }
        EXPECT_EQ(value.as_object().size(), 2) << answer.texts[i];
        EXPECT_EQ(answer.texts[i].starts_with("{\n"),
                  constraint.whitespace.has_value());
        if (constraint.has_spaces && !constraint.whitespace) continue;
        EXPECT_EQ(answer.texts[i].find(' '), std::string::npos);
      }
    }
  }
}

TEST_F(GeneratorConstraintsTest, WhitespaceIsCheckedBeforeTheRequestRuns) {
  const auto error = [&](ConstraintParams constraint) {
    GenerationParams params;
    params.max_new_tokens = 60;
    params.constraint = std::move(constraint);
    return Message(Run(params).status());
  };
  EXPECT_THAT(error({.json_schema = "{}", .whitespace = "\\s"}),
              StartsWith("constraint.whitespace must be a regular expression "
                         "of white space: a text that it matches has "));
  EXPECT_THAT(error({.json_schema = "{}", .whitespace = "["}),
              StartsWith("constraint.whitespace must be a regular expression "
                         "of white space: at byte 0: "));
  EXPECT_EQ(error({.regex = "a", .whitespace = " "}),
            "constraint.whitespace must be unset without a schema, got \" \"");
}

// Speculation and streams change no answer.
TEST_F(GeneratorConstraintsTest, DraftsChangeNothing) {
  for (const bool draws : {false, true}) {
    GenerationParams params;
    params.do_sample = draws;
    params.num_return_sequences = draws ? 4 : 1;
    params.seed = 9;
    params.max_new_tokens = 40;
    params.stop = {"z"};
    params.constraint = {.regex = "(ab|ba|[ab]z){3,30}"};
    ASSERT_OK_AND_ASSIGN(const Generation plain, Run(params));
    // Whatever a draft costs here.
    params.speculate = {.method = SpeculationMethod::kNgram,
                        .always_drafts = true};
    ASSERT_OK_AND_ASSIGN(const Generation drafted, Run(params));
    EXPECT_EQ(plain.texts, drafted.texts);
    EXPECT_GT(drafted.usage.num_drafted_tokens, 0);
  }
  // Rows of a draft have room for fewer and fewer tokens.
  for (const int64_t max_new_tokens : {6, 7, 8, 9, 12}) {
    GenerationParams params;
    params.do_sample = true;
    params.num_return_sequences = 6;
    params.seed = 9;
    params.max_new_tokens = max_new_tokens;
    params.constraint = {.regex = "((ab){3,4}(c|zzz))+"};
    ASSERT_OK_AND_ASSIGN(const Generation plain, Run(params));
    for (const SpeculationMode mode :
         {SpeculationMode::kRejection, SpeculationMode::kCoupled}) {
      params.speculate = {
          .method = SpeculationMethod::kNgram, .num_tokens = 5, .mode = mode};
      ASSERT_OK_AND_ASSIGN(const Generation drafted, Run(params));
      if (mode == SpeculationMode::kCoupled) {
        EXPECT_EQ(plain.texts, drafted.texts);
      }
      for (const std::string& text : drafted.texts) {
        EXPECT_TRUE(std::regex_match(text, std::regex("((ab){3,4}(c|zzz))+")))
            << text;
      }
    }
  }
}

constexpr char kPerson[] =
    R"({"type": "object", "additionalProperties": false,
        "required": ["first_name", "address", "is_married"],
        "properties": {"first_name": {"type": "string", "maxLength": 8},
                       "address": {"enum": ["rue de la Paix", "rue de Rome"]},
                       "is_married": {"type": "boolean"}}})";

std::vector<GenerationParams> ForcingRequests() {
  std::vector<GenerationParams> all(7);
  all[0].constraint = {.json_schema = kPerson};
  all[1].constraint = {.json_schema = kPerson, .has_spaces = false};
  all[2].constraint = {.grammar =
                           "root ::= \"begin(\" root \")end\" | "
                           "\"(\" [a-z]{3} \")\""};
  all[3].constraint = {.regex = "(le chat noir|la souris grise)"};
  all[3].start_after = "voici:";
  all[4].constraint = {.tool_calls =
                           R"({"format": "hermes", "parallel": false,
          "functions": [{"name": "get_weather", "parameters": {
              "type": "object", "additionalProperties": false,
              "required": ["place"],
              "properties": {"place": {"enum": ["Paris", "Rome"]}}}}]})"};
  all[5].allowed_sequences = {{5, 6, 7, 8, 9, 10}, {5, 6, 7, 11, 12}, {13}};
  all[6].constraint = {.json_schema = kPerson, .whitespace = "\\n ?"};
  for (GenerationParams& params : all) {
    if (!params.allowed_sequences) params.max_new_tokens = 80;
  }
  return all;
}

// Everything that does not depend on the steps.
void ExpectSameAnswer(const Generation& a, const Generation& b) {
  EXPECT_EQ(a.texts, b.texts);
  ASSERT_EQ(a.hypotheses.size(), b.hypotheses.size());
  for (size_t i = 0; i < a.hypotheses.size(); ++i) {
    EXPECT_EQ(a.hypotheses[i].tokens, b.hypotheses[i].tokens);
    EXPECT_EQ(a.hypotheses[i].score, b.hypotheses[i].score);
    EXPECT_EQ(a.hypotheses[i].finish_reason, b.hypotheses[i].finish_reason);
  }
}

TEST_F(GeneratorConstraintsTest, ForcedDraftsChangeNothingAndSaveSteps) {
  for (GenerationParams params : ForcingRequests()) {
    for (const bool draws : {false, true}) {
      params.do_sample = draws;
      params.num_return_sequences = draws ? 5 : 1;
      params.seed = 4;
      if (draws) params.logprobs = 2;
      params.stop.clear();
      if (draws && params.constraint && params.constraint->json_schema) {
        params.stop = {"re"};
      }
      params.speculate = SpeculationParams();
      ASSERT_OK_AND_ASSIGN(const Generation plain, Run(params));
      for (const SpeculationMethod method :
           {SpeculationMethod::kConstraint, SpeculationMethod::kNgram,
            SpeculationMethod::kSuffix}) {
        // Whatever a draft costs here, as under sanitizers.
        params.speculate = {
            .method = method, .num_tokens = 8, .always_drafts = true};
        ASSERT_OK_AND_ASSIGN(const Generation drafted, Run(params));
        ExpectSameAnswer(plain, drafted);
        // Rejected drafts of history leave the others out, too.
        if (method != SpeculationMethod::kConstraint) continue;
        EXPECT_GT(drafted.usage.num_accepted_tokens, 0);
        EXPECT_LT(drafted.usage.num_steps, plain.usage.num_steps);
      }
      if (!draws) continue;
      params.speculate = {.method = SpeculationMethod::kConstraint,
                          .mode = SpeculationMode::kRejection,
                          .always_drafts = true};
      ASSERT_OK_AND_ASSIGN(const Generation other, Run(params));
      EXPECT_GT(other.usage.num_accepted_tokens, 0);
    }
  }
}

TEST_F(GeneratorConstraintsTest, BeamsDraftNothingOfAConstraint) {
  GenerationParams params;
  params.constraint = {.json_schema = kPerson};
  params.max_new_tokens = 80;
  params.num_beams = 3;
  params.speculate = {.method = SpeculationMethod::kNgram};
  ASSERT_OK_AND_ASSIGN(const Generation beams, Run(params));
  EXPECT_EQ(beams.usage.num_drafted_tokens, 0);
  params.speculate = {.method = SpeculationMethod::kConstraint};
  EXPECT_THAT(Run(params), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("num_beams")));
}

// Beside a draft model, what is forced is drafted without it.
TEST(GeneratorForcedDraftsTest, TheyComeBeforeThoseOfADraftModel) {
  Generator generator =
      Generator::Load(
          EnFrDir(),
          {.num_threads = 1, .draft_model = SourcePath("models/en-fr-draft")})
          .value();
  for (GenerationParams params : ForcingRequests()) {
    const auto run = [&](std::optional<SpeculationParams> speculate) {
      params.speculate = speculate;
      return generator.Generate({.prompt = "It is raining.", .params = params});
    };
    ASSERT_OK_AND_ASSIGN(const Generation plain, run(SpeculationParams()));
    ASSERT_OK_AND_ASSIGN(
        const Generation forced,
        run(SpeculationParams{.method = SpeculationMethod::kConstraint,
                              .num_tokens = 8,
                              .always_drafts = true}));
    ASSERT_OK_AND_ASSIGN(
        const Generation drafted,
        run(SpeculationParams{.method = SpeculationMethod::kDraft,
                              .num_tokens = 8,
                              .always_drafts = true}));
    ExpectSameAnswer(plain, drafted);
    EXPECT_GE(drafted.usage.num_drafted_tokens,
              forced.usage.num_drafted_tokens);
    EXPECT_GE(drafted.usage.num_accepted_tokens,
              forced.usage.num_accepted_tokens);
  }
}

// A default of the engine is for requests that it goes with.
TEST(GeneratorForcedDraftsTest, TheDefaultIsLeftOutWithoutAConstraint) {
  Generator generator =
      Generator::Load(
          EnFrDir(),
          {.num_threads = 1,
           .speculate =
               SpeculationParams{.method = SpeculationMethod::kConstraint,
                                 .always_drafts = true}})
          .value();
  GenerationParams params;
  params.max_new_tokens = 80;
  const auto run = [&] {
    return generator.Generate({.prompt = "It is raining.", .params = params});
  };
  ASSERT_OK_AND_ASSIGN(const Generation plain, run());
  EXPECT_EQ(plain.usage.num_drafted_tokens, 0);
  params.constraint = {.json_schema = kPerson};
  ASSERT_OK_AND_ASSIGN(const Generation drafted, run());
  EXPECT_GT(drafted.usage.num_accepted_tokens, 0);
  params.num_beams = 2;
  ASSERT_OK_AND_ASSIGN(const Generation beams, run());
  EXPECT_EQ(beams.usage.num_drafted_tokens, 0);
}

TEST_F(GeneratorConstraintsTest, ErrorsNameTheField) {
  GenerationParams params;
  params.constraint = {.regex = "a++"};
  EXPECT_THAT(Run(params), StatusIs(absl::StatusCode::kInvalidArgument,
                                    StartsWith("constraint.regex: ")));
  params.constraint = {.json_schema = R"({"items": {"pattern": "a++"}})"};
  EXPECT_THAT(Run(params),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       StartsWith("constraint.json_schema: #/items/pattern")));
  params.constraint = ConstraintParams();
  EXPECT_THAT(Run(params),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "constraint must have one kind of language, got none"));
  params.constraint = {.regex = "[0-9]+"};
  params.suppress_tokens = {};
  for (TokenId token = 6; token < 6000; ++token) {
    params.suppress_tokens.push_back(token);
  }
  EXPECT_THAT(Run(params),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("constraint and suppress_tokens leave none")));
}

}  // namespace
}  // namespace espalier::testing
