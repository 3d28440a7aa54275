#include "request/json/request_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "exec_request/model.h"
#include "request/json/result_json.h"
#include "request/other_names.h"
#include "request/param_fields.h"
#include "request/request.h"
#include "tests/request/json/check_line.h"
#include "tests/request/json/malformed_requests.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::Check;
using ::espalier::testing::EnFr;
using ::espalier::testing::MalformedRequest;
using ::espalier::testing::MalformedRequests;
using ::espalier::testing::StatusIs;
using ::espalier::testing::WithParams;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;
using ::testing::Pair;
using ::testing::StartsWith;

TEST(RequestJsonTest, MessagesArriveAsTheyAre) {
  const std::string messages =
      R"([{"role": "system", "content": "Be brief."}, )"
      R"({"role": "user", "name": "caf\u00e9", "content": ""}, )"
      R"({"role": "assistant", "tool_calls": [{"id": 1.5}]}])";
  const RequestLine line =
      ParseRequestLine(R"({"messages": )" + messages + "}");
  ASSERT_OK(line.body);
  EXPECT_EQ(line.body->prompt, std::nullopt);
  ASSERT_TRUE(line.body->messages.has_value());
  EXPECT_EQ(json::value(*line.body->messages), ParseJson(messages).value());
}

TEST(RequestJsonTest, TextsOfAMessageAreJoinedByLineEnds) {
  const auto content = [](const std::string& parts) {
    const RequestLine line = ParseRequestLine(
        R"({"messages": [{"role": "user", "content": )" + parts + "}]}");
    EXPECT_OK(line.body);
    return line.body->messages->at(0).at("content");
  };
  EXPECT_EQ(content("[]"), "");
  EXPECT_EQ(content(R"([{"type": "text", "text": "a"}])"), "a");
  EXPECT_EQ(content(R"([{"type": "text", "text": "a", "more": 1}, )"
                    R"({"type": "text", "text": ""}, )"
                    R"({"type": "text", "text": "caf\u00e9"}])"),
            "a\n\ncaf\u00e9");
}

// Its keys could be chosen to be slow to find.
TEST(OtherNamesTest, AreNoFieldsButWhatTheyAreHasOne) {
  const auto is_field = [](std::string_view name) {
    return FindParamField(name) != nullptr ||
           std::ranges::count(kRequestFields, name) > 0;
  };
  ASSERT_GE(OtherNames().size(), 50u);
  for (const OtherName& other : OtherNames()) {
    EXPECT_FALSE(is_field(other.theirs)) << other.theirs;
    EXPECT_TRUE(is_field(other.ours)) << other.theirs;
    EXPECT_EQ(FindOtherName(other.theirs), &other) << "twice";
  }
}

TEST(OtherNamesTest, AreHintedAtWhereTheirFieldIs) {
  constexpr std::string_view kHere[] = {"num_beams", "decoder_prompt"};
  constexpr std::string_view kThere[] = {"stop"};
  const FieldPlaces places = {kHere, kThere, " in params"};
  EXPECT_EQ(HintAtOtherName("beam_size", places), "; did you mean num_beams?");
  EXPECT_EQ(HintAtOtherName("stop_words", places),
            "; did you mean stop in params?");
  EXPECT_EQ(HintAtOtherName("eos", places), "");
  EXPECT_EQ(HintAtOtherName("num_beam", places), std::nullopt);
  EXPECT_EQ(HintAtMisspelling("num_beam", places), "; did you mean num_beams?");
  EXPECT_EQ(HintAtMisspelling("stop_wrods", places),
            "; did you mean stop in params?");
  EXPECT_EQ(HintAtMisspelling("banana", places), "");
  EXPECT_EQ(HintAtMisspelling("target_prefiks", places),
            "; did you mean decoder_prompt?");
}

TEST(RequestJsonTest, AnObjectInMessagesHasAThousandMembersAtMost) {
  const auto status_of = [](int num_members) {
    std::string members = R"("role": "assistant")";
    for (int i = 1; i < num_members; ++i) {
      members += Concat(R"(, ")", i, R"(": 0)");
    }
    return ParseRequestLine(Concat(R"({"messages": [{)", members, "}]}"))
        .body.status();
  };
  EXPECT_OK(status_of(1024));
  EXPECT_EQ(Message(status_of(1025)),
            "messages must have no object of more than 1024 members, got one "
            "of 1025");
}

