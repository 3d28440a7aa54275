#include "text/jinja/arguments.h"

#include <algorithm>

#include "base/wording.h"
#include "text/jinja/error.h"

namespace espalier::jinja {

ArgumentReader::ArgumentReader(
    std::string_view function, const Arguments& arguments,
    std::initializer_list<std::string_view> parameters, size_t num_required)
    : function_(function),
      parameters_(parameters),
      values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters_.size()) {
    Fail(function, "() takes ",
         Pluralize(static_cast<int64_t>(parameters_.size()), "argument"),
         " at most, got ", arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found =
        std::ranges::find(parameters_, std::string_view(name.bytes()));
    if (found == parameters_.end()) {
      Fail(function, "() has no parameter \"", name.bytes(), "\"");
    }
    const Value*& place = values_[found - parameters_.begin()];
    if (place != nullptr) Fail(function, "() got \"", name.bytes(), "\" twice");
    place = &value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (values_[i] == nullptr) {
      Fail(function, "() lacks its argument \"", parameters_[i], "\"");
    }
  }
}

bool ArgumentReader::BoolOr(size_t i, bool value) const {
  return Has(i) ? IsTrue(*values_[i]) : value;
}

int64_t ArgumentReader::IntOr(size_t i, int64_t value) const {
  if (!Has(i) || values_[i]->is(Kind::kNone)) return value;
  if (!values_[i]->is_integer()) {
    Fail(function_, "() needs an integer for \"", parameters_[i], "\", got ",
         TypeName(*values_[i]));
  }
  return values_[i]->integer();
}

const Text& StringArgument(const Value& value, std::string_view function) {
  if (value.is(Kind::kUndefined)) throw TemplateError(value.why());
  if (!value.is(Kind::kString)) {
    Fail(function, "() needs a string, got ", TypeName(value));
  }
  return value.text();
}

}  // namespace espalier::jinja
