// The precedence of the levels that a request's params come from.
#include "request/resolve_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_scan.h"
#include "base/status.h"
#include "request/json/generation_config.h"
#include "request/param_fields.h"
#include "tests/request/json/check_line.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using Values = std::map<std::string_view, std::vector<std::string>>;

// Values of each field, as JSON.
const Values& FieldValues() {
  static const Values* const values = new Values{
      {"num_beams", {"1", "3", "4", "6"}},
      {"num_return_sequences", {"1", "2", "3"}},
      {"length_penalty", {"0.5", "2.0"}},
      {"length_penalty_form", {R"("wu")", R"("power")"}},
      {"length_counts_eos", {"false", "true"}},
      {"early_stopping", {"true", R"("never")", "false"}},
      {"patience", {"2.0", "1.5"}},
      {"num_beam_groups", {"1", "2", "3"}},
      {"diversity_penalty", {"0.5", "0.25"}},
      {"stochastic", {"true", "false"}},
      {"do_sample", {"true", "false"}},
      {"best_of", {"3", "5"}},
      {"temperature", {"0.5", "1.5", "0.0"}},
      {"top_k", {"5", "7"}},
      {"top_p", {"0.5", "0.75"}},
      {"min_p", {"0.125", "0.25"}},
      {"typical_p", {"0.5", "0.75"}},
      {"seed", {"7", "8"}},
      {"repetition_penalty", {"1.5", "1.25"}},
      {"frequency_penalty", {"0.5", "0.25"}},
      {"presence_penalty", {"0.5", "0.25"}},
      {"no_repeat_ngram_size", {"2", "3"}},
      {"logit_bias", {R"({"7": -1.5})", R"({"9": 2})"}},
      {"sequence_bias", {"[[[7, 8], -1.5]]", "[[[9], 2.0]]"}},
      {"exponential_decay_length_penalty", {"[2, 1.5]", "[3, 1.25]"}},
      {"renormalize_logits", {"true", "false"}},
      {"bad_words", {R"(["a"])", R"(["b", "c"])"}},
      {"bad_words_ids", {"[[7]]", "[[8, 9]]"}},
      {"suppress_tokens", {"[8]", "[9, 10]"}},
      {"begin_suppress_tokens", {"[11]", "[12, 13]"}},
      {"decoder_prompt", {R"("")"}},
      {"decoder_prompt_tokens", {"[7]", "[8, 9]"}},
      {"forced_bos_token_id", {"6", "7"}},
      {"forced_eos_token_id", {"[2]", "[5, 6]"}},
      {"allowed_token_ids", {"[2, 5, 6, 7, 8, 9]", "[2, 7, 8]"}},
      {"constraint",
       {R"({"regex": "a+"})", R"({"choice": ["a", "b"]})",
        R"({"json_schema": {"type": "null"}})"}},
      {"start_after", {R"("a")", R"("b")"}},
      {"allowed_sequences", {"[[6, 7], [8]]", "[[9]]"}},
      {"max_new_tokens", {"5", "9"}},
      {"min_new_tokens", {"2", "3"}},
      {"eos_token_id", {"[5]", "[6, 7]"}},
      {"stop_token_ids", {"[5]", "[20]"}},
      {"ignore_eos", {"true", "false"}},
      {"stop", {R"(["x"])", R"(["y", "z"])"}},
      {"include_stop", {"true", "false"}},
      {"skip_special_tokens", {"true", "false"}},
      {"deadline_ms", {"100", "200"}},
      {"logprobs", {"0", "2"}},
      {"prompt_logprobs", {"0", "1"}},
      {"logprobs_mode", {R"("processed_logprobs")", R"("raw_logprobs")"}},
      {"legal_log_mass", {"true", "false"}},
      {"beam_indices", {"true", "false"}},
      {"logprobs_start", {"0", "1"}},
      {"speculate", {R"("ngram")", R"("off")"}},
      {"prefix_cache", {"true", "false"}},
      {"cache_salt", {R"("a")", R"("b")"}},
      {"priority", {"1", "-2"}},
      {"tenant", {R"("a")", R"("b")"}},
  };
  return *values;
}

// A level of a request's params: fields of the request format.
struct Level {
  NamedValues values;
  GenerationParams params;