TEST(RequestJsonTest, EveryFieldOfALineArrives) {
  const RequestLine line = ParseRequestLine(R"({
      "id": "a-1", "prompt_tokens": [1, 4, 5],
      "params": {"num_beams": 5, "n": 3, "length_penalty": -0.5,
        "early_stopping": "never", "max_tokens": 40, "min_tokens": 2,
        "eos_token_id": [2, 9], "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 3, "bad_words_ids": [[7], [8, 9]],
        "bad_words": ["damn", "New York"],
        "suppress_tokens": [11], "do_sample": true,
        "decoder_prompt": "7", "decoder_input_ids": [3, 8],
        "forced_bos_token_id": 4, "forced_eos_token_id": [9, 2],
        "length_penalty_form": "wu", "length_counts_eos": false,
        "patience": 1.5, "num_beam_groups": 5,
        "diversity_penalty": 0.25, "stochastic": true, "best_of": 7,
        "temperature": 0.5, "top_k": 50, "top_p": 0.9, "min_p": 0.05,
        "typical_p": 0.8, "seed": 18446744073709551615,
        "frequency_penalty": 0.5, "presence_penalty": -0.5,
        "logit_bias": {"9": -2, "7": 1.5}, "allowed_token_ids": [7, 8],
        "allowed_sequences": [[7, 8], [9]], "stop_token_ids": [12],
        "constraint": {"regex": null, "choice": ["yes", "\u00e9"]},
        "start_after": "</think>",
        "ignore_eos": true, "stop": ["a", "b"], "include_stop": true,
        "skip_special_tokens": false,
        "sequence_bias": [[[7, 8], -1.5], [ [9] , 2 ]],
        "exponential_decay_length_penalty": [ 3, 1.25 ],
        "renormalize_logits": true, "begin_suppress_tokens": 10,
        "logprobs_mode": "processed_logprobs",
        "logprobs": 3, "prompt_logprobs": 0, "logprobs_start": 2, "legal_log_mass": true,
        "beam_indices": true, "speculate": {"method": "suffix",
          "num_tokens": 7, "mode": "coupled"}, "prefix_cache": false,
        "cache_salt": "tenant-1", "priority": -7, "deadline_ms": 250,
        "tenant": "caf\u00e9"}})");
  ASSERT_OK(line.body);
  EXPECT_EQ(line.id, "\"a-1\"");
  EXPECT_EQ(line.body->caller_id, "a-1");
  EXPECT_EQ(line.body->prompt, std::nullopt);
  EXPECT_THAT(line.body->prompt_tokens, ElementsAre(1, 4, 5));
  const GenerationParams& params = line.body->params;
  EXPECT_EQ(params.num_beams, 5);
  EXPECT_EQ(params.num_return_sequences, 3);
  EXPECT_EQ(params.length_penalty, -0.5);
  EXPECT_EQ(params.early_stopping, EarlyStopping::kNever);
  EXPECT_THAT(params.max_new_tokens, Optional(40));
  EXPECT_EQ(params.min_new_tokens, 2);
  EXPECT_THAT(params.eos_token_id, Optional(ElementsAre(2, 9)));
  EXPECT_EQ(params.repetition_penalty, 1.5);
  EXPECT_EQ(params.no_repeat_ngram_size, 3);
  EXPECT_THAT(params.bad_words_ids,
              ElementsAre(ElementsAre(7), ElementsAre(8, 9)));
  EXPECT_THAT(params.bad_words, ElementsAre("damn", "New York"));
  EXPECT_THAT(params.suppress_tokens, ElementsAre(11));
  EXPECT_EQ(params.decoder_prompt, "7");
  EXPECT_THAT(params.decoder_prompt_tokens, ElementsAre(3, 8));
  EXPECT_THAT(params.forced_bos_token_id, Optional(4));
  EXPECT_THAT(params.forced_eos_token_id, ElementsAre(9, 2));
  EXPECT_THAT(line.body->given, ::testing::SizeIs(ParamFields().size()));
  EXPECT_THAT(line.body->given,
              ::testing::IsSupersetOf({"num_return_sequences", "tenant"}));
  EXPECT_FALSE(params.skip_special_tokens);
  EXPECT_TRUE(params.do_sample);
  EXPECT_EQ(params.length_penalty_form, LengthPenaltyForm::kWu);
  EXPECT_FALSE(params.length_counts_eos);
  EXPECT_EQ(params.patience, 1.5);
  EXPECT_EQ(params.num_beam_groups, 5);
  EXPECT_EQ(params.diversity_penalty, 0.25);
  EXPECT_TRUE(params.stochastic);
  EXPECT_THAT(params.best_of, Optional(7));
  EXPECT_EQ(params.temperature, 0.5);
  EXPECT_EQ(params.top_k, 50);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.min_p, 0.05);
  EXPECT_EQ(params.typical_p, 0.8);
  EXPECT_THAT(params.seed, Optional(std::numeric_limits<uint64_t>::max()));
  EXPECT_EQ(params.frequency_penalty, 0.5);
  EXPECT_EQ(params.presence_penalty, -0.5);
  EXPECT_THAT(params.logit_bias, ElementsAre(Pair(9, -2.0), Pair(7, 1.5)));
  EXPECT_THAT(params.allowed_token_ids, Optional(ElementsAre(7, 8)));
  EXPECT_THAT(params.allowed_sequences,
              Optional(ElementsAre(ElementsAre(7, 8), ElementsAre(9))));
  ASSERT_TRUE(params.constraint.has_value());
  EXPECT_EQ(params.constraint->regex, std::nullopt);
  EXPECT_THAT(params.constraint->choice, Optional(ElementsAre("yes", "é")));
  EXPECT_EQ(params.start_after, "</think>");
  EXPECT_THAT(params.stop_token_ids, ElementsAre(12));
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_THAT(params.stop, ElementsAre("a", "b"));
  EXPECT_TRUE(params.include_stop);
  EXPECT_THAT(params.logprobs, Optional(3));
  EXPECT_THAT(params.prompt_logprobs, Optional(0));
  EXPECT_THAT(params.sequence_bias,
              ElementsAre(SequenceBias{{7, 8}, -1.5}, SequenceBias{{9}, 2}));
  EXPECT_EQ(params.exponential_decay_length_penalty, (LengthDecay{3, 1.25}));
  EXPECT_TRUE(params.renormalize_logits);
  EXPECT_THAT(params.begin_suppress_tokens, ElementsAre(10));
  EXPECT_EQ(params.logprobs_mode, LogprobsMode::kProcessed);
  EXPECT_EQ(params.logprobs_start, 2);
  EXPECT_TRUE(params.legal_log_mass);
  EXPECT_TRUE(params.beam_indices);
  EXPECT_THAT(params.speculate,
              Optional(SpeculationParams{SpeculationMethod::kSuffix, 7,
                                         SpeculationMode::kCoupled}));
  EXPECT_FALSE(params.prefix_cache);
  EXPECT_EQ(params.cache_salt, "tenant-1");
  EXPECT_EQ(params.priority, -7);
  EXPECT_THAT(params.deadline_ms, Optional(250));
  EXPECT_EQ(params.tenant, "caf\u00e9");
}

