// Hints at unknown fields of a call: the known field that may be meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "openai/call.h"
#include "openai/error.h"
#include "openai/tokenize.h"
#include "tests/status_matchers.h"

namespace espalier::openai {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Returns the hint at an unknown field with value 1, in a call that is
// otherwise good.
std::string HintAt(std::string_view name, Api api, bool in_sampling = false) {
  const std::string field = Concat('"', name, R"(": 1)");
  const std::string input =
      api == Api::kCompletions ? R"("prompt": "a")"
      : api == Api::kChat ? R"("messages": [{"role": "user", "content": "a"}])"
                          : R"("token_ids": [4])";
  const auto call = ReadCall(
      api, in_sampling
               ? Concat("{", input, R"(, "sampling_params": {)", field, "}}")
               : Concat("{", input, ", ", field, "}"));
  if (!call.ok() || call->warnings.size() != 1) return "no warning";
  std::string start = Concat("unknown field \"", name, '"');
  if (in_sampling) start += " in sampling_params";
  const std::string& warning = call->warnings[0];
  EXPECT_TRUE(warning.starts_with(start)) << warning;
  return warning.substr(start.size());
}

TEST(FieldHintsTest, FieldsOfOtherProgramsAreHintedAtWhereTheyAre) {
  constexpr std::pair<std::string_view, std::string_view> kCases[] = {
      {"eos", "; did you mean eos_token_id?"},
      {"n_samples", "; did you mean num_return_sequences?"},
      {"max_length", "; did you mean max_new_tokens?"},
      {"n_predict", "; did you mean max_new_tokens?"},
      {"stop_strings", "; did you mean stop?"},
      {"stop_sequences", "; did you mean stop?"},
      {"target_prefix", "; did you mean decoder_prompt?"},
      {"bos", "; leave it out: the model has its own"},
      {"pad_token_id", "; leave it out: the model has its own"},
      {"min_keep", "; there is nothing like it"},
      {"encoder_prompt", "; did you mean prompt?"},
      {"text", "; did you mean prompt?"},
      {"input_ids", "; did you mean prompt? It takes token ids, too"},
      {"prompt_tokens", "; did you mean prompt? It takes token ids, too"},
      {"token_ids", "; did you mean prompt? It takes token ids, too"},
      {"sampling_params", "; its fields stand beside prompt"},
      {"extra_body", "; its fields stand beside prompt"},
      {"top_logprobs", "; did you mean logprobs?"},
      {"output_scores", "; did you mean logprobs?"},
      {"max_time", "; did you mean deadline_ms?"},
      {"prompt_lookup_num_tokens", "; did you mean speculate?"},
      {"samplers", ""},
      // Names close to those of unsupported fields.
      {"lora", ""},
      {"watermark", ""},
      {"conversation", ""},
      {"src_lang", "; languages are chosen by template, such as \"fr-en\""},
      {"mirostat", "; there is nothing like it"},
      {"enable_thinking", ""},
  };
  for (const auto& [name, hint] : kCases) {
    EXPECT_EQ(HintAt(name, Api::kCompletions), hint) << name;
  }
  EXPECT_EQ(HintAt("extra_body", Api::kChat),
            "; its fields stand beside messages");
  EXPECT_EQ(HintAt("input_ids", Api::kChat),
            "; token ids are a prompt of /v1/completions");
  EXPECT_EQ(HintAt("conversation", Api::kChat), "; did you mean messages?");
  for (const char* const name : {"system", "instructions"}) {
    EXPECT_EQ(HintAt(name, Api::kChat),
              "; it is a message of \"role\": \"system\"");
  }
  for (const char* const name : {"enable_thinking", "thinking"}) {
    EXPECT_EQ(HintAt(name, Api::kChat),
              "; it belongs in chat_template_kwargs, if the template has it");
  }
  for (const char* const name : {"must_contain", "exclude"}) {
    EXPECT_EQ(HintAt(name, Api::kChat), "; it belongs in constraint");
    EXPECT_EQ(HintAt(name, Api::kTokens, true), "; it belongs in constraint");
  }
  EXPECT_EQ(HintAt("beam_size", Api::kTokens),
            "; did you mean num_beams in sampling_params?");
  EXPECT_EQ(HintAt("parameters", Api::kTokens),
            "; did you mean sampling_params?");
  EXPECT_EQ(HintAt("max_completion_tokens", Api::kTokens, true),
            "; did you mean max_new_tokens?");
}

TEST(FieldHintsTest, AFieldOfAnotherRouteIsSaidToBeOfIt) {
  EXPECT_EQ(HintAt("messages", Api::kCompletions),
            "; it is a field of /v1/chat/completions");
  EXPECT_EQ(HintAt("prompt", Api::kChat), "; it is a field of /v1/completions");
  EXPECT_EQ(HintAt("echo", Api::kTokens), "; it is a field of /v1/completions");
  EXPECT_EQ(HintAt("return_token_strs", Api::kCompletions),
            "; it is a field of /tokenize");
  const auto message = [](Api api, std::string_view body) {
    return Message(ReadCall(api, body).status());
  };
  EXPECT_EQ(message(Api::kCompletions, R"({"messages": []})"),
            "prompt must be there, got nothing; unknown field \"messages\"; it "
            "is a field of /v1/chat/completions");
  EXPECT_EQ(message(Api::kChat, R"({"prompt": "a"})"),
            "messages must be there, got nothing; unknown field \"prompt\"; it "
            "is a field of /v1/completions");
  EXPECT_EQ(message(Api::kCompletions, R"({"input_ids": [1]})"),
            "prompt must be there, got nothing; unknown field \"input_ids\"; "
            "did you mean prompt? It takes token ids, too");
}

// They are passed over there, but a misspelling of one is none of "template".
TEST(FieldHintsTest, AMisspeltParamOfTokenizeIsHintedAt) {
  EXPECT_THAT(
      ReadTokenizeCall(R"({"prompt": "a", "temprature": 1})")->call.warnings,
      ElementsAre("unknown field \"temprature\"; did you mean temperature?"));
  EXPECT_THAT(
      ReadTokenizeCall(R"({"prompt": "a", "tokens": [1]})")->call.warnings,
      ElementsAre("unknown field \"tokens\"; a prompt is a text here"));
}

// A missing field's error names a misspelt one.
TEST(FieldHintsTest, AMisspeltPromptIsHintedAt) {
  const auto message = [](const absl::Status& status) {
    EXPECT_THAT(status, StatusIs(kInvalid, ::testing::_));
    return Message(status);
  };
  EXPECT_EQ(
      message(
          ReadCall(Api::kCompletions, R"({"x": 1, "promt": "a"})").status()),
      "prompt must be there, got nothing; unknown field \"promt\"; did "
      "you mean prompt?");
  EXPECT_EQ(message(ReadCall(Api::kChat, R"({"mesages": []})").status()),
            "messages must be there, got nothing; unknown field \"mesages\"; "
            "did you mean messages?");
  // The hint works on other routes, too.
  EXPECT_THAT(
      message(ReadCall(Api::kChat, R"({"promt": "a", "x": 1})").status()),
      HasSubstr(
          "messages must be there, got nothing; unknown field \"promt\""));
  EXPECT_EQ(message(ReadCall(Api::kTokens, R"({"token_id": [1]})").status()),
            "token_ids must be there, got nothing; unknown field "
            "\"token_id\"; did you mean token_ids?");
  EXPECT_EQ(message(ReadTokenizeCall(R"({"promt": "a"})").status()),
            "prompt or messages must be there, one of the two, got none; "
            "unknown field \"promt\"; did you mean prompt?");
  EXPECT_EQ(message(ReadDetokenizeCall(R"({"tokenz": [1]})").status()),
            "tokens must be there, got nothing; unknown field \"tokenz\"; did "
            "you mean tokens?");
  EXPECT_EQ(message(ReadCall(Api::kCompletions, R"({"foo": 1})").status()),
            "prompt must be there, got nothing");
}

}  // namespace
}  // namespace espalier::openai
