// Calls whose answers are in a language.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "espalier/generator.h"
#include "request/token_bytes.h"
#include "tests/serve/server_fixture.h"
#include "tests/source_tree.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::serve {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ConstrainedCallsTest : public ServerFixture {
 protected:
  void SetUp() override {
    Listen();
    absl::StatusOr<Generator> generator =
        Generator::Load(SourcePath("models/en-fr"), {.num_threads = 1});
    ASSERT_OK(generator);
    ASSERT_OK(server_->Serve(*std::move(generator), "models/en-fr"));
  }

  RawResponse Complete(std::string_view fields) {
    return Post("/v1/completions",
                Concat(R"({"prompt": "It is raining.", )", fields, "}"));
  }

  void ExpectRefused(std::string_view fields, std::string_view param,
                     std::string_view message) {
    const RawResponse response = Complete(fields);
    EXPECT_EQ(response.status, 400) << response.body;
    const json::value error = ParseJson(response.body).value().at("error");
    EXPECT_EQ(std::string(error.at("param").as_string()), param);
    EXPECT_THAT(std::string(error.at("message").as_string()),
                HasSubstr(std::string(message)));
  }
};

TEST_F(ConstrainedCallsTest, EachNameOfTheFieldConstrainsTheText) {
  const std::regex pattern("(Il|Elle) (pleut|neige|gèle)!?");
  const std::string regex = R"("(Il|Elle) (pleut|neige|gèle)!?")";
  for (const std::string& fields :
       {R"("structured_outputs": {"regex": )" + regex + "}",
        R"("regex": )" + regex, R"("constraint": {"regex": )" + regex + "}"}) {
    for (const char* const search :
         {R"("num_beams": 4, "n": 4)",
          R"("temperature": 1.5, "n": 5, "seed": 3)", R"("num_beams": 1)"}) {
      const RawResponse response = Complete(Concat(fields, ", ", search));
      ASSERT_EQ(response.status, 200) << response.body;
      const json::value answer = ParseJson(response.body).value();
      for (const json::value& choice : answer.at("choices").as_array()) {
        const std::string text(choice.at("text").as_string());
        EXPECT_TRUE(std::regex_match(text, pattern)) << text;
        EXPECT_EQ(choice.at("finish_reason"), "stop");
      }
    }
  }
}

TEST_F(ConstrainedCallsTest, EachNameOfAGrammarConstrainsTheText) {
  const std::string grammar = R"("root ::= \"(\" root \")\" | [xy] # pairs")";
  const std::regex pattern("\\(*[xy]\\)*");
  for (const std::string& fields :
       {R"("structured_outputs": {"grammar": )" + grammar + "}",
        R"("grammar": )" + grammar, R"("ebnf": )" + grammar,
        R"("constraint": {"grammar": )" + grammar + "}"}) {
    for (const char* const search :
         {R"("num_beams": 4, "n": 4)",
          R"("temperature": 1.5, "n": 5, "seed": 3)"}) {
      const RawResponse response = Complete(Concat(fields, ", ", search));
      ASSERT_EQ(response.status, 200) << response.body;
      const json::value answer = ParseJson(response.body).value();
      for (const json::value& choice : answer.at("choices").as_array()) {
        const std::string text(choice.at("text").as_string());
        EXPECT_TRUE(std::regex_match(text, pattern)) << text;
        EXPECT_EQ(std::ranges::count(text, '('), std::ranges::count(text, ')'))
            << text;
        EXPECT_EQ(choice.at("finish_reason"), "stop");
      }
    }
  }
  ExpectRefused(R"("grammar": "root ::= a")", "grammar",
                "grammar: at line 1, column 10: no rule \"a\" is defined");
  ExpectRefused(R"("structured_outputs": {"grammar": "start: \"a\""})",
                "structured_outputs.grammar", "Lark is not supported");
  ExpectRefused(R"("grammar": 7)", "grammar", "must be a string, got 7");
}