// Tests the whole table, so that no field is forgotten.
TEST(RequestJsonTest, EveryFieldOfTheTableHasItsPlace) {
  std::set<std::string_view> names;
  std::set<std::string_view> groups;
  std::string_view group;
  for (const ParamField& field : ParamFields()) {
    SCOPED_TRACE(field.name);
    EXPECT_TRUE(names.insert(field.name).second);
    if (!field.alias.empty()) {
      EXPECT_TRUE(names.insert(field.alias).second);
      EXPECT_EQ(FindParamField(field.alias), &field);
    }
    EXPECT_EQ(FindParamField(field.name), &field);
    EXPECT_FALSE(field.help.empty());
    if (field.group != group) {
      EXPECT_TRUE(groups.insert(field.group).second) << "stand together";
      group = field.group;
    }
    // A value of no field's type.
    GenerationParams params;
    const absl::Status wrong =
        SetParam(field.name, json::object({{"x", nullptr}}), &params);
    EXPECT_THAT(wrong, StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr(std::string(field.name) + " must ")));
  }
}

// docs/request_format.md has a row of each.
TEST(RequestJsonTest, EveryFieldIsDocumented) {
  std::ifstream file(SourcePath("docs/request_format.md"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  for (const ParamField& field : ParamFields()) {
    EXPECT_THAT(text, HasSubstr("`" + std::string(field.name) + "`"));
    if (field.alias.empty()) continue;
    EXPECT_THAT(text, HasSubstr("`" + std::string(field.alias) + "`"));
  }
}

TEST(RequestJsonTest, AStopMayBeOneString) {
  const RequestLine line =
      ParseRequestLine(R"({"prompt_tokens": [1], "params": {"stop": "END"}})");
  ASSERT_OK(line.body);
  EXPECT_THAT(line.body->params.stop, ElementsAre("END"));
}

TEST(RequestJsonTest, MalformedRequestsAreNamed) {
  const std::vector<MalformedRequest> all = MalformedRequests();
  EXPECT_GE(all.size(), 60u);
  for (const MalformedRequest& bad : all) {
    EXPECT_THAT(Check(bad.line),
                StatusIs(absl::StatusCode::kInvalidArgument, bad.message))
        << bad.line;
  }
}

TEST(RequestJsonTest, FieldsThatAreNamedAreKnown) {
  for (const std::string_view field : kRequestFields) {
    const absl::Status status = Check(Concat("{\"", field, "\": false}"));
    EXPECT_THAT(status.message(), Not(HasSubstr("unknown field")));
  }
}

TEST(RequestJsonTest, ErrorsShowNoMoreOfAValueThanItsBeginning) {
  const std::string text = "\"" + std::string(100'000, 'x') + "\"";
  const std::string list = "[[" + text + "]]";
  for (const std::string& line :
       {text, list, "{" + text + ": 1}", R"({"id": )" + list + "}",
        R"({"prompt": )" + list + "}", R"({"prompt_tokens": )" + text + "}",
        WithParams("{" + text + ": 1}"),
        WithParams(R"({"num_beams": )" + text + "}"),
        WithParams(R"({"stop": )" + list + "}"),
        WithParams(R"({"logit_bias": {)" + text + ": 1}}")}) {
    const absl::Status status = Check(line);
    EXPECT_FALSE(status.ok()) << line.substr(0, 40);
    EXPECT_LE(status.message().size(), 150u) << status;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 HasSubstr("xxx...")));
  }
}

TEST(RequestJsonTest, ABadLineKeepsItsId) {
  const RequestLine line =
      ParseRequestLine(R"({"id": 7, "prompt": "a", "x": 1})");
  EXPECT_FALSE(line.body.ok());
  EXPECT_EQ(line.id, "7");
  EXPECT_EQ(WriteErrorLine(line.id, line.body.status()),
            R"({"id": 7, "error": {"code": "INVALID_ARGUMENT", )"
            R"("message": "unknown field \"x\""}})");
}

