// Responses: the call of a body of /v1/responses, and its answer, whole and as
// events.
#include "openai/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/openai/sample_answers.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::CallOf;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::EnFrTokens;
using ::espalier::testing::MakeAnswer;
using ::espalier::testing::MakeHypothesis;
using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

const AnswerHead kResponseHead = {"resp_7", 1700000000, "en-fr"};
constexpr char kResponseText[] = "Où se trouve la gare ?";

PromptParts ResponsePromptOf(const Call& call) {
  return {.tokens = EnFrTokens("Hello"), .params = call.params};
}

PromptAnswer ResponseAnswerOf(const PromptParts& prompt, FinishReason reason) {
  return MakeAnswer(prompt, {MakeHypothesis(EnFrTokens(kResponseText), reason,
                                            prompt.params, EnFrTokenizer())});
}

json::value MessagesOf(std::string_view body) {
  const absl::StatusOr<Call> call = ReadCall(Api::kResponses, body);
  EXPECT_OK(call) << body;
  return call.ok() ? call->chat->messages : json::value();
}

// Returns the data of each event, whose type the line "event:" repeats.
std::vector<json::object> TypedEventsOf(std::string_view stream) {
  std::vector<json::object> events;
  while (!stream.empty()) {
    const size_t data = stream.find("\ndata: ");
    const size_t end = stream.find("\n\n");
    if (data > end || end == stream.npos) {
      ADD_FAILURE() << "no event: " << stream;
      return events;
    }
    const std::string_view json = stream.substr(data + 7, end - data - 7);
    EXPECT_EQ(json.find_first_of("\r\n"), json.npos) << json;
    const auto event = ParseJson(json);
    EXPECT_OK(event);
    events.push_back(event->as_object());
    EXPECT_EQ(
        stream.substr(0, data),
        Concat("event: ", std::string(events.back().at("type").as_string())));
    stream.remove_prefix(end + 2);
  }
  return events;
}

TEST(ResponseTest, InputBecomesTheMessagesOfAChat) {
  EXPECT_EQ(MessagesOf(R"({"input": "a"})"),
            ParseJson(R"([{"role": "user", "content": "a"}])").value());
  EXPECT_EQ(MessagesOf(R"({"instructions": "Be brief.", "input": [
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "input_text", "text": "a"},
                                     {"type": "input_text", "text": "b"}]},
        {"type": "message", "id": "msg_1", "status": "completed",
         "role": "assistant", "content": [
           {"type": "output_text", "text": "c", "annotations": []}]}]})"),
            ParseJson(R"([{"role": "system", "content": "Be brief."},
                    {"role": "developer", "content": "d"},
                    {"role": "user", "content": "a\nb"},
                    {"role": "assistant", "content": "c"}])")
                .value());
}

// Calls belong to the message of the assistant in front of them.
TEST(ResponseTest, CallsInTheInputAreThoseOfMessages) {
  const std::string items = R"(
      {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f",
       "arguments": "{\"x\": 1}", "status": "completed"},
      {"type": "function_call", "call_id": "b", "name": "g", "arguments": ""},
      {"type": "function_call_output", "call_id": "a", "output": "1"},
      {"type": "function_call_output", "call_id": "b",
       "output": [{"type": "input_text", "text": "2"}]})";
  const json::array rest =
      ParseJson(R"([{"role": "tool", "tool_call_id": "a", "content": "1"},
                    {"role": "tool", "tool_call_id": "b", "content": "2"}])")
          ->as_array();
  const json::value calls = *ParseJson(R"([{"id": "a", "type": "function",
                      "function": {"name": "f", "arguments": {"x": 1}}},
                     {"id": "b", "type": "function",
                      "function": {"name": "g", "arguments": {}}}])");
  for (const char* const first : {R"({"role": "assistant", "content": "c"})",
                                  R"({"role": "user", "content": "c"})"}) {
    json::array expected = {*ParseJson(first)};
    if (expected[0].at("role") == "user") {
      expected.push_back({{"role", "assistant"}, {"content", ""}});
    }
    expected.back().as_object()["tool_calls"] = calls;
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(MessagesOf(Concat(R"({"input": [)", first, ",", items, "]}")),
              json::value(expected));
  }
}

