// Bodies that must be refused, made from the tables of fields: each is refused
// with 400, its message and `param` naming the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "openai/call.h"
#include "openai/call_fields.h"
#include "openai/error.h"
#include "openai/score_call.h"
#include "openai/tokenize.h"
#include "tests/status_matchers.h"

namespace espalier::openai {
namespace {

using ::testing::StartsWith;

// A body with `field`, otherwise good; the field may take the place of what
// makes it good.
std::string BodyOf(Scope scope, std::string_view field,
                   const std::string& value) {
  const std::string member = Concat('"', field, "\": ", value);
  const std::string begin =
      scope == kInCompletions ? R"("prompt": "a", )"
      : scope == kInChat ? R"("messages": [{"role": "user", "content": "a"}], )"
      : scope == kInResponses  ? R"("input": "a", )"
      : scope == kInTokenize   ? R"("prompt": "a", )"
      : scope == kInDetokenize ? R"("tokens": [1], )"
      : scope == kInScoring    ? R"("query": "a", "items": ["b"], )"
                               : R"("token_ids": [1], )";
  if (scope == kInSampling) {
    return Concat("{", begin, R"("sampling_params": {)", member, "}}");
  }
  return Concat("{", begin, member, "}");
}

absl::Status Read(Scope scope, const std::string& body) {
  switch (scope) {
    case kInCompletions:
      return ReadCall(Api::kCompletions, body).status();
    case kInChat:
      return ReadCall(Api::kChat, body).status();
    case kInResponses:
      return ReadCall(Api::kResponses, body).status();
    case kInTokens:
    case kInSampling:
      return ReadCall(Api::kTokens, body).status();
    case kInTokenize:
      return ReadTokenizeCall(body).status();
    case kInDetokenize:
      return ReadDetokenizeCall(body).status();
    case kInScoring:
      return ReadScoreCall(body).status();
  }
  return absl::OkStatus();
}

struct Value {
  std::string_view kind;
  std::string json;
};

std::string Nested(int depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

// Values that no field accepts, except fields that accept any value of their
// type.
std::vector<Value> Values() {
  return {{"bool", "true"},
          {"bool", "false"},
          {"string", R"("")"},
          {"string", R"("x")"},
          {"string", R"("\u0000")"},
          {"string", '"' + std::string(5000, 'x') + '"'},
          {"integer", "-9223372036854775808"},
          {"integer", "-7"},
          {"integer", "99999999999999999999"},
          {"integer", "123456789012"},
          {"number", "0.5"},
          {"number", "-1.5"},
          {"number", "1e999"},
          {"number", "1e308"},
          {"list", "[]"},
          {"list", "[null]"},
          {"list", "[[]]"},
          {"list", R"([{"a": 1}])"},
          {"list", "[1.5]"},
          {"list", "[true]"},
          {"list", R"(["x", 1])"},
          {"list", Nested(20)},
          {"object", "{}"},
          {"object", R"({"a": 1})"},
          {"object", R"({"1": "x"})"},
          {"object", R"({"type": "json_object"})"}};
}

constexpr Scope kAll[] = {kInResponses,  kInCompletions, kInChat,
                          kInTokens,     kInSampling,    kInTokenize,
                          kInDetokenize, kInScoring};

// Every field of every scope with every value. What is refused is refused well;
// which ones are is pinned by their number, and by the test below.
TEST(RefusalsTest, NameTheFieldOrTheByte) {
  int num_refused = 0;
  for (const Scope scope : kAll) {
    for (const std::string_view field : CallFieldNames(scope)) {
      for (const Value& value : Values()) {
        const std::string body = BodyOf(scope, field, value.json);
        const absl::Status status = Read(scope, body);
        if (status.ok()) continue;
        ++num_refused;
        const Error error = ErrorOf(status);
        EXPECT_EQ(error.http_status, 400) << body;
        EXPECT_LT(error.message.size(), 400) << body;
        if (error.message.starts_with("not JSON")) continue;
        EXPECT_THAT(error.param, StartsWith(field)) << body << status;
        EXPECT_THAT(error.message, StartsWith(field)) << body;
      }
    }
  }
  EXPECT_GE(num_refused, 4000);
}

// Fields that take any value of a kind.
TEST(RefusalsTest, NoFieldTakesValuesOfThreeOtherKinds) {
  for (const Scope scope : kAll) {
    for (const std::string_view field : CallFieldNames(scope)) {
      if (field == "rid" || field == "output_kind" ||
          field == "token_offsets") {
        continue;  // say nothing, whatever they are
      }
      std::vector<std::string_view> taken;
      for (const Value& value : Values()) {
        const std::string body = BodyOf(scope, field, value.json);
        if (!Read(scope, body).ok()) continue;
        const std::string_view kind =
            value.kind == "integer" ? "number" : value.kind;
        if (std::ranges::find(taken, kind) == taken.end()) {
          taken.push_back(kind);
        }
      }
      EXPECT_LE(taken.size(), 2) << field;
    }
  }
}

TEST(RefusalsTest, BodiesAreJsonObjects) {
  for (const Scope scope : {kInCompletions, kInChat, kInResponses, kInTokens,
                            kInTokenize, kInDetokenize, kInScoring}) {
    for (const char* body :
         {"", "{", "[]", "7", "null", "\"a\"", "{}", "{\"prompt\": \"\xff\"}",
          R"({"prompt": "a"} x)", R"({"prompt": "a",})", "{'prompt': 'a'}",
          R"({"prompt": NaN})", R"({"prompt": "\ud800"})"}) {
      const absl::Status status = Read(scope, body);
      EXPECT_EQ(ErrorOf(status).http_status, 400) << body;
    }
    EXPECT_EQ(ErrorOf(Read(scope, Nested(100'000))).http_status, 400);
  }
}

// Bytes of good bodies changed, cut out and doubled.
TEST(RefusalsTest, MutatedBodiesAreReadOrRefused) {
  const std::pair<Scope, std::string> bodies[] = {
      {kInCompletions,
       R"({"model": "m", "prompt": ["a", "b"], "n": 2, "stop": ["x"],
           "logit_bias": {"5": -1.5}, "stream": true, "echo": false,
           "stream_options": {"include_usage": true}, "seed": 7})"},
      {kInChat,
       R"({"messages": [{"role": "user", "content":
               [{"type": "text", "text": "\u00e9"}]}], "top_logprobs": 2,
           "logprobs": true, "response_format": {"type": "text"}})"},
      {kInTokens,
       R"({"token_ids": [1, 2, 3], "sampling_params": {"n": 1,
           "allowed_sequences": [[7, 8], [9]], "bad_words": ["a"]}})"}};
  std::mt19937 random(20260);
  int num_good = 0;
  for (int i = 0; i < 30'000; ++i) {
    auto [scope, body] = bodies[i % std::size(bodies)];
    for (int k = random() % 3; k >= 0; --k) {
      const size_t at = random() % body.size();
      switch (random() % 4) {
        case 0:
          body[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          body.erase(at, 1 + random() % 9);
          break;
        case 2:
          body.insert(at, body.substr(random() % body.size(), 9));
          break;
        default:
          body[at] = R"(0-.e"{}[]:,\nt)"[random() % 14];
      }
      if (body.empty()) body = " ";
    }
    const absl::Status status = Read(scope, body);
    num_good += status.ok();
    if (!status.ok()) {
      ASSERT_EQ(ErrorOf(status).http_status, 400) << body;
    }
  }
  EXPECT_GT(num_good, 1000);
}

TEST(RefusalsTest, WhatChangesTheAnswerAndIsNotThereIsRefused) {
  for (const char* field :
       {R"("suffix": "x")", R"("tools": [{"type": "function"}])",
        R"("no_stop_trim": true)", R"("structural_tag": "a")",
        R"("grammar_lazy": true)", R"("grammar_triggers": [{"type": 0}])",
        R"("logits_processors": ["x"])", R"("tool_choice": "required")"}) {
    const absl::Status status =
        Read(kInCompletions, Concat(R"({"prompt": "a", )", field, "}"));
    EXPECT_THAT(status, testing::StatusIs(kInvalid, ::testing::HasSubstr(
                                                        " is not supported: it "
                                                        "must be null")))
        << field;
  }
  EXPECT_OK(Read(kInCompletions,
                 R"({"prompt": "a", "response_format": {"type": "text"},
                     "tool_choice": "auto", "tools": [], "suffix": ""})"));
}

// Nothing is made of an object that is larger than any that is taken.
TEST(RefusalsTest, WhatIsNotSupportedIsSoAtAnySize) {
  std::string large = R"({"type": "text")";
  for (int i = 0; i < 1024; ++i) large += Concat(R"(, ")", i, R"(": 0)");
  EXPECT_THAT(Message(Read(kInCompletions,
                           Concat(R"({"prompt": "a", "structural_tag": )",
                                  large, "}}"))),
              StartsWith("structural_tag is not supported"));
}

// As of a line of a batch.
TEST(RefusalsTest, AnEmptyTemplateIsNone) {
  for (const Scope scope : {kInCompletions, kInTokenize}) {
    EXPECT_THAT(
        Read(scope, R"({"prompt": "a", "template": ""})"),
        testing::StatusIs(kInvalid, "template must not be empty, got \"\""));
    EXPECT_OK(Read(scope, R"({"prompt": "a", "template": null})"));
  }
}

TEST(RefusalsTest, MessagesAreChecked) {
  const auto message = [](const std::string& messages) {
    return Message(
        ReadCall(Api::kChat, R"({"messages": )" + messages + "}").status());
  };
  EXPECT_EQ(message("[]"), "messages must not be empty, got []");
  EXPECT_EQ(message("{}"), "messages must be a list, got {}");
  EXPECT_EQ(message("[7]"), "messages[0] must be an object, got 7");
  EXPECT_EQ(message(R"([{"role": ""}])"),
            "messages[0].role must be a string, and not empty, got \"\"");
  EXPECT_EQ(message(R"([{"content": "x"}])"),
            "messages[0].role must be a string, and not empty, got nothing");
  EXPECT_EQ(message(R"([{"role": "user", "content": 7}])"),
            "messages[0].content must be a string or a list of {\"type\": "
            "\"text\", \"text\": T}, got 7");
  for (const char* const role : {"user", "system", "developer"}) {
    const std::string wanted = Concat(
        "messages[0].content must be there with role \"", role, "\", got ");
    EXPECT_EQ(message(Concat(R"([{"role": ")", role, R"("}])")),
              wanted + "nothing");
    EXPECT_EQ(
        message(Concat(R"([{"role": ")", role, R"(", "content": null}])")),
        wanted + "null");
  }
  // An empty one is one.
  EXPECT_EQ(message(R"([{"role": "user", "content": ""}])"), "");
  EXPECT_EQ(message(R"([{"role": "assistant", "content": null,
                         "tool_calls": []}, {"role": "tool"}])"),
            "");
  EXPECT_EQ(
      message(R"([{"role": "user", "content": [{"type": "image_url"}]}])"),
      "messages[0].content[0].type must be \"text\", got \"image_url\"");
  EXPECT_EQ(message(R"([{"role": "user", "content": [{"type": "text"}]}])"),
            "messages[0].content[0].text must be a string, got nothing");
  EXPECT_EQ(Message(ReadCall(Api::kChat, "{}").status()),
            "messages must be there, got nothing");
}

