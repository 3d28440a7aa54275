// Conversations in templates of models: special tokens of a prompt are those
// that the template writes, whatever is said.
#include "text/chat/chat_template.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/tokenizer_laws.h"
#include "tests/source_tree.h"
#include "text/chat/chat_prompt.h"

namespace espalier::fuzz {

namespace {

// A model: its template, its tokenizer and the names of special tokens.
struct ChatModel {
  explicit ChatModel(const std::string& name)
      : tokenizer(LoadDataTokenizer("chat/" + name + ".json")),
        names(*tokenizer) {
    const auto source =
        ReadFile(SourcePath("tests/data/chat/" + name + ".jinja"), 1 << 20);
    CHECK(source.ok()) << source.status().ToString();
    auto made = ChatTemplate::Parse(
        *source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    CHECK(made.ok()) << made.status().ToString();
    chat = *std::move(made);
  }

  std::unique_ptr<Tokenizer> tokenizer;
  SpecialTokenNames names;
  std::unique_ptr<ChatTemplate> chat;
};

const ChatModel& ChatModelOf(size_t choice) {
  static const auto* const models = [] {
    auto* const loaded = new std::vector<std::unique_ptr<ChatModel>>;
    for (const char* const name : {"chatml", "gemma", "llama3", "mistral"}) {
      loaded->push_back(std::make_unique<ChatModel>(name));
    }
    return loaded;
  }();
  return *(*models)[choice % models->size()];
}

// {"messages", "tools", "documents", "add_generation_prompt"}, the rest for the
// template; a list is messages.
ChatInputs ChatInputsOf(const json::value& value) {
  ChatInputs inputs;
  inputs.now = absl::UnixEpoch();
  if (value.is_array()) inputs.messages = value.get_array();
  if (!value.is_object()) return inputs;
  for (const auto& [key, field] : value.get_object()) {
    if (key == "messages" && field.is_array()) {
      inputs.messages = field.get_array();
    } else if (key == "tools") {
      inputs.tools = field;
    } else if (key == "documents") {
      inputs.documents = field;
    } else if (key == "add_generation_prompt" && field.is_bool()) {
      inputs.add_generation_prompt = field.get_bool();
    } else {
      inputs.more[key] = field;
    }
  }
  return inputs;
}

FUZZ_TARGET(chat_template, input) {
  const ChatModel& model = ChatModelOf(TakeChoice(&input));
  const auto value = ParseJson(input);
  if (!value.ok()) return;
  const auto text = model.chat->Render(ChatInputsOf(*value));
  if (!text.ok()) {
    if (text.status().code() == absl::StatusCode::kResourceExhausted) return;
    CheckBadInput(text.status());
    return;
  }
  CHECK(IsUtf8(text->bytes())) << text->bytes();
  const auto tokens = EncodeChat(*text, *model.tokenizer, model.names);
  if (!tokens.ok()) {
    CheckBadInput(tokens.status());
    return;
  }
  const auto num_special = std::count_if(
      tokens->begin(), tokens->end(),
      [&](TokenId token) { return model.tokenizer->is_special(token); });
  CHECK_EQ(num_special, std::ssize(model.names.FindInTemplate(*text)))
      << text->bytes();
}

}  // namespace

}  // namespace espalier::fuzz
