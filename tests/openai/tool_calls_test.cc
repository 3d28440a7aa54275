// Chats with tools: what their bodies say, and calls in their answers, whole
// and streamed.
#include "openai/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "openai/chunk_writer.h"
#include "openai/constrain_tool_calls.h"
#include "openai/error.h"
#include "openai/tokenize.h"
#include "tests/few_cases.h"
#include "tests/openai/sample_answers.h"
#include "tests/openai/stream_events.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::CallOf;
using ::espalier::testing::Cases;
using ::espalier::testing::ChoicesOf;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::EnFrTokens;
using ::espalier::testing::EventsOf;
using ::espalier::testing::kSampleHead;
using ::espalier::testing::MakeAnswer;
using ::espalier::testing::MakeHypothesis;
using ::espalier::testing::StatusIs;
using ::espalier::testing::StreamedChoice;
using ::espalier::testing::WholeChoice;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

constexpr std::string_view kTools =
    R"("tools": [{"type": "function", "function": {"name": "f"}},
                 {"type": "function", "function": {"name": "g"}}])";

Call ChatWithTools(const std::string& fields,
                   ToolCallFormat format = ToolCallFormat::kHermes) {
  Call call = CallOf(Api::kChat, std::string(kTools) + fields);
  call.tool_calls.format = format;
  return call;
}

TEST(ToolCallsTest, ToolsGoToTheTemplateUnlessNoneAreWanted) {
  for (const std::string_view choice : {"", R"(, "tool_choice": "auto")"}) {
    const Call call = ChatWithTools(std::string(choice));
    ASSERT_TRUE(call.chat->tools.is_array());
    EXPECT_EQ(call.chat->tools.at(1).at("function").at("name"), "g");
    EXPECT_THAT(call.tool_calls.tool_names, ElementsAre("f", "g"));
    EXPECT_TRUE(ReadsToolCalls(call));
  }
  const Call none = ChatWithTools(R"(, "tool_choice": "none")");
  EXPECT_TRUE(none.chat->tools.is_null());
  EXPECT_FALSE(ReadsToolCalls(none));
  EXPECT_FALSE(ReadsToolCalls(CallOf(Api::kChat, R"("tools": [])")));
  ASSERT_OK_AND_ASSIGN(
      const TokenizeCall tokenize,
      ReadTokenizeCall(R"({"messages": [{"role": "user", "content": "a"}], )" +
                       std::string(kTools) + "}"));
  EXPECT_TRUE(tokenize.call.chat->tools.is_array());
}

TEST(ToolCallsTest, RefusalsNameTheMember) {
  const std::pair<std::string_view, std::string_view> kBad[] = {
      {R"("tools": {})", "tools must be a list"},
      {R"("tools": [1])", "tools[0] must be an object"},
      {R"("tools": [{"type": "web"}])", "tools[0].type must be \"function\""},
      {R"("tools": [{"function": {"name": ""}}])",
       "tools[0].function.name must be a string"},
      {R"("tools": [{"name": "f"}])", "tools[0].function must be an object"},
      {R"("tools": [{"function": {"name": "f", "strict": 1}}])",
       "tools[0].function.strict must be true or false, got 1"},
      {R"("tools": [{"function": {"name": "f", "description": 5}}])",
       "tools[0].function.description must be a string, got 5"},
      {R"("tools": [{"function": {"name": "f", "parameters": 5}}])",
       "tools[0].function.parameters must be an object, got 5"},
      {R"("tools": [{"function": {"name": "f", "parameters": []}}],
          "tool_choice": "none")",
       "tools[0].function.parameters must be an object, got []"},
      {R"("tool_choice": "required")",
       "tool_choice must be \"auto\" or \"none\" without tools"},
      {R"("tool_choice": {"type": "function", "function": {"name": "f"}})",
       "tool_choice must be \"auto\" or \"none\" without tools"},
      {R"("tool_choice": "any", "tools": [{"function": {"name": "f"}}])",
       "tool_choice must be \"auto\", \"none\", \"required\", or an object"},
      {R"("tool_choice": {"type": "function", "function": {"name": "g"}},
          "tools": [{"function": {"name": "f"}}])",
       "tool_choice must name functions of the tools, \"f\", got \"g\""},
      {R"("tool_choice": {"type": "function"})",
       "tool_choice.function must be an object"},
      {R"("tool_choice": {"type": "web"})",
       "tool_choice.type must be \"function\" or"},
      {R"("tool_choice": {"type": "allowed_tools"})",
       "tool_choice.allowed_tools must be an object"},
      {R"("tool_choice": {"type": "allowed_tools",
                          "allowed_tools": {"mode": "none"}})",
       "tool_choice.allowed_tools.mode must be"},
      {R"("tool_choice": {"type": "allowed_tools",
                          "allowed_tools": {"mode": "auto", "tools": []}})",
       "tool_choice.allowed_tools.tools must be a list that is not empty"},
      {R"("tool_choice": {"type": "allowed_tools", "allowed_tools":
                          {"mode": "auto", "tools": [{"function": {}}]}})",
       "tool_choice.allowed_tools.tools[0].function.name must be"},
      {R"("functions": [{"name": "f"}])", "functions is not supported"},
  };
  for (const auto& [field, message] : kBad) {
    const auto call = ReadCall(
        Api::kChat, R"({"messages": [{"role": "user", "content": "a"}], )" +
                        std::string(field) + "}");
    EXPECT_THAT(
        call, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  }
}