// A message that has calls of its own keeps what it says.
TEST(ResponseTest, NoTextOfTheInputIsLost) {
  const json::value messages = MessagesOf(
      R"({"input": [{"role": "assistant", "content": "A"},
        {"role": "assistant", "content": "B", "tool_calls": [
          {"id": "a", "type": "function", "function": {"name": "f"}}]}]})");
  ASSERT_EQ(messages.as_array().size(), 2);
  EXPECT_EQ(messages.at(1).at("content"), "B");
}

TEST(ResponseTest, ToolsAreThoseOfAChat) {
  constexpr char kTools[] = R"([{"type": "function", "name": "f",
      "description": "d", "strict": true, "parameters": {"type": "object"}},
      {"type": "function", "name": "g"}])";
  for (const auto& [choice, kind, num_names] :
       {std::tuple{R"("auto")", ToolChoice::Kind::kAuto, 0},
        {R"("required")", ToolChoice::Kind::kRequired, 0},
        {R"({"type": "function", "name": "g"})", ToolChoice::Kind::kFunction,
         1},
        {R"({"type": "allowed_tools", "mode": "required", "tools": [
             {"type": "function", "name": "g"},
             {"type": "function", "name": "f"}]})",
         ToolChoice::Kind::kRequired, 2}}) {
    const Call call = CallOf(
        Api::kResponses, Concat(R"("parallel_tool_calls": false, "tools": )",
                                kTools, R"(, "tool_choice": )", choice));
    EXPECT_EQ(call.chat->tools,
              *ParseJson(R"([{"type": "function", "function": {"name": "f",
                  "description": "d", "strict": true,
                  "parameters": {"type": "object"}}},
                  {"type": "function", "function": {"name": "g"}}])"));
    EXPECT_EQ(call.tool_choice.kind, kind);
    EXPECT_EQ(
        call.tool_choice.names.value_or(std::vector<std::string>()).size(),
        num_names);
    const PromptParts prompt = ResponsePromptOf(call);
    const json::value whole = *ParseJson(
        WriteResponse(call, kResponseHead, prompt,
                      ResponseAnswerOf(prompt, FinishReason::kEos), nullptr));
    EXPECT_EQ(whole.at("tools"), *ParseJson(kTools));
    EXPECT_EQ(whole.at("tool_choice"), *ParseJson(choice));
    EXPECT_EQ(whole.at("parallel_tool_calls"), false);
  }
}

constexpr std::string_view kCallOfF =
    R"(<tool_call>{"name": "f", "arguments": {"x": "é"}}</tool_call>)";
constexpr std::string_view kCallOfG =
    R"(<tool_call>{"arguments": {}, "name": "g"}</tool_call>)";