// As the times of a clock, of which the nearest double has other digits.
TEST(RequestJsonTest, ANumberAsAnIdIsEchoedAsItStands) {
  for (const char* id : {"1763814428.1234567", "0.10", "1E3", "-0", "1e999",
                         "18446744073709551616", "123456789012345678901234"}) {
    const RequestLine line =
        ParseRequestLine(Concat(R"({"id":  )", id, R"( , "prompt": "a"})"));
    EXPECT_EQ(line.id, id);
    ASSERT_OK(line.body);
    EXPECT_EQ(line.body->caller_id, id);
    EXPECT_THAT(WriteErrorLine(line.id, InvalidArgument("x")),
                StartsWith(Concat(R"({"id": )", id, ",")));
  }
  const RequestLine line =
      ParseRequestLine(R"({"id": "\u00e9\n", "prompt": "a"})");
  EXPECT_EQ(line.id, R"("é\n")");
  EXPECT_EQ(line.body->caller_id, "é\n");
}

TEST(RequestJsonTest, OfAFieldGivenTwiceTheLastCounts) {
  const RequestLine line = ParseRequestLine(
      R"({"id": 1, "params": {"x": 1}, "prompt": 5, "prompt": "a",)"
      R"( "params": {"top_k": "a", "top_k": 3, "n\u0075m_beams": 2,)"
      R"( "logit_bias": {"7": 1, "8": 2, "7": 3}}, "id": 2})");
  ASSERT_OK(line.body);
  EXPECT_EQ(line.id, "2");
  EXPECT_EQ(line.body->prompt, "a");
  EXPECT_EQ(line.body->params.top_k, 3);
  EXPECT_EQ(line.body->params.num_beams, 2);
  EXPECT_THAT(line.body->params.logit_bias,
              ElementsAre(Pair(8, 2.0), Pair(7, 3.0)));
}