  const std::string* Find(std::string_view param) const {
    const auto found =
        std::ranges::find(values, param, &NamedValues::value_type::first);
    return found == values.end() ? nullptr : &found->second;
  }
};

// A level with each field at `probability`, without fields of `left`.
Level MakeLevel(double probability, const std::set<std::string_view>& left,
                std::mt19937* random) {
  Level level;
  std::bernoulli_distribution is_set(probability);
  for (const ParamField& field : ParamFields()) {
    if (left.contains(field.name) || !is_set(*random)) continue;
    const std::vector<std::string>& values = FieldValues().at(field.name);
    const std::string& json = values[(*random)() % values.size()];
    EXPECT_OK(ReadParam(field, field.name, JsonText{json}, &level.params));
    level.values.emplace_back(field.name, json);
  }
  return level;
}

GenerationDefaults ModelDefaultsOf(const Level& level) {
  json::object config;
  for (const auto& [param, json] : level.values) {
    config[param == "stop" ? "stop_strings" : param] = *ParseJson(json);
  }
  absl::StatusOr<GenerationDefaults> defaults =
      ReadGenerationDefaults(config, "FILE", DefaultsOf::kGiven);
  EXPECT_OK(defaults);
  return *std::move(defaults);
}

bool IsValid(GenerationParams params, int64_t num_prompt_tokens) {
  params.bad_words.clear();  // have no tokens without a tokenizer
  return ValidateParams(EnFr(), num_prompt_tokens, &params).ok();
}

bool Has(const NamedValues& values, std::string_view param,
         const std::string& json) {
  return std::ranges::any_of(values, [&](const auto& value) {
    const bool is_param = value.first == param ||
                          (value.first == "stop_strings" && param == "stop");
    return is_param && *ParseJson(value.second) == *ParseJson(json);
  });
}

// The levels of a request, resolved.
struct Resolved {
  Level request, server, model;
  ResolvedParams result;

  bool IsGiven(std::string_view param) const {
    return request.Find(param) != nullptr ||
           (param == "decoder_prompt_tokens" &&
            request.Find("decoder_prompt") != nullptr);
  }

  // The highest level that sets the field and whose value was taken;
  // GenerationParams() if there is none.
  GenerationParams Expected(const ParamField& field) const {
    if (IsGiven(field.name)) return request.params;
    for (const Level* const level : {&server, &model}) {
      const std::string* const json = level->Find(field.name);
      if (json == nullptr) continue;
      // No file says what holds without it.
      if (level == &model && field.IsDefault(level->params)) continue;
      if (Has(result.defaults, field.name, *json)) return level->params;
    }
    return GenerationParams();
  }
};

// A request that is valid without defaults, of `num_prompt_tokens` tokens.
Level MakeRequest(int64_t num_prompt_tokens, std::mt19937* random) {
  while (true) {
    Level request = MakeLevel(0.06, {}, random);
    if (IsValid(request.params, num_prompt_tokens)) return request;
  }
}

std::set<std::string_view> WithoutDefaults() {
  std::set<std::string_view> left;
  for (const ParamField& field : ParamFields()) left.insert(field.name);
  for (const std::string_view param : DefaultParams()) left.erase(param);
  return left;
}

Resolved ResolveAtRandom(int64_t num_prompt_tokens, const ApiDefaults* api,
                         std::mt19937* random) {
  Resolved made;
  made.request = MakeRequest(num_prompt_tokens, random);
  made.server = MakeLevel(0.08, {}, random);
  made.model = MakeLevel(0.2, WithoutDefaults(), random);
  const GenerationDefaults defaults = ModelDefaultsOf(made.model);
  const ServerValues server = {made.server.values, made.server.params};
  std::vector<std::string_view> given;
  for (const auto& [param, json] : made.request.values) given.push_back(param);
  made.result =
      ResolveDefaults({.server = &server, .model = &defaults, .api = api},
                      made.request.params, given, EnFr(), num_prompt_tokens);
  return made;
}

std::string Describe(const Resolved& made) {
  std::string text;
  for (const Level* level : {&made.request, &made.server, &made.model}) {
    text += "\n ";
    for (const auto& [param, json] : level->values) {
      text += " " + param + ": " + json;
    }
  }
  text += "\n  taken:";
  for (const auto& [param, json] : made.result.defaults) {
    text += " " + param + ": " + json;
  }
  return text;
}

