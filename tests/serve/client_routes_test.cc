// Routes that clients of other engines look for, and calls of tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "espalier/generator.h"
#include "tests/openai/stream_events.h"
#include "tests/scratch_directory.h"
#include "tests/serve/server_fixture.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::serve {
namespace {

using ::espalier::testing::ChoicesOf;
using ::espalier::testing::EnFrDir;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::EventsOf;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StreamedChoice;
using ::espalier::testing::WholeChoice;
using ::testing::HasSubstr;

class ClientRoutesTest : public ServerFixture {};

TEST_F(ClientRoutesTest, PathsMayLeaveOutTheVersion) {
  Start();
  EXPECT_EQ(Get("/models").body, Get("/v1/models").body);
  EXPECT_EQ(Get("/models/toy").status, 200);
  EXPECT_EQ(Post("/completions", R"({"prompt": [4], "max_tokens": 1})").status,
            200);
  EXPECT_EQ(Get("/completions").Find("allow"), "POST");
  EXPECT_EQ(Get("/v1/health").status, 404);
}

TEST_F(ClientRoutesTest, UnknownPathsNameTheNearest) {
  Start();
  const std::pair<std::string_view, std::string_view> kPaths[] = {
      {"/openai/deployments/x/chat/completions",
       "did you mean /v1/chat/completions?"},
      {"/api/chat", "did you mean /v1/chat/completions?"},
      {"/generate", "did you mean /inference/v1/generate?"},
      {"/flush_cache", "did you mean /reset_prefix_cache?"}};
  for (const auto& [path, hint] : kPaths) {
    EXPECT_THAT(Post(path, "{}").body, HasSubstr(hint)) << path;
  }
}

TEST_F(ClientRoutesTest, AnHttp2PrefaceIsAnswered) {
  Start();
  const RawResponse response = Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_EQ(response.status, 505);
  EXPECT_THAT(response.body, HasSubstr("HTTP/2 is not supported"));
}

TEST_F(ClientRoutesTest, TokenizerInfoNamesTheSpecialTokens) {
  Start();
  const json::value info = *ParseJson(Get("/tokenizer_info").body);
  const auto piece = [](std::optional<TokenId> token) {
    return json::value(EnFrTokenizer().Piece(*token));
  };
  EXPECT_EQ(info.at("bos_token"), piece(EnFrTokenizer().bos_id()));
  EXPECT_EQ(info.at("eos_token"), piece(EnFrTokenizer().special_tokens().eos));
  EXPECT_TRUE(info.at("chat_template").is_null());
  EXPECT_GT(info.at("model_max_length").as_int64(), 0);
  EXPECT_EQ(info.at("vocab_size"), EnFrTokenizer().vocab_size());
  const auto tokens_of = [&](std::string_view text) {
    return ParseJson(Post("/tokenize",
                          Concat(R"({"add_special_tokens": false, "prompt": ")",
                                 text, "\"}"))
                         .body)
        ->at("tokens");
  };
  EXPECT_EQ(tokens_of(info.at("bos_token").as_string()),
            (json::array{*EnFrTokenizer().bos_id()}));
  EXPECT_GT(tokens_of("a <s>").as_array().size(), 2u);
}

TEST_F(ClientRoutesTest, ResetPrefixCacheForgetsAllPages) {
  Start();
  EXPECT_EQ(Post("/reset_prefix_cache", "").status, 403);
  server_.reset();
  Start({.allow_control = true});
  std::string prompt = "[4";
  for (int i = 0; i < 200; ++i) prompt += ", 5";
  const auto num_cached = [&] {
    const RawResponse response =
        Post("/v1/completions",
             Concat(R"({"max_tokens": 1, "prompt": )", prompt, "]}"));
    return ParseJson(response.body)
        ->at("usage")
        .at("prompt_tokens_details")
        .at("cached_tokens")
        .as_int64();
  };
  EXPECT_EQ(num_cached(), 0);
  EXPECT_GT(num_cached(), 0);
  // As clients send it: with no body, and so with no type of one.
  const RawResponse reset = Send(
      "POST /reset_prefix_cache HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n"
      "\r\n");
  EXPECT_EQ(reset.status, 200) << reset.body;
  EXPECT_GT(ParseJson(reset.body)->at("pages").as_int64(), 0);
  EXPECT_EQ(num_cached(), 0);
}

