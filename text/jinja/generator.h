// What filters that give one element after the other return: it is true, has no
// length, and is gone once it is read, as a generator of Python.
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