TEST_F(ConstrainedCallsTest, EachNameOfASchemaConstrainsTheText) {
  const std::string schema = R"({"type": "object", "required": ["n"],
      "additionalProperties": false,
      "properties": {"n": {"type": "integer", "minimum": 10, "maximum": 99}}})";
  json::string quoted(schema);
  for (const std::string& fields :
       {R"("response_format": {"type": "json_schema", "json_schema":
              {"name": "a", "strict": true, "schema": )" +
            schema + "}}",
        R"("response_format": {"type": "json_object", "schema": )" + schema +
            "}",
        R"("structured_outputs": {"disable_any_whitespace": true, "json": )" +
            schema + "}",
        R"("structured_outputs": {"json": )" + WriteJson(quoted) + "}",
        R"("structured_outputs": {"whitespace_pattern": "[ \\n]?", "json": )" +
            schema + "}",
        R"("json_schema": )" + schema, R"("json_schema": )" + WriteJson(quoted),
        R"("constraint": {"json_schema": )" + schema + "}"}) {
    const RawResponse response =
        Complete(Concat(fields, R"(, "num_beams": 3, "n": 3)"));
    ASSERT_EQ(response.status, 200) << response.body;
    const json::value answer = ParseJson(response.body).value();
    for (const json::value& choice : answer.at("choices").as_array()) {
      const std::string text(choice.at("text").as_string());
      const json::value value = ParseJson(text).value();
      EXPECT_GE(value.at("n").as_int64(), 10) << text;
      EXPECT_LE(value.at("n").as_int64(), 99) << text;
      EXPECT_EQ(choice.at("finish_reason"), "stop");
    }
  }
  EXPECT_EQ(Complete(R"("response_format": {"type": "text"})").status, 200);
  EXPECT_EQ(Complete(R"("response_format": {"type": "json_object"},
                        "max_tokens": 8)")
                .status,
            200);
  EXPECT_EQ(Complete(R"("structured_outputs": {"json_object": true},
                        "max_tokens": 8)")
                .status,
            200);
}

TEST_F(ConstrainedCallsTest, StreamsDeliverTextsOfTheLanguage) {
  for (const char* const search :
       {R"("num_beams": 4)", R"("temperature": 1.5, "seed": 3)"}) {
    const RawResponse response = Complete(
        Concat(R"("structured_outputs": {"choice": ["Non.", "Peut-être."]},)",
               R"("stream": true, )", search));
    ASSERT_EQ(response.status, 200) << response.body;
    const Events events = ReadEvents(response.body);
    EXPECT_TRUE(events.is_done);
    std::string text;
    for (const json::value& event : events.all) {
      for (const json::value& choice : event.at("choices").as_array()) {
        text += choice.at("text").as_string();
      }
    }
    EXPECT_TRUE(text == "Non." || text == "Peut-être.") << text;
  }
}