TEST(RequestJsonTest, ListsBeyondTheLimitAreRefusedWithTheFigures) {
  const RequestLineLimits limits = {.max_list_elements = 4};
  const auto error = [&](const std::string& line) {
    const RequestLine parsed = ParseRequestLine(line, limits);
    return parsed.body.ok() ? "" : Message(parsed.body.status());
  };
  EXPECT_EQ(error(R"({"prompt_tokens": [1, 2, 3, 4]})"), "");
  EXPECT_EQ(
      error(R"({"prompt_tokens": [1, 2, 3, 4, 5]})"),
      "prompt_tokens must have at most 4 elements (max_list_elements), got 5");
  EXPECT_EQ(error(WithParams(R"({"bad_words_ids": [[7], [8]]})")), "");
  EXPECT_EQ(
      error(WithParams(R"({"bad_words_ids": [[7], [8, 9]]})")),
      "bad_words_ids must have at most 4 elements (max_list_elements), got 5");
  EXPECT_EQ(error(WithParams(R"({"stop": ["a", "b", "c", "d", "[,]"]})")),
            "stop must have at most 4 elements (max_list_elements), got 5");
  EXPECT_EQ(
      error(WithParams(R"({"logit_bias": {"1": 1, "2": 1, "3": 1,)"
                       R"( "4": 1, "5": 1}})")),
      "logit_bias must have at most 4 elements (max_list_elements), got 5");
  EXPECT_EQ(
      error(WithParams(R"({"num_beams": [1, 2, 3, 4, 5]})")),
      "num_beams must have at most 4 elements (max_list_elements), got 5");
}

TEST(RequestJsonTest, OneIdIsAListOfOne) {
  const RequestLine line = ParseRequestLine(
      WithParams(R"({"eos_token_id": 5, "stop_token_ids": 6,)"
                 R"( "suppress_tokens": 7, "allowed_token_ids": 8,)"
                 R"( "decoder_prompt_tokens": 9})"));
  ASSERT_OK(line.body);
  const GenerationParams& params = line.body->params;
  EXPECT_THAT(params.decoder_prompt_tokens, ElementsAre(9));
  EXPECT_THAT(params.eos_token_id, Optional(ElementsAre(5)));
  EXPECT_THAT(params.stop_token_ids, ElementsAre(6));
  EXPECT_THAT(params.suppress_tokens, ElementsAre(7));
  EXPECT_THAT(params.allowed_token_ids, Optional(ElementsAre(8)));
}

// Tests all fields, so that none is forgotten.
TEST(RequestJsonTest, NullIsAsIfTheFieldWereNotThere) {
  for (const std::string_view name : ParamNames()) {
    const RequestLine line =
        ParseRequestLine(WithParams(Concat("{\"", name, "\": null}")));
    ASSERT_OK(line.body) << name;
    EXPECT_TRUE(line.body->params == GenerationParams()) << name;
    EXPECT_TRUE(line.body->given.empty()) << name;
  }
  // The last of two values of a field counts.
  RequestLine line = ParseRequestLine(
      WithParams(R"({"num_beams": 4, "n": null, "num_return_sequences": 2,)"
                 R"( "num_beams": null})"));
  ASSERT_OK(line.body);
  EXPECT_EQ(line.body->params.num_beams, 1);
  EXPECT_EQ(line.body->params.num_return_sequences, 2);
  line =
      ParseRequestLine(R"({"id": null, "prompt": "a", "prompt_tokens": null,)"
                       R"( "messages": null, "params": null})");
  ASSERT_OK(line.body);
  EXPECT_EQ(line.id, "");
  EXPECT_EQ(line.body->prompt, "a");
}