// While requests run and others wait for pages that are being filled.
TEST_F(ClientRoutesTest, ResetPrefixCacheChangesNoResult) {
  Start({.allow_control = true});
  std::string body = R"({"max_tokens": 40, "num_beams": 3, "prompt": [4)";
  for (int i = 0; i < 100; ++i) body += ", 5, 6";
  body += "]}";
  const auto choices_of = [](const RawResponse& response) {
    return ParseJson(response.body)->at("choices");
  };
  const json::value alone = choices_of(Post("/v1/completions", body));
  for (int i = 0; i < 5; ++i) {
    RawClient clients[] = {Connect(), Connect(), Connect()};
    for (RawClient& client : clients) {
      client.Send(PostText("/v1/completions", body));
      EXPECT_EQ(Post("/reset_prefix_cache", "").status, 200);
    }
    for (RawClient& client : clients) {
      EXPECT_EQ(choices_of(client.Receive()), alone);
    }
  }
}

TEST_F(ClientRoutesTest, RenderedCallsGenerateWhatTheirCallsDo) {
  Start();
  for (const std::string_view fields :
       {R"("max_tokens": 5, "num_beams": 3, "n": 2)", R"("temperature": 0)",
        R"("seed": 3, "temperature": 0.5, "logprobs": 1, "max_tokens": 4)",
        R"("response_format": {"type": "json_object"}, "num_beams": 2)",
        R"("response_format": {"type": "json_schema", "json_schema":
               {"schema": {"type": "integer"}}}, "temperature": 0)",
        R"("truncate_prompt_tokens": 2, "num_beams": 2)"}) {
    const std::string body =
        Concat(R"({"prompt": ["It rains.", "She sings."], )", fields,
               R"(, "return_token_ids": true})");
    const RawResponse rendered = Post("/v1/completions/render", body);
    ASSERT_EQ(rendered.status, 200) << rendered.body;
    const json::value calls = *ParseJson(rendered.body);
    json::array whole =
        ParseJson(Post("/v1/completions", body).body)->at("choices").as_array();
    size_t i = 0;
    for (const json::value& call : calls.as_array()) {
      const RawResponse answer =
          Post("/inference/v1/generate", WriteJson(call));
      ASSERT_EQ(answer.status, 200) << answer.body << rendered.body;
      const json::value generated = *ParseJson(answer.body);
      for (const json::value& choice : generated.at("choices").as_array()) {
        EXPECT_EQ(choice.at("token_ids"), whole.at(i++).at("token_ids"));
      }
    }
    EXPECT_EQ(i, whole.size());
  }
  EXPECT_EQ(Post("/v1/completions/render", R"({"prompt": [4], "n": 0})").status,
            400);
}

// Both refusals and warnings: the calls are made ready by the same code.
TEST_F(ClientRoutesTest, RenderingAnswersWhatItsCallWould) {
  ServerOptions options;
  options.requests.max_list_elements = 1'000;
  Start(options, {.num_threads = 1, .max_running = 2, .max_waiting = 2});
  const std::string long_text(1'000, 'a');
  for (const std::string& fields :
       {Concat(R"("truncate_prompt_tokens": 2, "prompt": ")", long_text, "\""),
        std::string(R"("prompt": [4], "num_beams": 3000)"),
        std::string(R"("prompt": [4], "temperature": -1)"),
        std::string(R"("prompt": [4], "logit_bias": {"99999999": 1})"),
        std::string(R"("prompt": [[4], [5], [6], [7], [8]])"),
        std::string(R"("prompt": [4], "model": "other")")}) {
    const std::string body = Concat("{", fields, R"(, "request_id": "a"})");
    const RawResponse refused = Post("/v1/completions", body);
    EXPECT_GE(refused.status, 400) << fields;
    const RawResponse rendered = Post("/v1/completions/render", body);
    EXPECT_EQ(rendered.status, refused.status) << fields;
    EXPECT_EQ(rendered.body, refused.body);
  }
  const std::string body =
      R"({"prompt": [4], "use_beam_search": true, "n": 2, "temperature": 0.7,
          "max_tokens": 1, "unknown": 1})";
  const json::value rendered =
      ParseJson(Post("/v1/completions/render", body).body)->at(0);
  ASSERT_EQ(rendered.at("warnings").as_array().size(), 2u);
  EXPECT_EQ(rendered.at("warnings"),
            ParseJson(Post("/v1/completions", body).body)->at("warnings"));
}