// The rules of the constraint that a call sets; empty: none.
std::string RulesOf(Call* call) {
  EXPECT_OK(ConstrainToolCalls(call));
  const auto& constraint = call->params.constraint;
  return constraint && constraint->tool_calls ? *constraint->tool_calls : "";
}

constexpr std::string_view kStrictTools =
    R"("tools": [{"type": "function", "function": {"name": "a\"{é",
                  "parameters": {"type": "object", "minProperties": 1}}},
                 {"type": "function", "function": {"name": "g", "strict": true,
                  "parameters": {"type": "object", "maxProperties": 2}}}])";

Call StrictCall(std::string_view fields) {
  Call call = CallOf(Api::kChat, Concat(kStrictTools, fields));
  call.tool_calls.format = ToolCallFormat::kLlama3Json;
  return call;
}

TEST(ConstrainToolCallsTest, TheChoiceDecidesTheLanguage) {
  constexpr std::string_view kSecond =
      R"({"name":"g","parameters":{"type": "object", "maxProperties": 2}})";
  const std::pair<std::string, std::string> kCases[] = {
      {R"(, "tool_choice": "required")",
       Concat(R"({"format":"llama3_json","text":false,"parallel":true,)",
              R"("functions":[{"name":"a\"{é","parameters":)",
              R"({"type": "object", "minProperties": 1}},)", kSecond, "]}")},
      {R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})",
       Concat(R"({"format":"llama3_json","text":false,"parallel":false,)",
              R"("functions":[)", kSecond, "]}")},
      {"", Concat(R"({"format":"llama3_json","text":true,"parallel":true,)",
                  R"("functions":[{"name":"a\"{é"},)", kSecond, "]}")},
      {R"(, "parallel_tool_calls": false, "tool_choice": {
             "type": "allowed_tools", "allowed_tools": {"mode": "auto",
             "tools": [{"type": "function", "function": {"name": "g"}}]}})",
       Concat(R"({"format":"llama3_json","text":true,"parallel":false,)",
              R"("functions":[)", kSecond, "]}")},
      {R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools":
             {"mode": "required", "tools": [{"function": {"name": "g"}}]}})",
       Concat(R"({"format":"llama3_json","text":false,"parallel":true,)",
              R"("functions":[)", kSecond, "]}")},
      {R"(, "tool_choice": "none")", ""},
  };
  for (const auto& [fields, rules] : kCases) {
    Call call = StrictCall(fields);
    EXPECT_EQ(RulesOf(&call), rules) << fields;
  }
  Call call = ChatWithTools("");
  EXPECT_EQ(RulesOf(&call), "") << "no function is strict";
}

