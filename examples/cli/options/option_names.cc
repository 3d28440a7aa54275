#include "examples/cli/options/option_names.h"

#include <algorithm>

#include "base/status.h"
#include "base/wording.h"
#include "request/param_fields.h"

namespace espalier::cli {
std::string Flag(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return (flag.size() == 1 ? "-" : "--") + flag;
}

void OptionNames::AddTyped(std::string_view key, std::string_view option) {
  std::vector<std::string>& names = typed_[std::string(key)];
  std::erase(names, option);
  names.emplace_back(option);
}

std::string OptionNames::Of(std::string_view key) const {
  const auto typed = typed_.find(key);
  return typed == typed_.end() ? Flag(key) : typed->second.back();
}

std::string OptionNames::Given(std::string_view key) const {
  const std::vector<std::string>& names = typed_.find(key)->second;
  return Concat(JoinWithAnd(names),
                names.size() == 1 ? " is given" : ", one option, are given");
}

FieldWords OptionNames::words() const {
  return {
      .field = [this](std::string_view field) -> std::optional<std::string> {
        const std::string_view name = field.substr(0, field.find('.'));
        const ParamField* const param = FindParamField(name);
        const bool is_option = (param != nullptr && param->name == name) ||
                               name == "split_sentences";
        if (!is_option) return std::nullopt;
        // --regex is a field by itself, "constraint.regex".
        if (name == field || IsTyped(field)) return Of(field);
        // An option has no fields: "--speculate: method" of "speculate.method".
        return Concat(Of(name), ": ", field.substr(name.size() + 1));
      }};
}

absl::Status OptionNames::InOptions(const absl::Status& error) const {
  return InWordsOf(words(), error);
}

}  // namespace espalier::cli