int64_t NumAborted(const RawResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return ParseJson(response.body)->at("aborted").as_int64();
}

TEST_F(ClientRoutesTest, CallsAreAbortedByTheirIds) {
  Start();
  model_->Hold(true);
  RawClient whole = Connect(), stream = Connect(), other = Connect();
  const auto send = [](RawClient& client, std::string_view fields) {
    client.Send(
        PostText("/v1/completions",
                 Concat(R"({"prompt": [4], "max_tokens": 4, )", fields, "}")));
  };
  send(whole, R"("request_id": "a")");
  send(stream, R"("request_id": "b", "stream": true)");
  send(other, R"("request_id": "c")");
  const auto num_open = [&] {
    return Metric("vllm:num_requests_running") +
           Metric("vllm:num_requests_waiting");
  };
  for (int i = 0; i < 2'000 && num_open() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(NumAborted(Post("/abort_requests", R"({"request_ids": "x"})")), 0);
  EXPECT_EQ(NumAborted(Post("/abort_requests",
                            R"({"request_ids": ["a", "x", "cmpl-b"]})")),
            2);
  const RawResponse aborted = whole.Receive();
  EXPECT_EQ(aborted.status, 499);
  EXPECT_THAT(aborted.body, HasSubstr("aborted"));
  EXPECT_THAT(stream.Receive().body, HasSubstr("the request was aborted"));
  model_->Hold(false);
  EXPECT_EQ(other.Receive().status, 200);
  EXPECT_TRUE(AwaitMetric("vllm:num_requests_running", 0));
  EXPECT_EQ(NumAborted(Post("/abort_requests", R"({"request_ids": "a"})")), 0);
  for (const std::string_view bad :
       {"{}", R"({"request_ids": 1})", R"({"ids": "a"})",
        R"({"request_ids": "a", "": 1})", "[]", ""}) {
    EXPECT_EQ(Post("/abort_requests", bad).status, 400) << bad;
  }
  const json::value refused =
      ParseJson(
          Post("/abort_requests", R"({"request_ids": [], "foo": 1})").body)
          .value();
  EXPECT_EQ(refused.at("error").at("message"),
            R"(unknown field "foo"; request_ids is the only one)");
  EXPECT_EQ(refused.at("error").at("param"), "foo");
}

TEST_F(ClientRoutesTest, ScoringsAreAbortedByTheirIds) {
  Start();
  model_->Hold(true);
  RawClient items = Connect(), labels = Connect();
  items.Send(PostText("/generative_scoring",
                      R"({"query": [4], "items": [[5], [6]],
                          "request_id": "a"})"));
  labels.Send(PostText("/generative_scoring",
                       R"({"query": [4], "items": [[5], [6]],
                           "label_token_ids": [7], "request_id": "b"})"));
  constexpr std::string_view kAbort =
      R"({"request_ids": ["a", "generative-scoring-b"]})";
  int64_t num_aborted = 0;
  for (int i = 0; i < 2'000 && num_aborted < 2; ++i) {
    num_aborted += NumAborted(Post("/abort_requests", kAbort));
  }
  EXPECT_EQ(num_aborted, 2);
  for (RawClient* client : {&items, &labels}) {
    const RawResponse aborted = client->Receive();
    EXPECT_EQ(aborted.status, 499);
    EXPECT_THAT(aborted.body, HasSubstr("the request was aborted"));
  }
  model_->Hold(false);
  EXPECT_TRUE(AwaitMetric("vllm:num_requests_running", 0));
}

TEST_F(ClientRoutesTest, AKeyAbortsItsOwnCallsAlone) {
  Start({.api_keys = ApiKeys({"first-key", "second-key"})});
  constexpr std::string_view kFirst = "Authorization: Bearer first-key\r\n";
  constexpr std::string_view kSecond = "Authorization: Bearer second-key\r\n";
  model_->Hold(true);
  RawClient client = Connect();
  client.Send(PostText("/v1/completions",
                       R"({"prompt": [4], "max_tokens": 4, "request_id": "a"})",
                       kFirst));
  constexpr std::string_view kAbort = R"({"request_ids": "a"})";
  int64_t num_aborted = 0;
  for (int i = 0; i < 2'000 && num_aborted == 0; ++i) {
    EXPECT_EQ(NumAborted(Post("/abort_requests", kAbort, kSecond)), 0);
    num_aborted = NumAborted(Post("/abort_requests", kAbort, kFirst));
  }
  EXPECT_EQ(num_aborted, 1);
  EXPECT_EQ(client.Receive().status, 499);
  model_->Hold(false);
}

// The translator with a chat template that teaches calls of tools.
class ToolRoutesTest : public ServerFixture {
 protected:
  void SetUp() override {
    for (const char* const name :
         {"config.json", "model.safetensors", "tokenizer.model"}) {
      std::filesystem::create_symlink(EnFrDir() + "/" + name,
                                      scratch_.path(name));
    }
    ServeTemplate(
        "{% if tools %}{{ tools[0].function.name }} <tool_call> "
        "{% endif %}{{ messages[-1].content }}");
  }
  void ServeTemplate(const std::string& source) {
    scratch_.Write("chat_template.jinja", source);
    Listen();
    ASSERT_OK_AND_ASSIGN(Generator generator,
                         Generator::Load(scratch_.path(), {.num_threads = 1}));
    ASSERT_OK(server_->Serve(std::move(generator), scratch_.path()));
  }
  ScratchDirectory scratch_;
};

TEST_F(ToolRoutesTest, CallsComeBackWholeAndStreamed) {
  constexpr std::string_view kText =
      "Wait. <tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Bern\"}}</tool_call>";
  const std::vector<TokenId> tokens = *EnFrTokenizer().Encode(kText);
  json::array forced(tokens.begin(), tokens.end());
  json::object body = {
      {"messages", {{{"role", "user"}, {"content", "Bern?"}}}},
      {"tools", {{{"type", "function"}, {"function", {{"name", "weather"}}}}}},
      {"num_beams", 2},
      {"allowed_sequences", json::array{forced}}};
  const RawResponse whole = Post("/v1/chat/completions", WriteJson(body));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const auto choice =
      WholeChoice(ParseJson(whole.body)->at("choices").at(0).as_object());
  EXPECT_EQ(choice.text, "Wait.");
  EXPECT_EQ(choice.fields.at("finish_reason"), "tool_calls");
  ASSERT_EQ(choice.tool_calls.size(), 1u);
  EXPECT_EQ(choice.tool_calls[0].at("function"),
            (json::value{{"name", "weather"},
                         {"arguments", "{\"city\": \"Bern\"}"}}));
  body["stream"] = true;
  const auto streamed =
      ChoicesOf(EventsOf(Post("/v1/chat/completions", WriteJson(body)).body))
          .at(0);
  EXPECT_EQ(streamed.text, choice.text);
  EXPECT_EQ(streamed.fields.at("finish_reason"), "tool_calls");
  EXPECT_EQ(streamed.tool_calls[0].at("function"),
            choice.tool_calls[0].at("function"));
}

constexpr std::string_view kEnforcedTools =
    R"("tools": [
      {"type": "function", "function": {"name": "weather", "strict": true,
        "parameters": {
        "type": "object", "required": ["city"], "additionalProperties": false,
        "properties": {"city": {"enum": ["Bern", "</tool_call>"]},
                       "days": {"type": "integer", "maximum": 9,
                                "minimum": 1}}}}},
      {"type": "function", "function": {"name": "weather_\"{é}", "strict": true,
        "parameters": {"type": "object", "additionalProperties": false,
          "properties": {"on": {"type": "boolean"}}}}}])";

