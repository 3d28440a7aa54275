// espalier generate --chat on model directories as families of models have
// them: the model gets the prompt that transformers makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/few_cases.h"
#include "tests/model/tiny_model.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

// A tiny model with the tokenizer, the chat template and the conversations of
// tests/data/chat/NAME.
class ChatModelTest : public ::testing::TestWithParam<const char*> {
 protected:
  ChatModelTest()
      : file_(ParseJson(ReadText(ChatPath(".json"))).value()),
        model_(FilesOf(MakeTinyModel(
            {.vocab_size = VocabSize(), .num_layers = 1, .max_context = 1024},
            /*seed=*/1))) {
    model_.Write("tokenizer.json", WriteJson(file_.at("tokenizer")));
    model_.Write("tokenizer_config.json", WriteJson(file_.at("config")));
    model_.Write("chat_template.jinja", ReadText(ChatPath(".jinja")));
  }

  static std::string ChatPath(const std::string& extension) {
    return SourcePath("tests/data/chat/" + std::string(GetParam()) + extension);
  }

  int VocabSize() const {
    int64_t size = 0;
    const json::value& tokenizer = file_.at("tokenizer");
    for (const auto& piece : tokenizer.at("model").at("vocab").as_object()) {
      size = std::max(size, piece.value().as_int64() + 1);
    }
    for (const json::value& token : tokenizer.at("added_tokens").as_array()) {
      size = std::max(size, token.at("id").as_int64() + 1);
    }
    return static_cast<int>(size);
  }

  // Returns the model's prompt, read from the trace.
  json::array PromptOf(std::vector<std::string> args) const {
    const std::string trace = model_.path("trace.jsonl");
    args.insert(args.begin(), {"generate", "-m", model_.path(), "--chat",
                               "--max-new-tokens", "2", "--trace", trace});
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    for (const json::value& line : ParseLines(ReadText(trace))) {
      const auto* const tokens = line.as_object().if_contains("prompt_tokens");
      if (tokens != nullptr) return tokens->as_array();
    }
    return {};
  }

  const json::value file_;
  const TempDirectory model_;
};

std::string ContentOf(const json::value& message) {
  return std::string(message.at("content").as_string());
}

TEST_P(ChatModelTest, ThePromptIsThatOfTransformers) {
  int num_prompts = 0;
  for (const json::value& chat : file_.at("cases").as_array()) {
    // The program has one message of a user, and one of the system.
    const json::array& messages = chat.at("messages").as_array();
    const bool has_system = messages[0].at("role") == "system";
    const bool is_one = messages.size() == (has_system ? 2 : 1) &&
                        messages.back().at("role") == "user" &&
                        chat.at("tools").is_null();
    if (!is_one || !chat.as_object().contains("tokens")) continue;
    std::vector<std::string> args;
    if (has_system) args = {"--system", ContentOf(messages[0])};
    args.push_back(ContentOf(messages.back()));
    EXPECT_EQ(PromptOf(args), chat.at("tokens").as_array()) << WriteJson(chat);
    if (++num_prompts == Cases(-1, 2)) break;
  }
  EXPECT_GE(num_prompts, Cases(5, 2));
}

INSTANTIATE_TEST_SUITE_P(All, ChatModelTest,
                         ::testing::Values("llama3", "chatml", "mistral",
                                           "gemma"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace espalier::testing