TEST(ResolveDefaultsTest, EveryFieldOfTheFormatHasValues) {
  for (const ParamField& field : ParamFields()) {
    EXPECT_TRUE(FieldValues().contains(field.name)) << field.name;
  }
}

TEST(ResolveDefaultsTest, AFieldHasTheValueOfTheHighestLevelThatSetsIt) {
  std::mt19937 random(40);
  std::set<std::string_view> of_server, of_model;
  for (int i = 0; i < 4000; ++i) {
    const int64_t num_prompt_tokens = 1 + i % 2;
    const Resolved made = ResolveAtRandom(num_prompt_tokens, nullptr, &random);
    const GenerationParams& params = made.result.params;
    EXPECT_TRUE(IsValid(params, num_prompt_tokens)) << Describe(made);
    for (const ParamField& field : ParamFields()) {
      const GenerationParams expected = made.Expected(field);
      EXPECT_TRUE(field.member.equal(params, expected))
          << field.name << Describe(made);
      if (made.IsGiven(field.name) || field.IsDefault(params)) continue;
      (made.server.Find(field.name) ? of_server : of_model).insert(field.name);
    }
  }
  for (const ParamField& field : ParamFields()) {
    if (field.name == "decoder_prompt") continue;  // a server's has no tokens
    EXPECT_TRUE(of_server.contains(field.name)) << field.name;
  }
  for (const std::string_view param : DefaultParams()) {
    EXPECT_TRUE(of_model.contains(param)) << param;
  }
}

// The search and the lengths of OpenAI's API have rules of their own.
TEST(ResolveDefaultsTest, AnApisRulesLeaveTheOtherFieldsToTheLevels) {
  std::mt19937 random(39);
  const ApiDefaults api = {.max_new_tokens = 16, .drops_include_stop = false};
  const std::set<std::string_view> own = {"num_beams", "do_sample",
                                          "max_new_tokens"};
  for (int i = 0; i < 2000; ++i) {
    const int64_t num_prompt_tokens = 1 + i % 2;
    const Resolved made = ResolveAtRandom(num_prompt_tokens, &api, &random);
    for (const ParamField& field : ParamFields()) {
      if (own.contains(field.name) && !made.IsGiven(field.name)) continue;
      EXPECT_TRUE(field.member.equal(made.result.params, made.Expected(field)))
          << field.name << Describe(made);
    }
  }
}

// The level of a server or a request.
Level LevelOf(const NamedValues& values) {
  Level level = {values, {}};
  for (const auto& [param, json] : values) {
    EXPECT_OK(
        ReadParam(ParamNamed(param), param, JsonText{json}, &level.params));
  }
  return level;
}

ResolvedParams Resolve(const Level& request, const Level& server,
                       const NamedValues& model,
                       const ApiDefaults* api = nullptr) {
  const GenerationDefaults defaults = ModelDefaultsOf({model, {}});
  const ServerValues values = {server.values, server.params};
  std::vector<std::string_view> given;
  for (const auto& [param, json] : request.values) given.push_back(param);
  return ResolveDefaults({.server = &values, .model = &defaults, .api = api},
                         request.params, given, EnFr(), 3);
}

TEST(ResolveDefaultsTest, DefaultsThatARequestsSpeculationExcludesAreNamed) {
  const auto note = [](const Level& request, const Level& server,
                       const NamedValues& model) {
    const GenerationDefaults defaults = ModelDefaultsOf({model, {}});
    const ServerValues values = {server.values, server.params};
    std::vector<std::string_view> given;
    for (const auto& [param, json] : request.values) given.push_back(param);
    return SpeculationNote({.server = &values, .model = &defaults},
                           request.params, given, EnFr(), 3);
  };
  const std::string rest =
      " left out, a default that does not go with speculate ngram";
  const Level draws =
      LevelOf({{"do_sample", "true"}, {"speculate", R"("ngram")"}});
  const Level open = LevelOf({{"speculate", R"("ngram")"}});
  const NamedValues beams = {{"num_beams", "4"}};
  EXPECT_EQ(note(draws, {}, beams), "num_beams 4 is" + rest);
  EXPECT_EQ(note(draws, LevelOf(beams), {}), "num_beams 4 is" + rest);
  EXPECT_EQ(note(open, {}, {{"num_beams", "4"}, {"num_beam_groups", "2"}}),
            "num_beam_groups 2 is" + rest);
  EXPECT_EQ(
      note(open, LevelOf({{"stochastic", "true"}, {"num_beams", "4"}}), {}),
      "stochastic true is" + rest);
  EXPECT_EQ(note(open, {}, beams), "");
  EXPECT_EQ(note(LevelOf({{"do_sample", "true"}, {"speculate", R"("off")"}}),
                 {}, beams),
            "");
  EXPECT_EQ(note(LevelOf({{"do_sample", "true"}}), {}, beams), "");
}

