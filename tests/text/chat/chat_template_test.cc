#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "text/chat/chat_config.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier {
namespace {

using ::testing::HasSubstr;
using testing::ScratchDirectory;
using ::testing::StartsWith;
using testing::StatusIs;

constexpr char kTemplate[] =
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>"
    "{% endif %}";

ChatInputs Saying(std::string_view role, std::string_view content) {
  ChatInputs inputs;
  inputs.messages.push_back(json::object{{"role", role}, {"content", content}});
  return inputs;
}

std::string RenderFirst(const ScratchDirectory& directory,
                        const Tokenizer* tokenizer = nullptr) {
  const auto chat = ChatTemplate::Load(directory.path(), tokenizer);
  if (!chat.ok()) return Message(chat.status());
  if (*chat == nullptr) return "no template";
  const auto text = (*chat)->Render(Saying("user", "Hi"));
  return text.ok() ? text->bytes() : Message(text.status());
}

TEST(ChatTemplateTest, AModelWithoutATemplateHasNone) {
  const ScratchDirectory directory;
  EXPECT_EQ(RenderFirst(directory), "no template");
  directory.Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(RenderFirst(directory), "no template");
}

TEST(ChatTemplateTest, TheFileStandsBeforeTheField) {
  const ScratchDirectory directory;
  directory.Write("tokenizer_config.json",
                  R"({"chat_template": "field {{ bos_token }}",
                      "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(RenderFirst(directory), "field <s>");
  directory.Write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(RenderFirst(directory), "file <s>");
}

TEST(ChatTemplateTest, OfSeveralTheDefaultIsTaken) {
  const ScratchDirectory directory;
  directory.Write("tokenizer_config.json", R"({"chat_template": [
      {"name": "tool_use", "template": "tools"},
      {"name": "default", "template": "plain"}]})");
  EXPECT_EQ(RenderFirst(directory), "plain");
}

