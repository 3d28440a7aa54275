#include "examples/cli/options/option_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/rename_word.h"
#include "base/status.h"
#include "request/json/param_fields.h"

namespace espalier::cli {
namespace {

bool IsNameCharacter(char c) { return absl::ascii_isalnum(c) || c == '_'; }

}  // namespace

std::string Flag(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return (flag.size() == 1 ? "-" : "--") + flag;
}

std::string OptionNames::Of(std::string_view field) const {
  const auto typed = typed_.find(field);
  return typed == typed_.end() ? Flag(field) : typed->second;
}

absl::Status OptionNames::InOptions(const absl::Status& error) const {
  if (error.ok()) return error;
  return MakeError(error.code(), InOptions(ToStd(error.message())));
}

std::string OptionNames::InOptions(std::string_view message) const {
  std::string text;
  while (!message.empty()) {
    const std::string_view word = message.substr(0, FirstPartLength(message));
    // Skips parts of a formula, a path or another name.
    const bool stands_alone =
        text.empty() || text.back() == ' ' || text.back() == '(';
    const ParamField* const field =
        stands_alone ? FindParamField(word) : nullptr;
    const bool is_field = (field != nullptr && field->name == word) ||
                          (stands_alone && word == "split_sentences");
    text += is_field ? Of(word) : std::string(word);
    message.remove_prefix(word.size());
    // An option has no fields: "--speculate: method" of "speculate.method".
    const bool has_part = is_field && message.size() > 1 && message[0] == '.' &&
                          IsNameCharacter(message[1]);
    if (!has_part) continue;
    text += ": ";
    message.remove_prefix(1);
  }
  return text;
}

}  // namespace espalier::cli