// Else each call would fail.
TEST(DefaultConstraintAtStartTest, OneThatDoesNotCompileIsRefusedAtStart) {
  const auto serve = [](const std::string& defaults) {
    auto server =
        Server::Listen({.port = 0, .num_threads = 1, .defaults = defaults});
    EXPECT_OK(server);
    absl::StatusOr<Generator> generator =
        Generator::Load(SourcePath("models/en-fr"), {.num_threads = 1});
    EXPECT_OK(generator);
    return (*server)->Serve(*std::move(generator), "models/en-fr");
  };
  EXPECT_OK(serve(R"({"constraint": {"regex": "a|b"}})"));
  EXPECT_THAT(Message(serve(R"({"constraint": {"regex": "("}})")),
              HasSubstr("constraint.regex: "));
  EXPECT_THAT(
      Message(serve(R"({"constraint": {"json_schema": {"minimum": "a"}}})")),
      HasSubstr("constraint.json_schema: #/minimum"));
}

class DefaultConstraintTest : public ConstrainedCallsTest {
 protected:
  void SetUp() override {}
  void Serve(const std::string& defaults) {
    Listen({.defaults = defaults});
    absl::StatusOr<Generator> generator =
        Generator::Load(SourcePath("models/en-fr"), {.num_threads = 1});
    ASSERT_OK(generator);
    ASSERT_OK(server_->Serve(*std::move(generator), "models/en-fr"));
  }
};

TEST_F(DefaultConstraintTest, ItsErrorsInACallSayThatItIsADefault) {
  Serve(R"({"constraint": {"choice": ["7"]}})");
  EXPECT_EQ(Complete(R"("max_tokens": 4)").status, 200);
  // Ids that end the output are no part of a text.
  const TokenVocabulary vocabulary =
      TokenBytesOf(testing::EnFrTokenizer(), {}, 6000);
  std::string sevens;
  for (TokenId token = 0; token < 6000; ++token) {
    if (vocabulary.inside.BytesOf(token).find('7') == std::string_view::npos)
      continue;
    sevens += Concat(sevens.empty() ? "" : ", ", token);
  }
  ExpectRefused(Concat(R"("stop_token_ids": [)", sevens, "]"),
                "constraint.choice",
                R"(the vocabulary can spell no text of the language; )"
                R"(constraint is {"choice": ["7"]} by the defaults of the )"
                "server");
}

TEST_F(DefaultConstraintTest, ACallThatLeavesItOutIsWarned) {
  Serve(R"({"constraint": {"regex": "[0-9]+"}, "max_tokens": 4})");
  for (const auto& [fields, name] :
       std::vector<std::pair<std::string, std::string>>{
           {R"("allowed_token_ids": [337, 2])", "allowed_token_ids"},
           {R"("allowed_sequences": [[337, 2]])", "allowed_sequences"},
           {R"("forced_eos_token_id": 2)", "forced_eos_token_id"},
           {R"("split_sentences": true)", "split_sentences true"}}) {
    const RawResponse response = Complete(fields);
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_THAT(response.body,
                HasSubstr("the server's default constraint is left out, "
                          "because it does not go with " +
                          name + "\""))
        << fields;
  }
  for (const char* const fields :
       {R"("n": 1)", R"("response_format": {"type": "text"})",
        R"("regex": "a")", R"("split_sentences": false)"}) {
    const RawResponse response = Complete(fields);
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_THAT(response.body, Not(HasSubstr("left out"))) << fields;
  }
}

TEST_F(ConstrainedCallsTest, WhatIsWrongIsNamedAsItWasGiven) {
  ExpectRefused(R"("structured_outputs": {"regex": "a(?=b)c"})",
                "structured_outputs.regex",
                "structured_outputs.regex: at byte 1: look-ahead");
  ExpectRefused(R"("regex": "[")", "regex", "regex: ");
  ExpectRefused(R"("constraint": {"regex": "["})", "constraint.regex",
                "constraint.regex: ");
  ExpectRefused(R"("structured_outputs": {"choice": []})",
                "structured_outputs.choice", "structured_outputs.choice: ");
  ExpectRefused(R"("structured_outputs": {"choice": "a"})",
                "structured_outputs.choice", "must be a list, got \"a\"");
  ExpectRefused(R"("structured_outputs": {"regex": "a", "choice": ["a"]})",
                "structured_outputs", "must have one kind of language");
  ExpectRefused(R"("structured_outputs": "a")", "structured_outputs",
                "must be an object");
  ExpectRefused(R"("regex": "a", "constraint": {"regex": "a"})", "regex",
                R"(are the same field, got {"regex": "a"})");
  ExpectRefused(
      R"("structured_outputs": {"regex": "a"}, "allowed_token_ids": [7])",
      "allowed_token_ids", "must be unset with structured_outputs");
  ExpectRefused(R"("structured_outputs": {"json": {"minimum": "a"}})",
                "structured_outputs.json",
                "structured_outputs.json: #/minimum");
  ExpectRefused(R"("json_schema": {"$ref": "http://a/b"})", "json_schema",
                "json_schema: #/$ref");
  ExpectRefused(R"("json_schema": "{")", "json_schema",
                "json_schema must be a JSON Schema: ");
  ExpectRefused(R"("json_schema": 7)", "json_schema",
                "must be an object, a boolean, or a string");
  ExpectRefused(R"("response_format": {"type": "json_schema"})",
                "response_format", "must have a schema");
  ExpectRefused(R"("response_format": {"type": "json_schema",
                   "json_schema": {"schema": {"minimum": "a"}}})",
                "response_format.json_schema.schema",
                "response_format.json_schema.schema: #/minimum");
  ExpectRefused(R"("structured_outputs": {"regex": "[0-9]{40}x{9}"},
                   "max_tokens": 2)",
                "max_tokens", "max_tokens must be at least ");
  ExpectRefused(R"("response_format": {"type": "text", "schema": {}})",
                "response_format.schema", "must be unset with the type");
  ExpectRefused(R"("response_format": {"type": "json_schema", "schema": {},
                   "json_schema": {"schema": {}}})",
                "response_format.json_schema.schema", "must be unset with");
  ExpectRefused(R"("structured_outputs": {"json": {"type": "integer"},
                                          "json_object": true})",
                "structured_outputs", "got json and json_object");
  ExpectRefused(R"("structured_outputs": {"disable_any_whitespace": true})",
                "structured_outputs.disable_any_whitespace",
                "must be unset without json or json_object");
  ExpectRefused(R"("response_format": {"type": "xml"})", "response_format.type",
                R"(must be "text", "json_object" or "json_schema", got "xml")");
  ExpectRefused(R"("response_format": {})", "response_format.type", "got none");
  ExpectRefused(R"("response_format": {"type": "text", "a": 1})",
                "response_format.a", "is not supported");
  ExpectRefused(R"("response_format": {"type": "json_object"}, "regex": "a")",
                "response_format", "both say what the text");
  // A minute of work is refused after a part of a second.
  ExpectRefused(R"("regex": "((a|b|cd){1,900}x){1,900}y")", "regex",
                "the limit");
}

