// FieldError: an error about a field as data. A check says which field is
// wrong, what its value must be and what it was; the text of the error is
// written for each interface, which has names of its own for the fields: the
// field max_new_tokens is --max-new-tokens on the command line and max_tokens
// in a call of a server.
//
//   return InvalidField("`num_beam_groups` must be at most ", Limit(8),
//                       " (`num_beams`)", Got(12));
//
//   num_beam_groups must be at most 8 (num_beams), got 12
//   InWordsOf(words, error)
//     ->  --num-beam-groups must be at most 8 (--num-beams), got 12
//
// The message of the status has the C++ names. Its payload has the parts, which
// FieldErrorOf() reads and InWordsOf() writes again.
//
// Thread safety: values; functions without state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"

namespace espalier {

// Parts of a message.

// A field of a request, in error texts under the interface's name. What
// follows its name, as in "bad_words_ids[3]", is text.
struct FieldName {
  std::string_view field;
};
// Text with names of fields in backquotes: "must divide `num_beams`". Literals
// among the parts of an error are Prose.
struct Prose {
  constexpr Prose(const char* literal) : text(literal) {}
  // Takes parts that are joined already.
  explicit constexpr Prose(std::string_view parts) : text(parts) {}

  std::string_view text;
};
// A field of an options struct, such as GeneratorOptions.
struct OptionName {
  std::string_view field;
};
// Memory that is needed, "98304 bytes"; rounded up in larger units.
struct MemorySize {
  int64_t bytes = 0;
};
// The value of an option that sets a memory size; rounded down.
struct MemoryValue {
  int64_t bytes = 0;
};
// A hint at the option that helps, shown only where the interface has options.
struct OptionHint {
  std::string_view before;
  std::string_view field;
  std::string_view after;
};
// The bound that the value violates.
struct LimitText {
  std::string text;
};
template <typename T>
LimitText Limit(const T& limit) {
  return {Concat(limit)};
}
// The length of a context that the request exceeds.
struct ContextLimit {
  int64_t num_tokens = 0;
};
// The value of the field: ", got 12".
struct GotText {
  std::string text;
};
template <typename... Parts>
GotText Got(const Parts&... value) {
  return {Concat(value...)};
}
// No text: the error depends on the request's prompt, such as its length.
struct DependsOnPrompt {};
// No text: the error is about all prompts of a call, not about one.
struct DependsOnPrompts {};

std::ostream& operator<<(std::ostream& out, FieldName part);
std::ostream& operator<<(std::ostream& out, Prose part);
std::ostream& operator<<(std::ostream& out, OptionName part);
std::ostream& operator<<(std::ostream& out, MemorySize part);
std::ostream& operator<<(std::ostream& out, MemoryValue part);
std::ostream& operator<<(std::ostream& out, OptionHint part);
std::ostream& operator<<(std::ostream& out, const LimitText& part);
std::ostream& operator<<(std::ostream& out, ContextLimit part);
std::ostream& operator<<(std::ostream& out, const GotText& part);
std::ostream& operator<<(std::ostream& out, DependsOnPrompt part);
std::ostream& operator<<(std::ostream& out, DependsOnPrompts part);

inline Prose PartOf(const char* literal) { return literal; }
template <typename T>
requires(!std::is_convertible_v<const T&, const char*>) const T& PartOf(
    const T& part) {
  return part;
}

// Returns the parts as one text, which is a part itself.
template <typename... Parts>
std::string MessageParts(const Parts&... parts) {
  return Concat(PartOf(parts)...);
}

// Returns an error of these parts.
absl::Status FieldErrorOfParts(absl::StatusCode code, const std::string& parts);
template <typename... Parts>
absl::Status MakeFieldError(absl::StatusCode code, const Parts&... parts) {
  return FieldErrorOfParts(code, MessageParts(parts...));
}
template <typename... Parts>
absl::Status InvalidField(const Parts&... parts) {
  return MakeFieldError(absl::StatusCode::kInvalidArgument, parts...);
}

// Returns the parts of an error, to make another of; its message if it has
// none.
std::string PartsOf(const absl::Status& error);

// Returns the error with other parts; it stays permanent if it was.
absl::Status WithParts(const absl::Status& error, const std::string& parts);
// Returns the error with these parts after its own.
template <typename... Parts>
absl::Status AppendParts(const absl::Status& error, const Parts&... parts) {
  return WithParts(error, MessageParts(PartsOf(error), parts...));
}

// Returns Annotate(status, field), with `field` as a request's field, and the
// parts of the error.
absl::Status AnnotateField(const absl::Status& status, std::string_view field);
// Returns it with `field` as an option.
absl::Status AnnotateOption(const absl::Status& status, std::string_view field);

// The data of an error.
struct FieldError {
  std::string field;             // that is wrong; empty: none by itself
  std::string path;              // the element of it: "bad_words_ids[3]"
  std::optional<int64_t> index;  // the element's, 3
  std::string problem;           // text between path and value
  std::string value;             // as shown; empty: none
  std::string limit;             // empty: none
  bool exceeds_context = false;  // has a ContextLimit
  bool depends_on_prompt = false;
  bool depends_on_all_prompts = false;
};
// Nullopt for an error without parts.
std::optional<FieldError> FieldErrorOf(const absl::Status& error);

// True if the error names the field, or a member of it ("constraint.regex" of
// "constraint"), anywhere.
bool NamesField(const absl::Status& error, std::string_view field);

// Returns the error with `path` in place of the name of its field, whatever
// follows the name.
// REQUIRES: FieldErrorOf(error) has a field.
absl::Status WithField(const absl::Status& error, std::string_view field);

// Names and units of an interface.
struct FieldWords {
  // Returns the name of a request's field; nullopt if it has no other.
  std::function<std::optional<std::string>(std::string_view field)> field = {};
  // Returns the name of an option.
  std::function<std::string(std::string_view field)> option = {};
  // Unit of memory sizes; 0: they stay bytes, and hints are not shown.
  int64_t unit_bytes = 0;
  std::string_view unit = "bytes";
};

// Returns the error in the given words; unchanged if it has no parts. What they
// have no names for stays as it is, for the words of another interface.
absl::Status InWordsOf(const FieldWords& words, const absl::Status& error);

// Returns the text of parts in the given words.
std::string TextInWordsOf(const FieldWords& words, const std::string& parts);

}  // namespace espalier