std::string EnforcedCall(std::string_view fields) {
  return Concat(R"({"messages": [{"role": "user", "content": "It rains."}], )",
                kEnforcedTools, ", ", fields, "}");
}

// Checks the calls of a choice; returns their number.
size_t CheckCalls(const StreamedChoice& choice) {
  for (const json::value& call : choice.tool_calls) {
    const json::object& function = call.at("function").as_object();
    const std::string name(function.at("name").as_string());
    const auto arguments =
        ParseJson(std::string(function.at("arguments").as_string()));
    EXPECT_OK(arguments);
    if (!arguments.ok()) continue;
    if (name == "weather") {
      const json::value& city = arguments->at("city");
      EXPECT_TRUE(city == "Bern" || city == "</tool_call>");
      const json::value* const days =
          arguments->as_object().if_contains("days");
      if (days != nullptr) {
        EXPECT_LT(days->as_int64(), 10);
      }
    } else {
      EXPECT_EQ(name, "weather_\"{é}");
      for (const auto& [key, value] : arguments->as_object()) {
        EXPECT_EQ(key, "on");
        EXPECT_TRUE(value.is_bool());
      }
    }
  }
  return choice.tool_calls.size();
}

TEST_F(ToolRoutesTest, CallsThatMustComeAreOfTheToolsAndTheirSchemas) {
  const std::string choices[] = {
      R"("tool_choice": "required")",
      R"("tool_choice": "required", "parallel_tool_calls": false)",
      R"("tool_choice": {"type": "function", "function": {"name": "weather"}})"};
  for (const std::string& choice : choices) {
    for (const char* const search :
         {R"("num_beams": 4, "n": 4)",
          R"("temperature": 1.5, "n": 5, "seed": 3, "logprobs": true)",
          R"("seed": 5, "response_format": {"type": "json_object"})"}) {
      std::string fields = Concat(choice, R"(, "max_tokens": 180, )", search);
      const RawResponse whole =
          Post("/v1/chat/completions", EnforcedCall(fields));
      ASSERT_EQ(whole.status, 200) << whole.body;
      const RawResponse stream =
          Post("/v1/chat/completions",
               EnforcedCall(Concat(fields, R"(, "stream": true)")));
      const auto streamed = ChoicesOf(EventsOf(stream.body));
      const json::value answer = *ParseJson(whole.body);
      for (const json::value& value : answer.at("choices").as_array()) {
        const StreamedChoice found = WholeChoice(value.as_object());
        EXPECT_EQ(found.fields.at("finish_reason"), "tool_calls");
        EXPECT_EQ(found.text, "");
        const size_t num_calls = CheckCalls(found);
        EXPECT_GE(num_calls, 1u);
        if (choice != choices[0]) {
          EXPECT_EQ(num_calls, 1u);
        }
        const auto& same = streamed.at(value.at("index").as_int64());
        ASSERT_EQ(same.tool_calls.size(), num_calls);
        for (size_t i = 0; i < num_calls; ++i) {
          EXPECT_EQ(same.tool_calls[i].at("function"),
                    found.tool_calls[i].at("function"));
        }
        EXPECT_EQ(same.fields.at("finish_reason"), "tool_calls");
      }
    }
  }
}