// Texts with the items that they have, and events that add up to these, cut at
// each character.
TEST(ResponseTest, CallsOfToolsAreItems) {
  const struct {
    std::string text;
    std::string items;
    bool is_parallel = true;
    FinishReason reason = FinishReason::kEos;
    size_t last = 0;  // the item in which it ends
  } cases[] = {
      {"Bien.", R"(["Bien."])"},
      {"", R"([""])"},
      {std::string(kCallOfF), R"([["f", "{\"x\": \"é\"}"]])"},
      {Concat("Bien. ", kCallOfF), R"(["Bien.", ["f", "{\"x\": \"é\"}"]])"},
      {Concat(kCallOfG, "Bien."), R"([["g", "{}"], "Bien."])"},
      {Concat(kCallOfG, "a", kCallOfF, "b"),
       R"([["g", "{}"], "ab", ["f", "{\"x\": \"é\"}"]])"},
      {Concat(kCallOfG, kCallOfF), R"([["g", "{}"]])", false},
      {std::string(kCallOfF.substr(0, kCallOfF.find("é") - 1)),
       R"([["f", "{\"x\": "]])", true, FinishReason::kLength},
      {Concat(kCallOfF, "a"), R"([["f", "{\"x\": \"é\"}"], "a"])", true,
       FinishReason::kLength, 1},
      {Concat("a", kCallOfF, "b"), R"(["ab", ["f", "{\"x\": \"é\"}"]])", true,
       FinishReason::kLength, 0},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.text);
    Call call = CallOf(
        Api::kResponses,
        Concat(R"("stream": true, "tools": [{"type": "function", "name": "f"},
                  {"type": "function", "name": "g"}],
                  "parallel_tool_calls": )",
               test.is_parallel ? "true" : "false"));
    call.tool_calls.format = ToolCallFormat::kHermes;
    const PromptParts prompt = ResponsePromptOf(call);
    PromptAnswer answer = ResponseAnswerOf(prompt, test.reason);
    answer.texts[0] = test.text;
    const json::value whole = *ParseJson(
        WriteResponse(call, kResponseHead, prompt, answer, &EnFrTokenizer()));
    const json::array expected = ParseJson(test.items)->as_array();
    json::array found;
    for (const json::value& item : whole.at("output").as_array()) {
      if (item.at("type") == "message") {
        found.push_back(item.at("content").at(0).at("text"));
        continue;
      }
      EXPECT_EQ(item.at("type"), "function_call");
      EXPECT_EQ(item.at("call_id").as_string().size(), 9);
      found.push_back(json::array{item.at("name"), item.at("arguments")});
    }
    EXPECT_EQ(found, expected);
    for (const json::value& item : whole.at("output").as_array()) {
      const bool has_ended = item == whole.at("output").at(test.last);
      EXPECT_EQ(item.at("status"),
                has_ended ? whole.at("status") : json::value("completed"));
    }
    for (size_t cut = 0; cut <= test.text.size(); ++cut) {
      if (!IsUtf8(test.text.substr(0, cut))) continue;
      ResponseWriter writer(call, kResponseHead, prompt, &EnFrTokenizer());
      std::string stream = writer.Begin();
      stream += writer.Add(0, SampleEvent{.text = test.text.substr(0, cut)});
      stream += writer.Finish(0, answer);
      const std::vector<json::object> events = TypedEventsOf(stream);
      json::array items;
      std::vector<std::string> texts;
      for (const json::object& event : events) {
        if (!event.contains("output_index")) continue;
        const auto idx =
            static_cast<size_t>(event.at("output_index").as_int64());
        if (event.at("type") == "response.output_item.added") {
          EXPECT_EQ(idx, texts.size());
          texts.emplace_back();
        } else if (event.contains("delta")) {
          texts.at(idx) += event.at("delta").as_string();
        } else if (event.at("type") == "response.output_item.done") {
          const json::value& item = event.at("item");
          items.push_back(item);
          const json::value& text = item.at("type") == "message"
                                        ? item.at("content").at(0).at("text")
                                        : item.at("arguments");
          EXPECT_EQ(texts.at(idx), text.as_string());
        }
      }
      EXPECT_EQ(items, whole.at("output"));
      EXPECT_EQ(events.back().at("response"), whole);
    }
  }
}

TEST(ResponseTest, FieldsOfChatsCount) {
  const Call call =
      CallOf(Api::kResponses,
             R"("num_beams": 4, "length_penalty": 0.5, "max_output_tokens": 7,
         "reasoning": {"effort": "low"}, "store": true,
         "text": {"format": {"type": "text"}, "verbosity": "medium"},
         "tools": [], "include": [], "truncation": "disabled")");
  EXPECT_EQ(call.params.num_beams, 4);
  EXPECT_EQ(call.params.length_penalty, 0.5);
  EXPECT_EQ(call.params.max_new_tokens, 7);
  EXPECT_EQ(call.NameOf("max_new_tokens"), "max_output_tokens");
  EXPECT_EQ(call.chat->more.at("reasoning_effort"), "low");
  EXPECT_TRUE(call.warnings.empty()) << call.warnings[0];
}

