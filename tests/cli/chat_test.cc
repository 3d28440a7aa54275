// espalier generate --chat: the model's chat template makes the prompts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// A chat template and a prompt template with the same prompt.
constexpr char kChatTemplate[] =
    "{{ bos_token }}{{ messages[-1].content }}<fr>";
constexpr char kPromptTemplate[] = R"({"default": "plain", "templates": [
    {"name": "plain", "prompt": ["<s>", {"text": true}, "<fr>"]}]})";

// The translator with a chat template.
class ChatTest : public ::testing::Test {
 protected:
  ChatTest() {
    for (const auto& file :
         std::filesystem::directory_iterator(ModelDirectory("en-fr"))) {
      std::filesystem::create_symlink(
          file.path(), model_.path(file.path().filename().string()));
    }
    model_.Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
    model_.Write("chat_template.jinja", kChatTemplate);
    model_.Write("prompt_template.json", kPromptTemplate);
  }

  ProgramRun Generate(std::vector<std::string> args) const {
    args.insert(args.begin(), {"generate", "-m", model_.path()});
    return RunEspalier(args);
  }

  const ScratchDirectory model_;
};

TEST_F(ChatTest, ATemplateLikeTheModelsPromptGivesTheSameResults) {
  const ProgramRun chat = Generate({"--chat", "It rains.", "I am hungry."});
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_EQ(chat.out, Generate({"It rains.", "I am hungry."}).out);
}

TEST_F(ChatTest, MessagesOfARequestAreAConversation) {
  model_.Write("chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{{ m.content }}"
               "{{ ' ' if not loop.last }}{% endfor %}<fr>");
  const ProgramRun run = RunEspalier(
      {"batch", "-m", model_.path()},
      R"({"messages": [{"role": "system", "content": "It rains."}, )"
      R"({"role": "user", "content": "I am hungry."}]})"
      "\n"
      R"({"prompt": "It rains. I am hungry."})"
      "\n");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const std::vector<json::value> answers = ParseLines(run.out);
  EXPECT_EQ(answers.at(0).at("hypotheses"), answers.at(1).at("hypotheses"));
  EXPECT_EQ(answers.at(0).at("usage").at("prompt_tokens"),
            answers.at(1).at("usage").at("prompt_tokens"));
}

// The model continues the last message instead of answering it.
TEST_F(ChatTest, ALastMessageMayBeContinued) {
  model_.Write("chat_template.jinja",
               "{{ bos_token }}<en>{% for m in messages %}{{ m.content }}<fr>"
               "{% endfor %}");
  const std::string user =
      R"({"role": "user", "content": "Where is the station?"})";
  const auto line = [&](const std::string& last, const std::string& more) {
    return "{\"messages\": [" + user + ", " + last + "]" + more +
           ", \"params\": {\"num_beams\": 3}}\n";
  };
  const std::string content = R"("role": "assistant", "content": "Où se")";
  const ProgramRun run = RunEspalier(
      {"batch", "-m", model_.path()},
      line("{" + content + "}", R"(, "continue_final_message": true)") +
          line("{" + content + R"(, "prefix": true})", "") +
          R"({"messages": [)" + user +
          R"(], "params": {"num_beams": 3, "decoder_prompt": "Où se"}})" +
          "\n" + line("{" + content + "}", R"(, "continue_final_message": 1)"));
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  const std::vector<json::value> answers = ParseLines(run.out);
  const json::value& first = answers.at(0).at("hypotheses");
  EXPECT_EQ(first.at(0).at("text"), " trouve la gare ?");
  EXPECT_EQ(answers.at(1).at("hypotheses"), first);
  // Its tokens may be others: a text is encoded by itself.
  EXPECT_EQ(answers.at(2).at("hypotheses").at(0).at("text"),
            first.at(0).at("text"));
  EXPECT_THAT(std::string(answers.at(3).at("error").at("message").as_string()),
              HasSubstr("continue_final_message"));
}