// Text that max_tokens ends has the reason "length", and calls never do.
TEST_F(ToolRoutesTest, AStrictFunctionHasCallsEnforcedBehindText) {
  std::map<std::string, int> reasons;
  for (const int max_tokens : {20, 60, 100}) {
    const std::string fields =
        Concat(R"("temperature": 3, "n": 16, "seed": 1, "stop": ["qu"],
                  "max_tokens": )",
               max_tokens);
    const RawResponse whole =
        Post("/v1/chat/completions", EnforcedCall(fields));
    ASSERT_EQ(whole.status, 200) << whole.body;
    const RawResponse stream =
        Post("/v1/chat/completions",
             EnforcedCall(Concat(fields, R"(, "stream": true)")));
    const auto streamed = ChoicesOf(EventsOf(stream.body));
    const json::value answer = *ParseJson(whole.body);
    for (const json::value& value : answer.at("choices").as_array()) {
      const StreamedChoice found = WholeChoice(value.as_object());
      const json::value& reason = found.fields.at("finish_reason");
      const auto& same = streamed.at(value.at("index").as_int64());
      EXPECT_EQ(same.fields.at("finish_reason"), reason);
      ++reasons[std::string(reason.as_string())];
      if (CheckCalls(found) > 0) {
        EXPECT_EQ(reason, "tool_calls");
      } else {
        const bool is_stopped = !found.fields.at("stop_reason").is_null();
        if (is_stopped) {
          EXPECT_EQ(reason, "stop");
        }
      }
    }
  }
  EXPECT_GT(reasons["length"], 0);
  EXPECT_GT(reasons["stop"], 0);
}

TEST_F(ToolRoutesTest, ToolsThatTheTemplateIgnoresHaveAWarning) {
  const auto warnings = [&](const std::string& target,
                            const std::string& fields) {
    const RawResponse answer =
        Post(target, Concat(R"({"max_tokens": 1, "messages": [{"role": "user",
            "content": "Bern?"}])",
                            fields, "}"));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const json::value body = *ParseJson(answer.body);
    const json::value* const found = body.as_object().if_contains("warnings");
    return found == nullptr ? json::value(json::array()) : *found;
  };
  const std::string tools =
      R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  const json::value none = json::array();
  const json::value one = {
      "tools are not in the prompt: the model's chat template does not mention "
      "them"};
  EXPECT_EQ(warnings("/v1/chat/completions", tools), none);
  ServeTemplate("{{ messages[-1].content }}");
  EXPECT_EQ(warnings("/v1/chat/completions", tools), one);
  EXPECT_EQ(warnings("/tokenize", tools), one);
  EXPECT_EQ(warnings("/v1/chat/completions", ""), none);
  EXPECT_EQ(
      warnings("/v1/chat/completions", tools + R"(, "tool_choice": "none")"),
      none);
}