TEST(ResponseTest, WhatNeedsStateOrHasNoAnswerIsRefusedByName) {
  const std::pair<std::string, std::string> kBad[] = {
      {R"("n": 2)", "n must be 1 in /v1/responses"},
      {R"("previous_response_id": "resp_1")", "previous_response_id is not"},
      {R"("conversation": "c")", "conversation is not supported"},
      {R"("background": true)", "background is not supported"},
      {R"("tools": [{"type": "web_search"}])",
       "tools[0].type must be \"function\", got \"web_search\""},
      {R"("tools": [{"type": "function", "function": {"name": "f"}}])",
       "tools[0].name must be a string, and not empty, got nothing"},
      {R"("tools": [{"type": "function", "name": "f", "strict": 1}])",
       "tools[0].strict must be true or false, got 1"},
      {R"("tools": [{"type": "function", "name": "f", "description": []}])",
       "tools[0].description must be a string, got []"},
      {R"("tools": [{"type": "function", "name": "f", "parameters": "x"}])",
       "tools[0].parameters must be an object, got \"x\""},
      {R"("tools": [{"type": "function", "name": "f"}],
          "tool_choice": {"type": "function", "name": "g"})",
       "tool_choice must name functions of the tools, \"f\", got \"g\""},
      {R"("tools": [{"type": "function", "name": "f"}],
          "tool_choice": {"type": "function"})",
       "tool_choice.name must be a string"},
      {R"("tools": [{"type": "function", "name": "f"}],
          "tool_choice": {"type": "allowed_tools", "mode": "auto"})",
       "tool_choice.tools must be a list that is not empty"},
      {R"("truncation": "auto")", "truncation is not supported"},
      {R"("include": ["reasoning.encrypted_content"])", "include is not"},
      {R"("top_logprobs": 2)", "top_logprobs is not supported"},
      {R"("stream": true, "stream_beams": true)", "stream_beams is not"},
      {R"("text": {"format": {"type": "grammar"}})",
       R"(text.format.type must be "text", "json_object" or "json_schema")"},
      {R"("text": {"format": {"type": "json_schema", "name": "a"}})",
       "text.format must have a schema"},
      {R"("text": "plain")", "text must be an object"},
      {R"("reasoning": {"effort": 3})", "reasoning.effort must be a string"},
      {R"("instructions": ["a"])", "instructions must be a string"},
      {R"("input": [{"type": "reasoning"}])",
       R"(input[0].type must be "message", "function_call" or )"},
      {R"("input": [{"type": "function_call", "name": "f"}])",
       "input[0].call_id must be a string, and not empty, got nothing"},
      {R"("input": [{"type": "function_call", "name": "f", "call_id": "a",
                     "arguments": {}}])",
       "input[0].arguments must be a string, got {}"},
      {R"("input": [{"type": "function_call_output", "call_id": "a"}])",
       "input[0].output must be a string or a list of texts, got nothing"},
      {R"("input": [{"type": "function_call_output", "call_id": "b",
                     "output": ""}])",
       "input[0].call_id must be that of a function_call of the input, got "
       "\"b\""},
      {R"("input": [{"type": "function_call", "call_id": "a", "name": "f",
                     "arguments": ""},
                    {"type": "function_call_output", "call_id": "b",
                     "output": ""}])",
       "input[1].call_id must be that of a function_call of the input, got "
       "\"b\""},
      {R"("input": [{"type": "function_call_output", "call_id": "a",
                     "output": [{"type": "input_text", "text": 5}]}])",
       "input[0].output[0].text must be a string, got 5"},
      {R"("input": [{"type": "function_call_output", "call_id": "a",
                     "output": [{"type": "input_image"}]}])",
       R"(input[0].output[0].type must be "input_text")"},
      {R"("input": [{"role": "user", "content": [{"type": "input_image"}]}])",
       R"(input[0].content[0].type must be "input_text")"},
      {R"("input": [7])", "input[0] must be an object, got 7"},
      {R"("input": [{"content": "a"}])", "input[0].role must be a string"},
      {R"("input": [{"role": "tool", "content": "a"}])",
       "input[0].role must be user, assistant, system or developer, got "
       "\"tool\""},
      {R"("input": [{"role": "user", "content": "a"}, {"role": "foo"}])",
       "input[1].role must be user"},
      // Numbered as in the call, whatever stands in front of it.
      {R"("input": [{"role": "user", "content": "a", "prefix": true}],
          "instructions": "b")",
       R"(input[0].role must be "assistant" with prefix, got "user")"},
      {R"("input": [])", "input must not be empty"},
      {R"("input": 7)", "input must be a string or a list"},
      {R"("instructions": "a")", "input must be there"},
  };
  for (const auto& [fields, message] : kBad) {
    const bool has_input = fields.find("input\":") != fields.npos ||
                           fields.starts_with("\"instructions\": \"");
    const std::string body =
        Concat("{", fields, has_input ? "" : R"(, "input": "a")", "}");
    EXPECT_THAT(
        ReadCall(Api::kResponses, body),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << body;
  }
}

