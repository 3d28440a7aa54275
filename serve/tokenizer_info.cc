#include "serve/tokenizer_info.h"

#include "base/json.h"
#include "espalier/chat.h"
#include "text/chat/chat_config.h"
#include "text/tokenizer/tokenizer_config.h"

namespace espalier::serve {

std::string TokenizerInfo(const Generator& generator,
                          const std::string& directory) {
  const std::shared_ptr<const Tokenizer> tokenizer = generator.tokenizer();
  if (tokenizer == nullptr) return "";
  json::object info = {
      {"tokenizer_class", nullptr}, {"bos_token", nullptr},
      {"eos_token", nullptr},       {"unk_token", nullptr},
      {"pad_token", nullptr},       {"chat_template", nullptr}};
  const auto file =
      TokenizerConfigFile::Load(directory + "/tokenizer_config.json");
  const json::value* const name =
      file.ok() ? file->Find("tokenizer_class") : nullptr;
  if (name != nullptr && name->is_string()) info["tokenizer_class"] = *name;
  const auto config = ChatConfig::Load(directory, tokenizer.get());
  if (config.ok()) {
    for (const auto& [role, text] : config->special_tokens) info[role] = text;
  }
  const absl::StatusOr<const ChatPrompts*> chat = generator.chat_prompts();
  if (chat.ok()) info["chat_template"] = (*chat)->chat_template().source();
  info["model_max_length"] = generator.description().max_context;
  info["vocab_size"] = tokenizer->vocab_size();
  return WriteJson(info);
}

}  // namespace espalier::serve