TEST_F(ToolRoutesTest, AFunctionWithoutParametersIsCalledWithNone) {
  const RawResponse whole =
      Post("/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "a"}], "temperature": 3,
          "n": 8, "seed": 1, "tool_choice": "required", "max_tokens": 90,
          "response_format": {"type": "json_object"},
          "tools": [{"type": "function", "function": {"name": "wait"}}]})");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value answer = *ParseJson(whole.body);
  for (const json::value& value : answer.at("choices").as_array()) {
    for (const json::value& call : WholeChoice(value.as_object()).tool_calls) {
      const auto arguments = ParseJson(
          std::string(call.at("function").at("arguments").as_string()));
      EXPECT_EQ(*arguments, json::value(json::object()));
    }
  }
  EXPECT_EQ(answer.at("warnings").at(0),
            "response_format has no effect: with tool_choice \"required\" the "
            "answer is a call");
}

// Enforced calls are items of a response, and its items are input again.
TEST_F(ToolRoutesTest, ResponsesHaveCallsAndTakeThem) {
  constexpr std::string_view kTools =
      R"("tools": [{"type": "function", "name": "weather", "parameters": {
           "type": "object", "required": ["city"],
           "additionalProperties": false,
           "properties": {"city": {"enum": ["Bern", "Rome"]}}}}])";
  const std::string fields =
      Concat(kTools, R"(, "tool_choice": {"type": "function",
        "name": "weather"}, "max_output_tokens": 60)");
  const RawResponse whole =
      Post("/v1/responses", Concat(R"({"input": "It rains.", )", fields, "}"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value answer = *ParseJson(whole.body);
  EXPECT_EQ(answer.at("status"), "completed");
  const json::array& output = answer.at("output").as_array();
  ASSERT_EQ(output.size(), 1);
  EXPECT_EQ(output[0].at("type"), "function_call");
  EXPECT_EQ(output[0].at("name"), "weather");
  const json::value arguments =
      *ParseJson(std::string(output[0].at("arguments").as_string()));
  EXPECT_TRUE(arguments.at("city") == "Bern" || arguments.at("city") == "Rome");

  const RawResponse stream =
      Post("/v1/responses",
           Concat(R"({"input": "It rains.", "stream": true, )", fields, "}"));
  EXPECT_THAT(stream.body, HasSubstr("response.function_call_arguments.delta"));
  EXPECT_THAT(stream.body, HasSubstr("event: response.completed"));

  json::array input = {{{"role", "user"}, {"content", "It rains."}}};
  input.push_back(output[0]);
  input.push_back({{"type", "function_call_output"},
                   {"call_id", output[0].at("call_id")},
                   {"output", "Sun."}});
  const RawResponse next =
      Post("/v1/responses", Concat(R"({"input": )", WriteJson(input), ", ",
                                   kTools, R"(, "max_output_tokens": 4})"));
  EXPECT_EQ(next.status, 200) << next.body;

  const RawResponse refused =
      Post("/v1/responses",
           R"j({"input": "a", "tool_choice": "required", "tools": [
          {"type": "function", "name": "f"},
          {"type": "function", "name": "g", "parameters": {"type": "object",
            "properties": {"a": {"pattern": "(?=a)"}}}}]})j");
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body,
              HasSubstr("tools[1].parameters: #/properties/a/pattern"));
}

TEST_F(ToolRoutesTest, AResponseFormatIsOfAnswersWithoutCalls) {
  const RawResponse whole = Post(
      "/v1/chat/completions",
      EnforcedCall(R"("temperature": 3, "n": 16, "seed": 1, "max_tokens": 60,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a",
          "schema": {"type": "object", "required": ["a"],
            "additionalProperties": false,
            "properties": {"a": {"type": "boolean"}}}}})"));
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json::value answer = *ParseJson(whole.body);
  int num_texts = 0;
  int num_calls = 0;
  for (const json::value& value : answer.at("choices").as_array()) {
    const StreamedChoice found = WholeChoice(value.as_object());
    EXPECT_EQ(found.fields.at("finish_reason"),
              found.tool_calls.empty() ? "stop" : "tool_calls");
    if (CheckCalls(found) > 0) {
      ++num_calls;
      EXPECT_EQ(found.text, "");
    } else {
      ++num_texts;
      EXPECT_TRUE(ParseJson(found.text)->at("a").is_bool());
    }
  }
  EXPECT_GT(num_texts, 0);
  EXPECT_GT(num_calls, 0);
}

