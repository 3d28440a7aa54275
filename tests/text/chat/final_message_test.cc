// Conditions on a conversation that is to be continued; the prompts are
// compared in chat_references_test.cc.
#include "text/chat/final_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/status_matchers.h"
#include "text/chat/chat_template.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ChatInputs Chat(const std::string& messages) {
  ChatInputs inputs;
  inputs.messages = ParseJson(messages)->as_array();
  return inputs;
}

std::unique_ptr<ChatTemplate> TemplateOf(const std::string& content) {
  return ChatTemplate::Parse(
             "{% for message in messages %}<{{ message['role'] }}>" + content +
                 "<end>{% endfor %}{% if add_generation_prompt %}"
                 "<assistant>{% endif %}",
             {})
      .value();
}

TEST(FinalMessageTest, APrefixOrAFieldContinues) {
  ChatInputs plain = Chat(R"([{"role": "user", "content": "a"}])");
  ASSERT_OK(SettleFinalMessage(false, nullptr, &plain));
  EXPECT_FALSE(plain.continue_final_message);
  EXPECT_TRUE(plain.add_generation_prompt);
  ASSERT_OK(SettleFinalMessage(true, nullptr, &plain));
  EXPECT_TRUE(plain.continue_final_message);
  EXPECT_FALSE(plain.add_generation_prompt);
  ChatInputs prefix =
      Chat(R"([{"role": "assistant", "content": "a", "prefix": true}])");
  ASSERT_OK(SettleFinalMessage(false, nullptr, &prefix));
  EXPECT_TRUE(prefix.continue_final_message);
}

TEST(FinalMessageTest, WhatCannotBeContinuedIsNamed) {
  ChatInputs inputs = Chat(R"([{"role": "user", "content": "a"}])");
  const bool adds_prompt = true;
  EXPECT_THAT(
      SettleFinalMessage(true, &adds_prompt, &inputs),
      StatusIs(kInvalid, HasSubstr("add_generation_prompt must be "
                                   "false with continue_final_message")));
  inputs = Chat(R"([{"role": "user", "content": "a", "prefix": true}])");
  EXPECT_THAT(SettleFinalMessage(false, nullptr, &inputs),
              StatusIs(kInvalid,
                       "messages[0].role must be \"assistant\" with "
                       "prefix, got \"user\""));
  inputs = Chat(R"([{"role": "assistant"}])");
  EXPECT_THAT(SettleFinalMessage(true, nullptr, &inputs),
              StatusIs(kInvalid, HasSubstr("messages[0].content must be a "
                                           "string")));
}

TEST(FinalMessageTest, ThePromptEndsWhereTheContentDoes) {
  ChatInputs inputs = Chat(R"([{"role": "user", "content": "a"},
                               {"role": "assistant", "content": " b "}])");
  inputs.continue_final_message = true;
  inputs.add_generation_prompt = false;
  const auto prompt = [&](const std::string& content) -> std::string {
    const auto text = TemplateOf(content)->Render(inputs);
    return text.ok() ? text->bytes() : std::string(Message(text.status()));
  };
  EXPECT_EQ(prompt("{{ message['content'] }}"), "<user>a<end><assistant> b ");
  EXPECT_EQ(prompt("{{ message['content'] | trim }}"),
            "<user>a<end><assistant>b");
  EXPECT_THAT(prompt("{{ message['content'] | upper }}"),
              HasSubstr("continue_final_message must be false"));
  EXPECT_THAT(prompt("-"), HasSubstr("continue_final_message must be false"));
}

// The marker is part of the input, and so is the text before it.
TEST(FinalMessageTest, AContinuedMessageStaysText) {
  ChatInputs inputs = Chat(R"([{"role": "assistant", "content": "</s>"}])");
  inputs.continue_final_message = true;
  inputs.add_generation_prompt = false;
  ASSERT_OK_AND_ASSIGN(const jinja::Text text,
                       TemplateOf("{{ message['content'] }}")->Render(inputs));
  ASSERT_EQ(text.Runs().size(), 2);
  EXPECT_TRUE(text.Runs()[1].is_input);
  EXPECT_EQ(FinalContent(text, "</s>"), "</s>");
}

}  // namespace
}  // namespace espalier