// Which are those of calls: the request format has other ones.
TEST(RefusalsTest, RangesAreThoseOfCalls) {
  const auto message = [](const std::string& field) {
    return Message(
        ReadCall(Api::kCompletions, R"({"prompt": "a", )" + field + "}")
            .status());
  };
  EXPECT_EQ(message(R"("top_k": -2)"),
            "top_k must be at least 1, or 0 or -1, which are off, got -2");
  EXPECT_EQ(message(R"("top_k": -1)"), "");
  for (const char* const seed :
       {"18446744073709551616", "-9223372036854775809", "1.5", "\"a\""}) {
    EXPECT_EQ(message(Concat(R"("seed": )", seed)),
              Concat("seed must be an integer in [-2^63, 2^64), got ", seed));
  }
  EXPECT_EQ(message(R"("seed": 18446744073709551615)"), "");
  EXPECT_EQ(message(R"("seed": -9223372036854775808)"), "");
  EXPECT_EQ(message(R"("max_tokens": 0)"),
            "max_tokens must be at least 1 without echo, got 0");
  EXPECT_EQ(message(R"("max_completion_tokens": -1)"),
            "max_completion_tokens must be in [1, 1073741824] "
            "(--max-tokens-limit), got -1");
}

TEST(RefusalsTest, PromptsAreChecked) {
  const auto message = [](const std::string& prompt) {
    return Message(
        ReadCall(Api::kCompletions, R"({"prompt": )" + prompt + "}").status());
  };
  EXPECT_EQ(message(R"("")"), "prompt must not be empty, got \"\"");
  EXPECT_EQ(message("[]"), "prompt must not be empty, got []");
  EXPECT_EQ(message("[[]]"), "prompt[0] must not be empty, got []");
  EXPECT_EQ(message(R"(["a", ""])"), "prompt[1] must not be empty, got \"\"");
  EXPECT_EQ(message("[1, -1]"), "prompt[1] must be a token id, got -1");
  EXPECT_EQ(message("[[1], [2, 2147483648]]"),
            "prompt[1][1] must be a token id, got 2147483648");
  EXPECT_EQ(message("[1, \"a\"]"), "prompt[1] must be an integer, got \"a\"");
  EXPECT_EQ(message("[1.5]"), "prompt[0] must be an integer, got 1.5");
  EXPECT_EQ(message("7"),
            "prompt must be a string, token ids, or a list of these, got 7");
  EXPECT_EQ(message("null"), "prompt must be there, got nothing");
}

TEST(RefusalsTest, StreamsOptionsNeedAStream) {
  const auto message = [](const std::string& fields) {
    return Message(Read(kInCompletions, R"({"prompt": "a", )" + fields + "}"));
  };
  EXPECT_EQ(message(R"("stream_options": {"include_usage": true})"),
            "stream_options needs stream true, and it is false");
  EXPECT_EQ(message(R"("stream": true, "stream_options": {"usage": 1})"),
            "stream_options.usage is not known, got 1");
  EXPECT_EQ(
      message(R"("stream": true, "stream_options": {"include_usage": 1})"),
      "stream_options.include_usage must be true or false, got 1");
  EXPECT_EQ(message(R"("stream_beams": true)"),
            "stream_beams needs stream true, and it is false");
}

}  // namespace
}  // namespace espalier::openai