TEST(ConstrainToolCallsTest, OtherConstraintsGiveWayOrAreRefused) {
  constexpr std::string_view kFormat =
      R"(, "response_format": {"type": "json_object"})";
  Call call = StrictCall(kFormat);
  EXPECT_EQ(RulesOf(&call), "");
  EXPECT_TRUE(call.params.constraint->json_schema.has_value());
  call = StrictCall(Concat(kFormat, R"(, "tool_choice": "required")"));
  EXPECT_NE(RulesOf(&call), "");
  EXPECT_FALSE(call.params.constraint->json_schema.has_value());
  EXPECT_EQ(call.NameOf("constraint"), "tool_choice");
  call = StrictCall(kFormat);
  call.tool_calls.format = ToolCallFormat::kHermes;
  EXPECT_THAT(RulesOf(&call),
              HasSubstr(R"("text":{"json_schema":{"type":"object"}},)"));
  EXPECT_EQ(
      ErrorOf(InvalidField(FieldName{"constraint.tool_calls.text.json_schema"},
                           ": #: not so"),
              &call)
          .message,
      "response_format: #: not so");
  for (const std::string_view field :
       {R"(, "allowed_sequences": [[7]])", R"(, "allowed_token_ids": [7])",
        R"(, "forced_bos_token_id": 7)", R"(, "forced_eos_token_id": [7])"}) {
    call = StrictCall(field);
    EXPECT_EQ(RulesOf(&call), "");
  }
  call = StrictCall(R"(, "response_format": {"type": "text"})");
  EXPECT_NE(RulesOf(&call), "");
  call = StrictCall(R"(, "regex": "a", "tool_choice": "required")");
  EXPECT_THAT(ConstrainToolCalls(&call),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tool_choice and regex both say")));
}

TEST(ConstrainToolCallsTest, AModelWithoutAFormatHasNoCallsThatMustCome) {
  Call call = StrictCall(R"(, "tool_choice": "required")");
  call.tool_calls.format = ToolCallFormat::kNone;
  EXPECT_THAT(
      ConstrainToolCalls(&call),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("must be \"auto\" or \"none\" with this model")));
  call = StrictCall("");
  call.tool_calls.format = ToolCallFormat::kNone;
  EXPECT_EQ(RulesOf(&call), "");
  EXPECT_THAT(call.warnings,
              ElementsAre(HasSubstr("calls of tools are not enforced")));
}

TEST(ConstrainToolCallsTest, ErrorsNameTheTool) {
  Call call = StrictCall(
      R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  ASSERT_NE(RulesOf(&call), "");
  const Error error = ErrorOf(
      InvalidField(FieldName{"constraint.tool_calls.functions[0].parameters"},
                   ": #/properties/a/pattern: at byte 0: look-ahead"),
      &call);
  EXPECT_EQ(error.param, "tools[1].function.parameters");
  EXPECT_EQ(error.message,
            "tools[1].function.parameters: #/properties/a/pattern: at byte 0: "
            "look-ahead");
  EXPECT_EQ(ErrorOf(InvalidField(FieldName{"constraint.tool_calls"},
                                 ": it needs more"),
                    &call)
                .param,
            "tools");
  call = CallOf(Api::kChat, R"("tool_choice": "required", "tools":
      [{"function": {"name": "f"}}, {"function": {"name": "f"}}])");
  call.tool_calls.format = ToolCallFormat::kHermes;
  EXPECT_THAT(ConstrainToolCalls(&call),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tools[1].function.name must not be that of "
                                 "tools[0] where calls are enforced")));
}