TEST_F(ToolRoutesTest, WhatCannotBeEnforcedIsNamed) {
  const auto expect_refused = [&](std::string_view fields,
                                  std::string_view param,
                                  std::string_view message) {
    const RawResponse response =
        Post("/v1/chat/completions",
             Concat(R"({"messages": [{"role": "user", "content": "a"}], )",
                    fields, "}"));
    EXPECT_EQ(response.status, 400) << response.body;
    const json::value error = ParseJson(response.body)->at("error");
    EXPECT_EQ(std::string(error.at("param").as_string()), param);
    EXPECT_THAT(std::string(error.at("message").as_string()),
                HasSubstr(std::string(message)));
  };
  constexpr std::string_view kBad =
      R"("tools": [{"function": {"name": "f"}}, {"function": {"name": "g",
         "strict": true, "parameters": {"properties": {"a": {"pattern":
         "("}}}}}])";
  constexpr std::string_view kMessage =
      "tools[1].function.parameters: #/properties/a/pattern: ";
  for (
      const std::string_view choice :
      {"", R"(, "tool_choice": "required")",
       R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})"}) {
    expect_refused(Concat(kBad, choice), "tools[1].function.parameters",
                   kMessage);
  }
  constexpr std::string_view kBadFormat =
      R"(, "response_format": {"type": "json_schema", "json_schema":
           {"name": "a", "schema": {"pattern": "("}}})";
  expect_refused(Concat(kEnforcedTools, kBadFormat),
                 "response_format.json_schema.schema",
                 "response_format.json_schema.schema: #/pattern: ");
  expect_refused(Concat(kBad, R"(, "regex": "a", "tool_choice": "required")"),
                 "tool_choice", "tool_choice and regex both say");
  expect_refused(Concat(kEnforcedTools, R"(, "allowed_token_ids": [4],
                                 "tool_choice": "required")"),
                 "allowed_token_ids",
                 "allowed_token_ids must be unset with tool_choice");
}

TEST_F(ToolRoutesTest, RenderedCallsKeepTheConstraint) {
  const std::string body = EnforcedCall(
      R"("tool_choice": "required", "response_format": {"type": "json_object"},
         "num_beams": 2, "max_tokens": 60)");
  const RawResponse rendered = Post("/v1/chat/completions/render", body);
  ASSERT_EQ(rendered.status, 200) << rendered.body;
  const RawResponse chat = Post("/v1/chat/completions", body);
  const RawResponse tokens = Post("/inference/v1/generate", rendered.body);
  ASSERT_EQ(tokens.status, 200) << tokens.body;
  EXPECT_EQ(
      ParseJson(chat.body)->at("usage").at("completion_tokens").as_int64(),
      std::ssize(ParseJson(tokens.body)
                     ->at("choices")
                     .at(0)
                     .at("token_ids")
                     .as_array()));
}

TEST_F(ToolRoutesTest, ToolsArePartOfThePrompt) {
  const auto num_tokens = [&](std::string_view fields) {
    const RawResponse response =
        Post("/tokenize",
             Concat(R"({"messages": [{"role": "user", "content": "a"}])",
                    fields, "}"));
    return ParseJson(response.body)->at("count").as_int64();
  };
  constexpr std::string_view kTools =
      R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_GT(num_tokens(kTools), num_tokens(""));
  EXPECT_EQ(num_tokens(Concat(kTools, R"(, "tool_choice": "none")")),
            num_tokens(""));
  EXPECT_THAT(Get("/tokenizer_info").body, HasSubstr("tools[0].function.name"));
  const RawResponse rendered =
      Post("/v1/chat/completions/render",
           Concat(R"({"messages": [{"role": "user", "content": "a"}])", kTools,
                  "}"));
  EXPECT_EQ(ParseJson(rendered.body)->at("token_ids").as_array().size(),
            num_tokens(kTools));
}

}  // namespace
}  // namespace espalier::serve