TEST(ResponseTest, ATextFormatIsAConstraint) {
  ASSERT_OK_AND_ASSIGN(
      const Call call,
      ReadCall(Api::kResponses,
               R"({"input": "a", "text": {"format": {"type": "json_schema",
                   "name": "n", "strict": true,
                   "schema": {"type": "integer"}}}})"));
  EXPECT_EQ(call.params.constraint,
            ConstraintParams{.json_schema = R"({"type": "integer"})"});
}

// The format that is in force, on one line.
TEST(ResponseTest, AnswersRepeatTheFormatOfTheText) {
  const std::string text = R"({"type":"text"})";
  const std::string schema = R"({"type":"json_schema","name":"json_schema",)"
                             R"("schema":{"type":"integer"},"strict":true})";
  const std::pair<std::string, std::string> cases[] = {
      {R"("temperature": 0)", text},
      {R"("text": {"format": {"type": "text"}})", text},
      {R"("text": {"format": null})", text},
      {R"("text": {"format": {"type": "json_object"}})",
       R"({"type":"json_object"})"},
      {R"("text": {"format": {"type": "json_schema", "name": "n",
                              "schema": {"type":
                                         "integer"}}})",
       R"({"type":"json_schema","name":"n","schema":{"type":"integer"}})"},
      {"\"json_schema\": {\"type\":\n\"integer\"}", schema},
      {R"("text": {"format": {"type": "text"}},
          "json_schema": {"type": "integer"})",
       schema},
      {R"("regex": "a")", text}};
  for (const auto& [fields, format] : cases) {
    const Call call = CallOf(Api::kResponses, fields);
    const PromptParts prompt = ResponsePromptOf(call);
    const PromptAnswer answer = ResponseAnswerOf(prompt, FinishReason::kEos);
    const std::string json =
        WriteResponse(call, kResponseHead, prompt, answer, &EnFrTokenizer());
    EXPECT_EQ(json.find_first_of("\r\n"), json.npos) << json;
    EXPECT_EQ(ParseJson(json)->at("text").at("format"), *ParseJson(format))
        << fields;
  }
  // A default of the server is in force, too.
  PromptParts prompt = ResponsePromptOf(CallOf(Api::kResponses, "\"n\": 1"));
  prompt.params.constraint = {.json_schema = R"({"type":"integer"})"};
  const Call open =
      CallOf(Api::kResponses, R"("text": {"format": {"type": "text"}})");
  EXPECT_EQ(
      ParseJson(WriteResponse(open, kResponseHead, prompt,
                              ResponseAnswerOf(prompt, FinishReason::kEos),
                              &EnFrTokenizer()))
          ->at("text")
          .at("format"),
      *ParseJson(schema));
}

// However many there are, the first one ends the reading.
TEST(ResponseTest, UnknownMembersOfATextFormatAreRefused) {
  std::string many;
  for (int i = 0; i < 1025; ++i)
    many += Concat(i > 0 ? "," : "", "\"", i, "\":0");
  EXPECT_THAT(
      ReadCall(Api::kResponses,
               Concat(R"({"input": "a", "text": {"format": {)", many, "}}}")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("text.format.0 is not supported")));
}