// The API's messages have arguments as text; templates take an object.
TEST(ToolCallsTest, ArgumentsOfMessagesAreParsed) {
  const auto arguments_of = [](const std::string& json) {
    const auto call = ReadCall(
        Api::kChat,
        R"({"messages": [{"role": "assistant", "content": null, "tool_calls":
            [{"id": "a", "function": {"name": "f", "arguments": )" +
            json + R"(}}]}, {"role": "tool", "tool_call_id": "a",
              "content": [{"type": "input_text", "text": "4"}]}]})");
    EXPECT_OK(call);
    EXPECT_EQ(call->chat->messages.at(1).at("content"), "4");
    return call->chat->messages.at(0)
        .at("tool_calls")
        .at(0)
        .at("function")
        .at("arguments");
  };
  const json::value parsed = {{"x", {1, "é"}}};
  EXPECT_EQ(arguments_of(R"("{\"x\": [1, \"é\"]}")"), parsed);
  EXPECT_EQ(arguments_of(R"({"x": [1, "é"]})"), parsed);
  EXPECT_EQ(arguments_of(R"("")"), json::object());
  EXPECT_EQ(arguments_of(R"("{\"x\": ")"), R"({"x": )");
  EXPECT_EQ(arguments_of(R"("[1]")"), "[1]");
  const Call none = *ReadCall(
      Api::kChat, R"({"messages": [{"role": "assistant", "tool_calls": []}]})");
  EXPECT_FALSE(none.chat->messages[0].get_object().contains("tool_calls"));
  std::string many = "{\\\"x\\\": [0";
  for (int i = 0; i < 1 << 16; ++i) many += ",0";
  EXPECT_THAT(
      ReadCall(Api::kChat,
               R"({"messages": [{"role": "assistant", "tool_calls":
                   [{"function": {"arguments": ")" +
                   many + "]}\"}}]}]}"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("messages[0].tool_calls[0].function.arguments must "
                         "have at most 65536 values")));
}

PromptParts SamplePrompt(const Call& call) {
  return {.tokens = EnFrTokens("Hello"), .params = call.params};
}

StreamedChoice Whole(const Call& call, const std::string& text,
                     FinishReason reason) {
  const PromptParts prompt = SamplePrompt(call);
  const PromptAnswer answer = MakeAnswer(
      prompt,
      {MakeHypothesis(EnFrTokens(text), reason, call.params, EnFrTokenizer())});
  const json::value json = *ParseJson(
      WriteAnswer(call, kSampleHead, {{prompt}}, {{answer}}, &EnFrTokenizer()));
  return WholeChoice(json.at("choices").at(0).get_object());
}

StreamedChoice Streamed(const Call& call, const std::string& text,
                        FinishReason reason, std::mt19937& random) {
  const PromptParts prompt = SamplePrompt(call);
  const std::vector<TokenId> tokens = EnFrTokens(text);
  const auto stops = *StopStrings::Create(call.params.stop);
  TextStream texts(EnFrTokenizer(), stops);
  ChunkWriter writer(call, kSampleHead, {prompt}, &EnFrTokenizer());
  std::string stream = writer.Begin();
  for (size_t i = 0; i < tokens.size();) {
    SampleEvent event = {.sample = 0};
    const size_t end = std::min<size_t>(tokens.size(), i + 1 + random() % 5);
    for (; i < end; ++i) {
      event.tokens.push_back(tokens[i]);
      event.text += texts.Feed(tokens[i]).text;
    }
    if (i == tokens.size()) event.text += texts.Finish().text;
    stream += writer.Add(0, event);
  }
  stream += writer.Finish(
      0, MakeAnswer(prompt, {MakeHypothesis(tokens, reason, call.params,
                                            EnFrTokenizer())}));
  stream += writer.End();
  return ChoicesOf(EventsOf(stream)).at(0);
}

constexpr std::string_view kTwoCalls =
    "Let me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": "
    "\"é\"}}\n</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": {}}"
    "</tool_call>";

TEST(ToolCallsTest, AnswersHaveCallsAndTheirReason) {
  const Call call = ChatWithTools("");
  const StreamedChoice found =
      Whole(call, std::string(kTwoCalls), FinishReason::kEos);
  EXPECT_EQ(found.text, "Let me look.");
  EXPECT_EQ(found.fields.at("finish_reason"), "tool_calls");
  ASSERT_EQ(found.tool_calls.size(), 2u);
  const json::object& first = found.tool_calls[0].get_object();
  EXPECT_THAT(std::string(first.at("id").get_string()),
              MatchesRegex("[0-9A-Za-z]{9}"));
  EXPECT_NE(first.at("id"), found.tool_calls[1].at("id"));
  // In any process: the hash key of the ids is fixed.
  EXPECT_EQ(first.at("id"), "dtNGEWchh");
  EXPECT_EQ(first.at("function"),
            (json::value{{"name", "f"}, {"arguments", "{\"x\": \"é\"}"}}));
  EXPECT_EQ(Whole(call, std::string(kTwoCalls), FinishReason::kLength)
                .fields.at("finish_reason"),
            "length");
  EXPECT_EQ(
      Whole(call, "No call.", FinishReason::kEos).fields.at("finish_reason"),
      "stop");
}

TEST(ToolCallsTest, ContentWithNothingInItIsNull) {
  const Call call = ChatWithTools("");
  const PromptParts prompt = SamplePrompt(call);
  const auto message_of = [&](const std::string& text) {
    const PromptAnswer answer =
        MakeAnswer(prompt, {MakeHypothesis(EnFrTokens(text), FinishReason::kEos,
                                           call.params, EnFrTokenizer())});
    return ParseJson(WriteAnswer(call, kSampleHead, {{prompt}}, {{answer}},
                                 &EnFrTokenizer()))
        ->at("choices")
        .at(0)
        .at("message")
        .get_object();
  };
  const json::object called =
      message_of(R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)");
  EXPECT_TRUE(called.at("content").is_null());
  EXPECT_EQ(called.at("tool_calls").get_array().size(), 1u);
  const json::object plain = message_of("It rains.");
  EXPECT_EQ(plain.at("content"), "It rains.");
  EXPECT_FALSE(plain.contains("tool_calls"));
}

TEST(ToolCallsTest, WithoutParallelCallsThereIsOne) {
  const Call call = ChatWithTools(R"(, "parallel_tool_calls": false)");
  const auto found = Whole(call, std::string(kTwoCalls), FinishReason::kEos);
  ASSERT_EQ(found.tool_calls.size(), 1u);
  EXPECT_EQ(found.tool_calls[0].at("function").at("name"), "f");
}

TEST(ToolCallsTest, CallsAreTextWithoutTools) {
  Call call = CallOf(Api::kChat, "");
  call.tool_calls.format = ToolCallFormat::kHermes;
  const auto found = Whole(call, std::string(kTwoCalls), FinishReason::kEos);
  EXPECT_EQ(found.text, kTwoCalls);
  EXPECT_THAT(found.tool_calls, IsEmpty());
}

// A stream's deltas add up to the whole answer, log-probabilities included.
TEST(ToolCallsTest, StreamsAddUpToTheWhole) {
  constexpr std::string_view kParts[] = {
      kTwoCalls,
      "<tool_call>",
      "</tool_call>",
      R"({"name": "f", "arguments": {)",
      R"({"name": "g", "parameters": {"x": [1, "}"]}})",
      R"([TOOL_CALLS] [{"name": "f", "arguments": {}}])",
      "}}",
      " ",
      "It rains. é",
      "\n"};
  constexpr std::string_view kFields[] = {
      "", R"(, "stop": ["rains"])", R"(, "logprobs": true)",
      R"(, "parallel_tool_calls": false, "return_token_ids": true)"};
  constexpr ToolCallFormat kFormats[] = {ToolCallFormat::kHermes,
                                         ToolCallFormat::kLlama3Json,
                                         ToolCallFormat::kMistral};
  std::mt19937 random(5);
  int num_calls = 0;
  for (int i = 0; i < Cases(600, 60); ++i) {
    const Call call =
        ChatWithTools(std::string(kFields[random() % std::size(kFields)]),
                      kFormats[i % std::size(kFormats)]);
    std::string text;
    for (int n = 1 + random() % 5; n > 0; --n) {
      text += kParts[random() % std::size(kParts)];
    }
    const FinishReason reason =
        random() % 3 == 0 ? FinishReason::kLength : FinishReason::kEos;
    const StreamedChoice whole = Whole(call, text, reason);
    const StreamedChoice streamed = Streamed(call, text, reason, random);
    EXPECT_EQ(streamed.text, whole.text) << text;
    EXPECT_EQ(streamed.tool_calls, whole.tool_calls) << text;
    EXPECT_EQ(streamed.token_ids, whole.token_ids) << text;
    EXPECT_EQ(streamed.log_probs, whole.log_probs) << text;
    EXPECT_EQ(streamed.fields, whole.fields) << text;
    num_calls += static_cast<int>(whole.tool_calls.size());
  }
  EXPECT_GT(num_calls, Cases(100, 10));
}

}  // namespace
}  // namespace espalier::openai
