#include "examples/cli/options/option_names.h"

#include <algorithm>

#include "base/status.h"
#include "request/param_fields.h"

namespace espalier::cli {
std::string Flag(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return (flag.size() == 1 ? "-" : "--") + flag;
}

std::string OptionNames::Of(std::string_view field) const {
  const auto typed = typed_.find(field);
  return typed == typed_.end() ? Flag(field) : typed->second;
}

FieldWords OptionNames::words() const {
  return {
      .field = [this](std::string_view field) -> std::optional<std::string> {
        const std::string_view name = field.substr(0, field.find('.'));
        const ParamField* const param = FindParamField(name);
        const bool is_option = (param != nullptr && param->name == name) ||
                               name == "split_sentences";
        if (!is_option) return std::nullopt;
        // An option has no fields: "--speculate: method" of "speculate.method".
        if (name == field) return Of(name);
        return Concat(Of(name), ": ", field.substr(name.size() + 1));
      }};
}

absl::Status OptionNames::InOptions(const absl::Status& error) const {
  return InWordsOf(words(), error);
}

}  // namespace espalier::cli
