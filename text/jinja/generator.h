// MakeGenerator: the result of filters that yield elements one by one. It is
// true, has no length, and is empty once it is read, like a Python generator.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace espalier::jinja {

// `name` lives as long as the program.
inline Value MakeGenerator(std::string_view name, std::vector<Value> items) {
  auto generator = std::make_shared<Sequence>();
  generator->form = SequenceForm::kGenerator;
  generator->name = name;
  generator->items = std::move(items);
  return Value::Of(std::move(generator));
}

}  // namespace espalier::jinja
