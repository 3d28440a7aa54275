// Checks and splits JSON text without building values. Values are views into
// the text, so that a list of a million numbers costs one pass over its bytes,
// and the caller can read the numbers straight into a typed array.
//
//   ASSIGN_OR_RETURN(const JsonText line, ScanJson(text, 1, on_member));
//
// ScanJson accepts the same texts as ParseJson (base/json.h), with the same
// error messages; only exponents of more than eight digits are always rejected,
// of which ParseJson accepts some. It takes about a nanosecond per byte, and
// does not allocate.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/json.h"

namespace espalier {

// The text of a value.
struct JsonText {
  std::string_view text;    // without surrounding spaces
  int64_t num_values = 0;   // values inside, at any depth
  int64_t max_members = 0;  // per object, for this value and those inside

  bool is_array() const { return text.front() == '['; }
  bool is_object() const { return text.front() == '{'; }
  bool is_string() const { return text.front() == '"'; }
  bool is_null() const { return text.front() == 'n'; }
  bool is_number() const {
    return text.front() == '-' || (text.front() >= '0' && text.front() <= '9');
  }
};

// Called for a member of an object. Members of an inner object come before the
// member whose value that object is.
using OnJsonMember = absl::FunctionRef<void(int depth, std::string_view key,
                                            const JsonText& value)>;

// Checks that `text` is one value. Calls `on_member` for the members of objects
// up to depth `max_depth`; the outermost value has depth 1. Keys are raw text,
// in quotes.
// Errors: kInvalidArgument naming the fault and its byte; of what nests too
// deep in a member up to `max_depth` a FieldError with its key, if letters,
// digits and "_".
absl::StatusOr<JsonText> ScanJson(std::string_view text, int max_depth,
                                  OnJsonMember on_member);

// Returns the value at the beginning of `text`.
// REQUIRES: ScanJson accepted it.
std::string_view FirstValue(std::string_view text);

// Iterates over the items of a list or the members of an object:
//   for (JsonItems items(list.text); items.Next();) Use(items.value());
// REQUIRES: `text` is a list or an object, and ScanJson accepted it.
class JsonItems {
 public:
  explicit JsonItems(std::string_view text);

  // Advances to the first, then to the next item; false at the end.
  bool Next();

  // Key of a member, in quotes; objects only.
  std::string_view key() const { return key_; }
  std::string_view value() const { return value_; }

 private:
  // Returns the next item; empty at the end.
  std::string_view TakeNext();

  std::string_view rest_;
  const bool is_object_;
  std::string_view key_;
  std::string_view value_;
};

// Parses `text`.
// REQUIRES: ScanJson accepted it.
json::value ParseChecked(std::string_view text);

// Returns the content of `text`, a string in quotes.
// REQUIRES: ScanJson accepted it.
std::string Unquoted(std::string_view text);

}  // namespace espalier