// Reading a line and reading an option's value are two ways to one thing.
TEST(RequestJsonTest, ATextReadsAsItsValueDoes) {
  const char* const kValues[] = {"true",
                                 "false",
                                 "0",
                                 "-0",
                                 "7",
                                 "-3",
                                 "1.5",
                                 "1e3",
                                 "1E-400",
                                 "9223372036854775807",
                                 "9223372036854775808",
                                 "18446744073709551615",
                                 R"("")",
                                 R"("never")",
                                 R"("wu")",
                                 R"("power")",
                                 R"("\u00e9\n")",
                                 "[]",
                                 "{}",
                                 "[1]",
                                 "[1, 2 ,3]",
                                 "[1, -2]",
                                 "[1, 2.5]",
                                 "[true]",
                                 R"(["a"])",
                                 R"(["a", "b\"]"])",
                                 "[[]]",
                                 "[[1], [2, 3]]",
                                 "[[1], 2]",
                                 "[[1, [2]]]",
                                 R"([[1], ["a"]])",
                                 R"({"7": 1})",
                                 R"({"7": -1.25e-3, "8": 2})",
                                 R"({"07": 1})",
                                 R"({"7": "a"})",
                                 R"({"7": [1]})"};
  for (const ParamField& field : ParamFields()) {
    for (const char* const text : kValues) {
      SCOPED_TRACE(Concat(field.name, ": ", text));
      const std::string line =
          WithParams(Concat("{\"", field.name, "\": ", text, "}"));
      GenerationParams params;
      const absl::Status status =
          SetParam(field.name, *ParseJson(text), &params);
      const RequestLine parsed = ParseRequestLine(line);
      EXPECT_EQ(parsed.body.ok(), status.ok());
      if (!status.ok()) {
        const size_t shown = Message(status).find(", got ");
        EXPECT_EQ(Message(parsed.body.status()).substr(0, shown),
                  Message(status).substr(0, shown));
      } else if (parsed.body.ok()) {
        EXPECT_TRUE(parsed.body->params == params);
      }
    }
  }
}

// Any change of a good line gives an answer, and a broken one no request.
TEST(RequestJsonTest, MutatedLinesAreReadOrRefused) {
  std::vector<std::string> lines;
  for (const MalformedRequest& bad : MalformedRequests()) {
    lines.push_back(bad.line);
  }
  lines.push_back(WithParams(
      R"({"n": 3, "allowed_sequences": [[7, 8], [9]], "stop": ["é", "b"],)"
      R"( "logit_bias": {"9": -2e0, "7": 1.5}, "temperature": 0.5})"));
  std::mt19937 random(1);
  for (int i = 0; i < 30'000; ++i) {
    std::string line = lines[random() % lines.size()];
    for (int changes = 1 + random() % 3; changes > 0 && !line.empty();
         --changes) {
      const size_t at = random() % line.size();
      constexpr std::string_view kBytes =
          "[]{}\",:\\0123456789.-+eEun \xc3\xa9";
      switch (random() % 4) {
        case 0:
          line[at] = static_cast<char>(random());
          break;
        case 1:
          line[at] = kBytes[random() % kBytes.size()];
          break;
        case 2:
          line.insert(at, line.substr(random() % line.size(), random() % 9));
          break;
        default:
          line.erase(at, 1 + random() % 3);
      }
    }
    const absl::Status status = Check(line);
    if (!ParseJson(line).ok()) {
      EXPECT_FALSE(status.ok()) << line;
    }
    if (!status.ok()) {
      EXPECT_FALSE(status.message().empty());
      EXPECT_TRUE(IsUtf8(Message(status))) << line;
    }
  }
}

}  // namespace
}  // namespace espalier