TEST_F(ConstrainedCallsTest, OptionsOfSchemasAreThoseOfVllm) {
  const auto text = [&](const std::string& options, const std::string& schema) {
    const RawResponse response =
        Complete(Concat(R"("max_tokens": 40, "structured_outputs": {)", options,
                        R"(, "json": )", schema, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    if (response.status != 200) return std::string();
    return std::string(ParseJson(response.body)
                           .value()
                           .at("choices")
                           .at(0)
                           .at("text")
                           .as_string());
  };
  const std::string list = R"({"const": [1, {"a": 2}]})";
  EXPECT_EQ(text(R"("disable_any_whitespace": true)", list), R"([1,{"a":2}])");
  EXPECT_EQ(text(R"("whitespace_pattern": "")", list), R"([1,{"a":2}])");
  EXPECT_EQ(text(R"("whitespace_pattern": " ")", list),
            R"([ 1 , { "a" : 2 } ])");
  const std::string named = R"({"properties": {"a": {"const": 1}},
      "minProperties": 1, "type": "object"})";
  EXPECT_EQ(text(R"("disable_additional_properties": true,
                    "disable_any_whitespace": true)",
                 named),
            R"({"a":1})");
  EXPECT_EQ(Complete(R"("constraint": {"json_schema": {"const": [1]},
                        "whitespace": "\n"})")
                .status,
            200);
  ExpectRefused(R"("structured_outputs": {"whitespace_pattern": "\\s",
                   "json": {}})",
                "structured_outputs.whitespace_pattern",
                "must be a regular expression of white space: a text that it "
                "matches has \"\\u000b\"");
  ExpectRefused(R"("structured_outputs": {"whitespace_pattern": "none",
                   "json": {}})",
                "structured_outputs.whitespace_pattern", "got \"none\"");
  ExpectRefused(R"("structured_outputs": {"whitespace_pattern": " ",
                   "disable_any_whitespace": true, "json": {}})",
                "structured_outputs.whitespace_pattern",
                "must be unset with disable_any_whitespace, got \" \"");
  ExpectRefused(R"("structured_outputs": {"whitespace_pattern": " ",
                   "regex": "a"})",
                "structured_outputs.whitespace_pattern",
                "must be unset without json or json_object");
  ExpectRefused(R"("structured_outputs": {"regex": "a",
                   "disable_additional_properties": true})",
                "structured_outputs.disable_additional_properties",
                "must be unset without json or json_object");
  ExpectRefused(R"("constraint": {"json_schema": {}, "whitespace": "[ \\n"})",
                "constraint.whitespace", "at byte 0");
}

TEST_F(ConstrainedCallsTest, TextAsFormatIsNoConstraintInAnyOrder) {
  const std::string text = R"("response_format": {"type": "text"})";
  for (const std::string& other :
       {std::string(R"("constraint": {"choice": ["oui"]})"),
        std::string(R"("structured_outputs": {"choice": ["oui"]})")}) {
    for (const std::string& fields :
         {Concat(text, ", ", other), Concat(other, ", ", text)}) {
      const RawResponse response = Complete(fields);
      ASSERT_EQ(response.status, 200) << response.body;
      EXPECT_THAT(response.body, HasSubstr(R"("text":"oui")"));
    }
  }
}