TEST(ResponseTest, AnswerIsOneMessageThatSaysHowItEnded) {
  const struct {
    FinishReason reason;
    std::string_view status;
    std::string_view details;
  } kEnds[] = {
      {FinishReason::kEos, "completed", "null"},
      {FinishReason::kStop, "completed", "null"},
      {FinishReason::kLength, "incomplete",
       R"({"reason":"max_output_tokens"})"},
      {FinishReason::kDeadline, "incomplete", R"({"reason":"deadline"})"},
  };
  const Call call =
      CallOf(Api::kResponses,
             R"("metadata": {"a": "b"}, "instructions": "Be brief.")");
  const PromptParts prompt = ResponsePromptOf(call);
  for (const auto& end : kEnds) {
    const PromptAnswer answer = ResponseAnswerOf(prompt, end.reason);
    const json::object whole =
        ParseJson(WriteResponse(call, kResponseHead, prompt, answer,
                                &EnFrTokenizer()))
            .value()
            .as_object();
    EXPECT_EQ(whole.at("id"), "resp_7");
    EXPECT_EQ(whole.at("object"), "response");
    EXPECT_EQ(whole.at("status").as_string(), end.status);
    EXPECT_EQ(whole.at("incomplete_details"), ParseJson(end.details).value());
    EXPECT_EQ(whole.at("metadata"), ParseJson(R"({"a": "b"})").value());
    EXPECT_EQ(whole.at("instructions"), "Be brief.");
    EXPECT_EQ(whole.at("store"), false);
    ASSERT_EQ(whole.at("output").as_array().size(), 1);
    const json::object& message = whole.at("output").at(0).as_object();
    EXPECT_EQ(message.at("id"), "msg_7");
    EXPECT_EQ(message.at("content").at(0).at("text"), kResponseText);
    EXPECT_EQ(message.at("score"),
              JsonFloat(answer.result.hypotheses[0].score));
    EXPECT_EQ(
        whole.at("usage").at("total_tokens").as_int64(),
        std::ssize(prompt.tokens) + std::ssize(EnFrTokens(kResponseText)));
  }
}

// Cuts the text of an answer into two events at each of its bytes, and none.
TEST(ResponseTest, EventsAddUpToTheWholeAnswer) {
  const std::string text = kResponseText;
  for (const char* const fields :
       {R"("stream": true)", R"("stream": true, "num_beams": 4)",
        R"("stream": true, "best_of": 2)",
        "\"stream\": true, \"metadata\": {\n \"a\":\r\n \"b\"}"}) {
    const Call call = CallOf(Api::kResponses, fields);
    const PromptParts prompt = ResponsePromptOf(call);
    const PromptAnswer answer = ResponseAnswerOf(prompt, FinishReason::kLength);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      // Texts come as whole characters.
      if (!IsUtf8(text.substr(0, cut))) continue;
      ResponseWriter writer(call, kResponseHead, prompt, &EnFrTokenizer());
      std::string stream = writer.Begin();
      const std::string first = text.substr(0, cut);
      if (call.params.num_beams > 1) {
        stream += writer.Add(0, StablePrefixEvent{.text = first});
      } else {
        stream += writer.Add(0, SampleEvent{.text = first});
      }
      stream += writer.Finish(0, answer);
      stream += writer.End();
      const std::vector<json::object> events = TypedEventsOf(stream);
      std::string added;
      for (size_t i = 0; i < events.size(); ++i) {
        EXPECT_EQ(events[i].at("sequence_number").as_int64(),
                  static_cast<int64_t>(i));
        if (events[i].at("type") != "response.output_text.delta") continue;
        added += events[i].at("delta").as_string();
      }
      EXPECT_EQ(added, text);
      ASSERT_GE(events.size(), 5);
      EXPECT_EQ(events[0].at("type"), "response.created");
      EXPECT_EQ(events[0].at("response").at("status"), "in_progress");
      EXPECT_EQ(events.back().at("type"), "response.incomplete");
      EXPECT_EQ(events.back().at("response"),
                ParseJson(WriteResponse(call, kResponseHead, prompt, answer,
                                        &EnFrTokenizer()))
                    .value());
    }
  }
}

TEST(ResponseTest, FailureIsTheLastEvent) {
  const Call call = CallOf(Api::kResponses, R"("stream": true)");
  ResponseWriter writer(call, kResponseHead, ResponsePromptOf(call),
                        &EnFrTokenizer());
  writer.Begin();
  const std::vector<json::object> events =
      TypedEventsOf(writer.Fail(MakeHttpError(503, "the server shuts down")));
  ASSERT_EQ(events.size(), 1);
  EXPECT_EQ(events[0].at("type"), "response.failed");
  const json::value& response = events[0].at("response");
  EXPECT_EQ(response.at("status"), "failed");
  EXPECT_EQ(response.at("error").at("message"), "the server shuts down");
  EXPECT_EQ(response.at("error").at("code"), "service_unavailable");
}

}  // namespace
}  // namespace espalier::openai