TEST(ResolveDefaultsTest, SpeculationOfADefaultIsDroppedForTheSearch) {
  const Level server = LevelOf({{"speculate", R"("ngram")"}});
  EXPECT_TRUE(Resolve({}, server, {}).params.speculate.has_value());
  const ResolvedParams resolved =
      Resolve({}, server, {{"do_sample", "true"}, {"num_beams", "4"}});
  EXPECT_EQ(resolved.params.num_beams, 4);
  EXPECT_TRUE(resolved.params.do_sample);
  EXPECT_FALSE(resolved.params.speculate.has_value());
  EXPECT_FALSE(Has(resolved.defaults, "speculate", R"("ngram")"));
}

// Valid for 16 tokens, and beyond float32 for the whole context.
TEST(ResolveDefaultsTest, DefaultsAreCheckedAtTheLengthThatRuns) {
  const NamedValues decay = {{"exponential_decay_length_penalty", "[1, 2.0]"}};
  const NamedValues short_decay = {
      {"exponential_decay_length_penalty", "[1, 2.0]"},
      {"max_new_tokens", "16"}};
  const auto decays = [](const ResolvedParams& resolved) {
    return resolved.params.exponential_decay_length_penalty.has_value();
  };
  const ApiDefaults api = {.max_new_tokens = 16};
  EXPECT_TRUE(decays(Resolve({}, LevelOf(decay), {}, &api)));
  EXPECT_TRUE(decays(Resolve({}, {}, decay, &api)));
  EXPECT_TRUE(decays(Resolve({}, LevelOf(short_decay), {})));
  EXPECT_TRUE(decays(Resolve({}, {}, short_decay)));
  EXPECT_TRUE(decays(Resolve({}, LevelOf(decay), {{"max_new_tokens", "16"}})));
  EXPECT_FALSE(decays(Resolve({}, {},
                              {{"exponential_decay_length_penalty", "[1, 2.0]"},
                               {"max_new_tokens", "900"}})));
  EXPECT_OK(CheckDefaults(ModelDefaultsOf({short_decay, {}}), EnFr()));
  EXPECT_THAT(Message(CheckDefaults(ModelDefaultsOf({decay, {}}), EnFr())),
              ::testing::HasSubstr("exponential_decay_length_penalty"));
}

TEST(ResolveDefaultsTest, DoSampleOfAServerIsListed) {
  const ApiDefaults api = {};
  const ResolvedParams resolved = Resolve(
      {}, LevelOf({{"num_beams", "4"}, {"do_sample", "true"}}), {}, &api);
  EXPECT_TRUE(Has(resolved.defaults, "do_sample", "true"));
}

TEST(ResolveDefaultsTest, ASearchListsTheSamplingDefaultsThatItLeavesOut) {
  const GenerationDefaults defaults = ModelDefaultsOf(
      {{{"do_sample", "true"}, {"top_k", "20"}, {"length_penalty", "2.0"}},
       {}});
  GenerationParams params;
  params.num_beams = 4;
  const std::string_view given[] = {"num_beams"};
  const ResolvedParams resolved =
      ResolveDefaults({.model = &defaults}, params, given, EnFr(), 3);
  EXPECT_THAT(LeftOutForSearch(defaults, given, params),
              ::testing::ElementsAre(::testing::Pair("do_sample", "true"),
                                     ::testing::Pair("top_k", "20")));
  EXPECT_THAT(resolved.defaults,
              ::testing::ElementsAre(::testing::Pair("length_penalty", "2.0")));
}

}  // namespace
}  // namespace espalier::testing