TEST_F(ConstrainedCallsTest, KeysOfStructuredOutputsAreText) {
  for (const std::string key :
       {R"(a\")", R"(a\\)", R"(\n)", R"(choice\": [\"x\"], \"b)", "regexp",
        "whitespace", "json_schema"}) {
    ExpectRefused(Concat(R"("structured_outputs": {")", key, R"(": 1})"),
                  "structured_outputs",
                  "structured_outputs must have no field ");
  }
}

TEST_F(ConstrainedCallsTest, AFieldThatNestsTooDeepIsNamed) {
  std::string schema = "{}";
  for (int i = 0; i < 40; ++i) schema = R"({"items": )" + schema + "}";
  const std::string message = " is nested too deep at byte ";
  ExpectRefused(R"("json_schema": )" + schema, "json_schema",
                "json_schema" + message);
  ExpectRefused(R"("constraint": {"json_schema": )" + schema + "}",
                "constraint", "constraint" + message);
  ExpectRefused(
      R"("response_format": {"type": "json_object", "schema": )" + schema + "}",
      "response_format", "response_format" + message);
  ExpectRefused(R"("n": 1, "stop": )" + std::string(40, '['), "stop",
                "stop" + message);
}

// The sum is there with its parts, in a stream as well.
TEST_F(ConstrainedCallsTest, TheLegalMassOfEachTokenIsBesideItsSum) {
  const std::string fields =
      R"("constraint": {"regex": "(Il|Elle) pleut"}, "logprobs": 0,
         "legal_log_mass": true, "temperature": 0)";
  const RawResponse whole = Complete(fields);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value choice = ParseJson(whole.body).value().at("choices").at(0);
  const json::array& masses = choice.at("legal_log_masses").as_array();
  EXPECT_EQ(masses.size(),
            choice.at("logprobs").at("tokens").as_array().size());
  double sum = 0;
  for (const json::value& mass : masses) {
    EXPECT_LE(mass.to_number<double>(), 0);
    sum += mass.to_number<double>();
  }
  EXPECT_NEAR(choice.at("legal_log_mass").to_number<double>(), sum, 1e-4);
  const RawResponse stream = Complete(fields + R"(, "stream": true)");
  EXPECT_THAT(stream.body, HasSubstr(R"("legal_log_masses":[)"));
  EXPECT_THAT(Complete(R"("logprobs": 0)").body, Not(HasSubstr("legal_log")));
}

TEST_F(ConstrainedCallsTest, ANumberBeyondDoubleIsRefused) {
  for (const std::string schema :
       {R"({"minimum": 1e400})", R"({"enum": [[1e999]]})",
        R"({"multipleOf": 1e400})", R"({"const": {"a": -1e999}})"}) {
    ExpectRefused(Concat(R"("json_schema": )", schema), "json_schema",
                  "beyond the range");
    ExpectRefused(Concat(R"("constraint": {"json_schema": )", schema, "}"),
                  "constraint.json_schema", "beyond the range");
  }
}

TEST_F(ConstrainedCallsTest, OtherKindsAreRefusedByName) {
  ExpectRefused(R"("structured_outputs": {"structural_tag": true})",
                "structured_outputs.structural_tag", "is not supported");
  ExpectRefused(R"("guided_whitespace_pattern": " ")",
                "guided_whitespace_pattern",
                "it is structured_outputs with whitespace_pattern");
  ExpectRefused(R"("guided_regex": "a")", "guided_regex",
                "it is structured_outputs with regex");
  ExpectRefused(R"("guided_choice": ["a"])", "guided_choice",
                "it is structured_outputs with choice");
  ExpectRefused(R"("guided_json": {})", "guided_json",
                "it is structured_outputs with json");
  ExpectRefused(R"("guided_grammar": "root ::= a")", "guided_grammar",
                "it is structured_outputs with grammar");
  EXPECT_EQ(Complete(R"("structured_outputs": {"json": null, "regex": null,
                         "disable_any_whitespace": false},
                        "guided_regex": null)")
                .status,
            200);
}

}  // namespace
}  // namespace espalier::serve