TEST_F(ChatTest, MessagesThatMakeNoPromptFailTheirLineAlone) {
  constexpr char kLines[] =
      R"({"messages": [{"role": "user", "content": "It rains."}]})"
      "\n"
      R"({"prompt": "It rains."})"
      "\n";
  const auto messages = [&] {
    const ProgramRun run = RunEspalier({"batch", "-m", model_.path()}, kLines);
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    const std::vector<json::value> answers = ParseLines(run.out);
    EXPECT_TRUE(answers.at(1).as_object().contains("hypotheses"));
    return std::string(answers.at(0).at("error").at("message").as_string());
  };
  model_.Write("chat_template.jinja", "{{ raise_exception('not so') }}");
  EXPECT_THAT(messages(), HasSubstr("not so"));
  model_.Write("chat_template.jinja", "{{ messages");
  EXPECT_THAT(messages(), HasSubstr("chat_template.jinja: line 1"));
  std::filesystem::remove(model_.path("chat_template.jinja"));
  EXPECT_EQ(messages(),
            "messages needs a chat template, and " + model_.path() +
                " has neither chat_template.jinja nor chat_template in "
                "tokenizer_config.json");
}

TEST_F(ChatTest, TheSystemsWordsComeFirst) {
  model_.Write("chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{{ m.content }}"
               "{{ ' ' if not loop.last }}{% endfor %}<fr>");
  const ProgramRun chat =
      Generate({"--chat", "--system", "It rains.", "I am hungry."});
  EXPECT_EQ(chat.exit_code, 0) << chat.err;
  const std::string both = Generate({"It rains. I am hungry."}).out;
  EXPECT_EQ(chat.out.substr(chat.out.find('\n')), both.substr(both.find('\n')));
}

TEST_F(ChatTest, WhatAUserSaysIsNoSpecialToken) {
  const ProgramRun quoted = Generate({"--chat", "</s>", "a </s> b"});
  EXPECT_EQ(quoted.exit_code, 0) << quoted.err;
  // As a prompt template takes it: as text.
  EXPECT_EQ(quoted.out, Generate({"</s>", "a </s> b"}).out);
}

TEST_F(ChatTest, WhatCannotBeDoneIsSaidOnce) {
  const auto error = [&](std::vector<std::string> args) {
    args.push_back("It rains.");
    const ProgramRun run = Generate(args);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_EQ(error({"--system", "Be brief."}),
            "espalier: --system needs --chat\n");
  EXPECT_EQ(error({"--chat", "--template", "plain"}),
            "espalier: --chat and --template, --from or --to exclude each "
            "other\n");
  EXPECT_THAT(error({"--chat", "--system", ""}), HasSubstr("--system"));
  model_.Write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(error({"--chat"}),
              HasSubstr(model_.path() + "/chat_template.jinja: line 1, column "
                                        "7: expected an expression"));
  model_.Write("chat_template.jinja", "{{ raise_exception('No system') }}");
  EXPECT_THAT(error({"--chat"}), HasSubstr("No system"));
  model_.Write("chat_template.jinja", "");
  EXPECT_THAT(error({"--chat"}), HasSubstr("empty prompt"));
  model_.Write("chat_template.jinja",
               "{% for i in range(99999) %}"
               "{% for j in range(99999) %}{% endfor %}"
               "{% endfor %}");
  EXPECT_THAT(error({"--chat"}), HasSubstr("takes too many steps"));
  std::filesystem::remove(model_.path("chat_template.jinja"));
  EXPECT_THAT(error({"--chat"}),
              HasSubstr("--chat needs a chat template, and " + model_.path() +
                        " has neither chat_template.jinja nor chat_template "
                        "in tokenizer_config.json"));
  std::filesystem::remove(model_.path("tokenizer.model"));
  EXPECT_THAT(error({"--chat"}), HasSubstr("--chat needs a tokenizer"));
}

TEST_F(ChatTest, TheContextIsLongEnoughOrTheTextIsRefused) {
  std::string words;
  for (int i = 0; i < 2000; ++i) words += "station ";
  const ProgramRun run = Generate({"--chat", words});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("the model's context of"));
}

}  // namespace
}  // namespace espalier::testing
