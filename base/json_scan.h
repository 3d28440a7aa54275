// A JSON text, checked and taken apart without making values of it: what a
// value holds is found by its place in the text, so that a list of a million
// numbers costs one pass over its bytes, and a caller that needs the numbers
// reads them straight into an array of their type.
//
//   ASSIGN_OR_RETURN(const JsonText line, ScanJson(text, 1, on_member));
//
// What passes is what ParseJson (base/json.h) takes, and is refused in the
// same words, but that exponents of more than eight digits never pass, of which
// ParseJson takes some. Takes about a nanosecond a byte, and no memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// A value, as its text says it.
struct JsonText {
  std::string_view text;    // no spaces around it
  int64_t num_values = 0;   // in it, lists in lists and what they hold included
  int64_t max_members = 0;  // of one object in it, or of itself

  bool is_array() const { return text.front() == '['; }
  bool is_object() const { return text.front() == '{'; }
  bool is_string() const { return text.front() == '"'; }
  bool is_null() const { return text.front() == 'n'; }
  bool is_number() const {
    return text.front() == '-' || (text.front() >= '0' && text.front() <= '9');
  }
};

// A member of an object. Objects within the outermost value come before the
// member that they are the value of.
using OnJsonMember = absl::FunctionRef<void(int depth, std::string_view key,
                                            const JsonText& value)>;

// Checks `text`, one value, and tells `on_member` the members of objects that
// are nested no deeper than `max_depth`: 1 is the outermost value. Keys are as
// they stand there, in quotes.
// Errors: kInvalidArgument naming what is wrong and at which byte.
absl::StatusOr<JsonText> ScanJson(std::string_view text, int max_depth,
                                  OnJsonMember on_member);

// The value that `text` begins with.
// REQUIRES: ScanJson found it right.
std::string_view FirstValue(std::string_view text);

// Goes through what a list or an object holds:
//   for (JsonItems items(list.text); items.Next();) Use(items.value());
// REQUIRES: `text` is such a value, and ScanJson found it right.
class JsonItems {
 public:
  explicit JsonItems(std::string_view text);

  // Goes to the first, then to the next; false if there is none.
  bool Next();

  // Of an object: in quotes.
  std::string_view key() const { return key_; }
  std::string_view value() const { return value_; }

 private:
  // Empty at the end.
  std::string_view TakeNext();

  std::string_view rest_;
  const bool is_object_;
  std::string_view key_;
  std::string_view value_;
};

// The value that `text` says.
// REQUIRES: ScanJson found it right.
json::value ParseChecked(std::string_view text);

// What `text`, a string in quotes, says.
// REQUIRES: ScanJson found it right.
std::string Unquoted(std::string_view text);

}  // namespace espalier
