// ObjectFields: the known members of an object, and the names of unknown ones;
// the last of duplicate keys counts. Its size is bounded, regardless of the
// number of members.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_scan.h"
#include "openai/call_fields.h"

namespace espalier::openai {

// True if the name is an input of some route or of another program.
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

  // Returns the fields in the order of their first occurrence, without null
  // ones.
  std::vector<Field> Take();

  // The first few unknown names.
  std::span<const std::string> unknown() const { return unknown_; }
  // Number of further unknown names; duplicates may count again.
  size_t num_more_unknown() const { return num_more_unknown_; }

  // Returns the message for unknown()[i]. Only the first few have spelling
  // suggestions, which are slow to compute.
  std::string AboutUnknown(size_t i) const;

 private:
  void AddUnknown(std::string key);

  Scope scope_;
  std::vector<Field> fields_;
  // Index in fields_ by field number, or -1.
  std::vector<int> place_of_;
  std::vector<std::string> unknown_;
  size_t num_more_unknown_ = 0;
};

}  // namespace espalier::openai