TEST(ChatTemplateTest, SpecialTokensComeFromEitherFile) {
  const ScratchDirectory directory;
  directory.Write("chat_template.jinja", kTemplate);
  directory.Write("tokenizer_config.json",
                  R"({"eos_token": "</s>", "bos_token": null})");
  directory.Write("special_tokens_map.json",
                  R"({"eos_token": "no", "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(RenderFirst(directory), "<s><|user|>Hi</s><|assistant|>");
}

// A tokenizer.model needs no file beside it.
TEST(ChatTemplateTest, WhatTheFilesDoNotSayTheTokenizerDoes) {
  const auto tokenizer =
      Tokenizer::Load(testing::EnFrDir() + "/tokenizer.model").value();
  const ScratchDirectory directory;
  directory.Write("chat_template.jinja",
                  "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}");
  EXPECT_EQ(RenderFirst(directory), "||");
  const SpecialTokens& special = tokenizer->special_tokens();
  const std::string pad = special.pad ? tokenizer->Piece(*special.pad) : "";
  EXPECT_EQ(RenderFirst(directory, tokenizer.get()), "<s>|</s>|" + pad);
  directory.Write("tokenizer_config.json",
                  R"({"bos_token": null, "eos_token": "<end>"})");
  EXPECT_EQ(RenderFirst(directory, tokenizer.get()), "|<end>|" + pad);
}

TEST(ChatTemplateTest, BothReadersOfAConfigReadWhatTheOtherDoes) {
  const ScratchDirectory directory;
  const std::string path = directory.path("tokenizer_config.json");
  for (const char* token : {R"("<s>")", R"({"content": "<s>"})", "null"}) {
    directory.Write("tokenizer_config.json",
                    Concat(R"({"bos_token": )", token, "}"));
    const auto file = TokenizerConfigFile::Load(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto config = ChatConfig::Load(directory.path(), nullptr);
    ASSERT_TRUE(config.ok()) << config.status();
    const auto bos = TokenizerConfig::Of(*file)->bos_token;
    ASSERT_EQ(config->special_tokens.size(), bos ? 1 : 0);
    if (bos) {
      EXPECT_EQ(config->special_tokens[0].second, *bos);
    }
  }
  for (const char* token : {"7", R"({"content": 7})", R"({"id": 7})", "[]"}) {
    directory.Write("tokenizer_config.json",
                    Concat(R"({"bos_token": )", token, "}"));
    const std::string error =
        Message(ChatConfig::Load(directory.path(), nullptr).status());
    EXPECT_THAT(error, StartsWith(path + ": bos_token must be a string, null"));
    EXPECT_EQ(
        Message(TokenizerConfig::Of(*TokenizerConfigFile::Load(path)).status()),
        error);
  }
  // As large a file as the tokenizer's reader takes.
  directory.Write("tokenizer_config.json",
                  Concat(R"({"chat_template": "x", "more": ")",
                         std::string(20 << 20, 'x'), "\"}"));
  EXPECT_EQ(RenderFirst(directory), "x");
}

TEST(ChatTemplateTest, ErrorsNameFileAndField) {
  const ScratchDirectory directory;
  const std::string config = directory.path("tokenizer_config.json");
  const auto error = [&](const std::string& text) {
    directory.Write("tokenizer_config.json", text);
    return RenderFirst(directory);
  };
  EXPECT_THAT(error("{"), StartsWith(config + ": "));
  EXPECT_EQ(error("[]"), config + " must hold an object, got []");
  EXPECT_EQ(error(R"({"chat_template": 5})"),
            config +
                ": chat_template must be a string, or a list of objects "
                "with \"name\" and \"template\", got 5");
  EXPECT_EQ(error(R"({"chat_template": ["x"]})"),
            config +
                ": chat_template[0] must be an object with \"name\" and "
                "\"template\", got \"x\"");
  EXPECT_EQ(error(R"({"chat_template": [{"template": "x"}]})"),
            config + ": chat_template[0].name must be a string, got nothing");
  EXPECT_EQ(error(R"({"chat_template": [{"name": "rag", "template": "x"}]})"),
            config +
                ": chat_template needs a template named \"default\", has "
                "\"rag\"");
  EXPECT_EQ(error(R"({"chat_template": "{{ x"})"),
            config +
                ": chat_template: line 1, column 1: an expression has no "
                "end \"}}\"");
  EXPECT_EQ(error(R"({"eos_token": 7})"),
            config +
                ": eos_token must be a string, null, or an object with "
                "\"content\", got 7");
  directory.Write("tokenizer_config.json", "{}");
  const std::string file =
      directory.Write("chat_template.jinja", "a\n{% iff %}");
  EXPECT_EQ(RenderFirst(directory), file +
                                        ": line 2, column 4: unknown tag "
                                        "\"iff\"");
  directory.Write("chat_template.jinja",
                  "{{ raise_exception('Only system comes first') }}");
  EXPECT_EQ(RenderFirst(directory),
            file + ": line 1, column 4: Only system comes first");
}

TEST(ChatTemplateTest, UsualRolesAreOfTheTemplateAndContentIsNot) {
  const auto chat = ChatTemplate::Parse(kTemplate, {{"bos_token", "<s>"}});
  ASSERT_TRUE(chat.ok());
  const auto marked = [&](std::string_view role) {
    const auto text = (*chat)->Render(Saying(role, "Hi"));
    std::string inputs;
    for (const jinja::Text::Run& run : text->Runs()) {
      if (!run.is_input) continue;
      inputs += text->bytes().substr(run.begin, run.end - run.begin) + ";";
    }
    return inputs;
  };
  EXPECT_EQ(marked("user"), "Hi;");
  EXPECT_EQ(marked("im_end"), "im_end;Hi;");
}

TEST(ChatTemplateTest, WhatElseATemplateTakesIsPassedOn) {
  const auto chat = ChatTemplate::Parse(
      "{{ tools|length }}{{ documents is none }}{{ enable_thinking }}"
      "{{ add_generation_prompt }}",
      {});
  ASSERT_TRUE(chat.ok());
  ChatInputs inputs = Saying("user", "Hi");
  inputs.tools = json::array{json::object{{"name", "f"}}};
  inputs.more["enable_thinking"] = false;
  inputs.add_generation_prompt = false;
  const auto text = (*chat)->Render(inputs);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->bytes(), "1TrueFalseFalse");
  inputs.more["messages"] = 1;
  EXPECT_THAT((*chat)->Render(inputs),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("more must not set \"messages\"")));
}

}  // namespace
}  // namespace espalier
