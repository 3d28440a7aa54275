// ObjectFields: the members of an object that a scope knows, and the names of
// those that it does not; of a key given twice the last counts. However many
// members there are, it stays small.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_scan.h"
#include "openai/call_fields.h"

namespace espalier::openai {

// Whether it is what a call of some route, or of another program, goes on from.
bool IsInput(std::string_view name);

class ObjectFields {
 public:
  struct Field {
    KnownField field;
    std::string_view name;  // belongs to the table of fields
    JsonText value;
  };

  explicit ObjectFields(Scope scope) : scope_(scope) {}

  // Keys are as they stand in the text, in quotes.
  void Add(std::string_view quoted_key, const JsonText& value);

  // In the order of their first places; null ones are left out.
  std::vector<Field> Take();

  // The first few.
  std::span<const std::string> unknown() const { return unknown_; }
  // The rest of them, some counted more than once.
  size_t num_more_unknown() const { return num_more_unknown_; }

  // What is said of unknown()[i]; of the first few also what may be meant,
  // since that takes a while.
  std::string AboutUnknown(size_t i) const;

 private:
  void AddUnknown(std::string key);

  Scope scope_;
  std::vector<Field> fields_;
  std::vector<int> place_of_;  // by number; in fields_, or -1
  std::vector<std::string> unknown_;
  size_t num_more_unknown_ = 0;
};

}  // namespace espalier::openai
