// Prompts of chats against what transformers makes of the same templates,
// tokenizers and conversations (tools/make_chat_references.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value_to.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "text/chat/chat_prompt.h"
#include "text/chat/chat_template.h"
#include "text/chat/final_message.h"
#include "text/tokenizer/json_tokenizer.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;

std::string ChatFile(const std::string& name) {
  return ReadFile(SourcePath("tests/data/chat/" + name), size_t{1} << 20)
      .value();
}

std::string StringAt(const json::value& value, std::string_view name) {
  return std::string(value.at(name).as_string());
}

class ChatReferencesTest : public ::testing::TestWithParam<const char*> {
 protected:
  ChatReferencesTest()
      : file_(ParseJson(ChatFile(GetParam() + std::string(".json"))).value()),
        tokenizer_(
            JsonTokenizer::Parse(
                WriteJson(file_.at("tokenizer")),
                TokenizerConfig::Of(TokenizerConfigFile::Parse(
                                        WriteJson(file_.at("config")), "config")
                                        .value())
                    .value())
                .value()),
        names_(*tokenizer_) {
    ChatTemplate::SpecialTokens tokens;
    for (const auto& [name, token] : file_.at("config").as_object()) {
      tokens.emplace_back(name, token.as_string());
    }
    template_ = ChatTemplate::Parse(
                    ChatFile(GetParam() + std::string(".jinja")), tokens)
                    .value();
  }

  absl::StatusOr<std::vector<TokenId>> PromptOf(const json::value& chat) const {
    ChatInputs inputs;
    inputs.messages = chat.at("messages").as_array();
    inputs.tools = chat.at("tools");
    return PromptOf(inputs);
  }

  absl::StatusOr<std::vector<TokenId>> PromptOf(
      const ChatInputs& inputs) const {
    ASSIGN_OR_RETURN(const jinja::Text text, template_->Render(inputs));
    return EncodeChat(text, *tokenizer_, names_, 10'000);
  }

  const json::value file_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  const SpecialTokenNames names_;
  std::unique_ptr<ChatTemplate> template_;
};

TEST_P(ChatReferencesTest, PromptsAreThoseOfTransformers) {
  int num_prompts = 0, num_hostile = 0;
  for (const json::value& chat : file_.at("cases").as_array()) {
    const auto prompt = PromptOf(chat);
    if (chat.as_object().contains("error")) {
      EXPECT_THAT(Message(prompt.status()), HasSubstr(StringAt(chat, "error")))
          << WriteJson(chat);
      continue;
    }
    ASSERT_OK(prompt) << WriteJson(chat);
    EXPECT_EQ(*prompt, json::value_to<std::vector<TokenId>>(chat.at("tokens")))
        << WriteJson(chat);
    ++num_prompts;
    num_hostile += chat.as_object().contains("hostile");
  }
  EXPECT_GE(num_prompts, 50);
  EXPECT_GE(num_hostile, 10);
}

// Conversations that end with the beginning of an answer.
TEST_P(ChatReferencesTest, PrefillsAreThoseOfTransformers) {
  int num_prompts = 0;
  for (const json::value& chat : file_.at("prefills").as_array()) {
    ChatInputs inputs;
    inputs.messages = chat.at("messages").as_array();
    ASSERT_OK(
        SettleFinalMessage(/*field=*/true, /*adds_prompt=*/nullptr, &inputs));
    const auto prompt = PromptOf(inputs);
    if (chat.as_object().contains("error")) {
      EXPECT_THAT(Message(prompt.status()), HasSubstr(StringAt(chat, "error")))
          << WriteJson(chat);
      continue;
    }
    ASSERT_OK(prompt) << WriteJson(chat);
    EXPECT_EQ(*prompt, json::value_to<std::vector<TokenId>>(chat.at("tokens")))
        << WriteJson(chat);
    ++num_prompts;
  }
  EXPECT_GE(num_prompts, 18);
}

INSTANTIATE_TEST_SUITE_P(All, ChatReferencesTest,
                         ::testing::Values("llama3", "chatml", "mistral",
                                           "gemma"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace espalier
