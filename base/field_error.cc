#include "base/field_error.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/cord.h"

namespace espalier {
namespace {

// The message with its parts: each between two marks, its kind first.
constexpr char kParts[] = "espalier/field_error";
constexpr char kMark = '\x1f';

enum Kind : char {
  kField = 'f',
  kOption = 'o',
  kNamed = 'n',  // in the words of an interface
  kHintText = 't',
  kHintOption = 'h',
  kSize = 's',
  kMemoryValue = 'v',
  kLimit = 'l',
  kContext = 'c',
  kGot = 'g',
  kOfPrompt = 'p',
  kOfPrompts = 'a',
};

// A part, or the text between two, whose kind is 0.
struct Part {
  char kind = 0;
  std::string_view text;
};

class PartReader {
 public:
  explicit PartReader(std::string_view parts) : rest_(parts) {}

  std::optional<Part> Next() {
    if (rest_.empty()) return std::nullopt;
    if (rest_.front() != kMark) return Part{0, Take(rest_.find(kMark))};
    rest_.remove_prefix(1);
    std::string_view part = Take(rest_.find(kMark));
    if (!rest_.empty()) rest_.remove_prefix(1);
    if (part.empty()) return Part{0, part};
    return Part{part.front(), part.substr(1)};
  }

 private:
  std::string_view Take(size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

std::string Marked(char kind, std::string_view text) {
  return Concat(kMark, kind, text, kMark);
}

int64_t Number(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Returns the text of a part in C++ words.
std::string PlainText(const Part& part) {
  switch (part.kind) {
    case kHintText:
    case kHintOption:
    case kOfPrompt:
    case kOfPrompts:
      return "";
    case kSize:
      return Concat(part.text, " bytes");
    case kGot:
      return Concat(", got ", part.text);
    case 0:
    case kField:
    case kOption:
    case kNamed:
    case kMemoryValue:
    case kLimit:
    case kContext:
      return std::string(part.text);
  }
  return "";
}

std::string PlainText(const std::string& parts) {
  std::string text;
  PartReader reader(parts);
  while (const auto part = reader.Next()) text += PlainText(*part);
  return text;
}

// Returns the part in the given words; marked as it is if they lack one for it.
std::string Reworded(const Part& part, const FieldWords& words) {
  const std::string same =
      part.kind == 0 ? std::string(part.text) : Marked(part.kind, part.text);
  const int64_t unit = words.unit_bytes;
  switch (part.kind) {
    case kField: {
      const auto name = words.field ? words.field(part.text) : std::nullopt;
      return name ? Marked(kNamed, *name) : same;
    }
    case kOption:
      return words.option ? Marked(kNamed, words.option(part.text)) : same;
    case kHintOption:
      return unit == 0 ? same : words.option(part.text);
    case kHintText:
      return unit == 0 ? same : std::string(part.text);
    case kSize:
      if (unit == 0) return same;
      return Concat((Number(part.text) + unit - 1) / unit, " ", words.unit);
    case kMemoryValue:
      return unit == 0 ? same : std::to_string(Number(part.text) / unit);
  }
  return same;
}

std::string Reworded(const std::string& parts, const FieldWords& words) {
  std::string reworded;
  PartReader reader(parts);
  while (const auto part = reader.Next()) reworded += Reworded(*part, words);
  return reworded;
}

bool IsName(char kind) {
  return kind == kField || kind == kOption || kind == kNamed;
}

bool HasParts(const absl::Status& status) {
  return status.GetPayload(kParts).has_value();
}

// Returns the first index of "[3][1]".
std::optional<int64_t> IndexIn(std::string_view element) {
  if (!element.starts_with('[')) return std::nullopt;
  return Number(element.substr(1));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, FieldName part) {
  const size_t size =
      std::min(part.field.find_first_of("[ "), part.field.size());
  return out << Marked(kField, part.field.substr(0, size))
             << part.field.substr(size);
}
std::ostream& operator<<(std::ostream& out, Prose part) {
  bool is_name = false;
  for (std::string_view rest = part.text; !rest.empty(); is_name = !is_name) {
    const std::string_view piece = rest.substr(0, rest.find('`'));
    out << (is_name ? Marked(kField, piece) : std::string(piece));
    rest.remove_prefix(std::min(piece.size() + 1, rest.size()));
  }
  return out;
}
std::ostream& operator<<(std::ostream& out, OptionName part) {
  return out << Marked(kOption, part.field);
}
std::ostream& operator<<(std::ostream& out, MemorySize part) {
  return out << Marked(kSize, std::to_string(part.bytes));
}
std::ostream& operator<<(std::ostream& out, MemoryValue part) {
  return out << Marked(kMemoryValue, std::to_string(part.bytes));
}
std::ostream& operator<<(std::ostream& out, OptionHint part) {
  return out << Marked(kHintText, part.before)
             << Marked(kHintOption, part.field)
             << Marked(kHintText, part.after);
}
std::ostream& operator<<(std::ostream& out, const LimitText& part) {
  return out << Marked(kLimit, part.text);
}
std::ostream& operator<<(std::ostream& out, ContextLimit part) {
  return out << Marked(kContext, std::to_string(part.num_tokens));
}
std::ostream& operator<<(std::ostream& out, const GotText& part) {
  return out << Marked(kGot, part.text);
}
std::ostream& operator<<(std::ostream& out, DependsOnPrompt) {
  return out << Marked(kOfPrompt, "");
}

std::ostream& operator<<(std::ostream& out, DependsOnPrompts) {
  return out << Marked(kOfPrompts, "");
}

absl::Status FieldErrorOfParts(absl::StatusCode code,
                               const std::string& parts) {
  absl::Status error = MakeError(code, PlainText(parts));
  error.SetPayload(kParts, absl::Cord(parts));
  return error;
}

std::string PartsOf(const absl::Status& error) {
  const auto parts = error.GetPayload(kParts);
  return parts.has_value() ? std::string(*parts) : Message(error);
}

absl::Status WithParts(const absl::Status& error, const std::string& parts) {
  absl::Status same = FieldErrorOfParts(error.code(), parts);
  error.ForEachPayload([&](absl::string_view name, const absl::Cord& payload) {
    if (!same.GetPayload(name)) same.SetPayload(name, payload);
  });
  return same;
}

absl::Status AnnotateField(const absl::Status& status, std::string_view field) {
  if (status.ok()) return status;
  return WithParts(status,
                   MessageParts(FieldName{field}, ": ", PartsOf(status)));
}

absl::Status AnnotateOption(const absl::Status& status,
                            std::string_view field) {
  if (status.ok()) return status;
  return WithParts(status,
                   MessageParts(OptionName{field}, ": ", PartsOf(status)));
}

std::optional<FieldError> FieldErrorOf(const absl::Status& error) {
  if (!HasParts(error)) return std::nullopt;
  const std::string parts = PartsOf(error);
  FieldError found;
  PartReader reader(parts);
  bool is_first = true;
  while (const auto part = reader.Next()) {
    if (std::exchange(is_first, false) && IsName(part->kind)) {
      found.field = found.path = part->text;
      continue;
    }
    if (part->kind == kGot) found.value = part->text;
    if (part->kind == kLimit && found.limit.empty()) found.limit = part->text;
    found.exceeds_context |= part->kind == kContext;
    found.depends_on_prompt |= part->kind == kOfPrompt;
    found.depends_on_all_prompts |= part->kind == kOfPrompts;
    if (found.value.empty()) found.problem += PlainText(*part);
  }
  if (!found.field.empty()) {
    found.index = IndexIn(found.problem);
    size_t end = std::min(found.problem.find(' '), found.problem.size());
    if (end > 0 && found.problem[end - 1] == ':') --end;
    found.path += found.problem.substr(0, end);
    if (found.path.ends_with(':')) found.path.pop_back();
    found.problem.erase(0, end);
  }
  if (found.problem.starts_with(' ')) found.problem.erase(0, 1);
  return found;
}

bool NamesField(const absl::Status& error, std::string_view field) {
  const std::string parts = HasParts(error) ? PartsOf(error) : "";
  PartReader reader(parts);
  while (const auto part = reader.Next()) {
    if (part->kind != kField || !part->text.starts_with(field)) continue;
    const std::string_view rest = part->text.substr(field.size());
    if (rest.empty() || rest.starts_with('.')) return true;
  }
  return false;
}

absl::Status WithField(const absl::Status& error, std::string_view field) {
  const std::string parts = PartsOf(error);
  const std::string rest = parts.substr(parts.find(kMark, 1) + 1);
  const size_t size = std::min(field.find('['), field.size());
  return WithParts(error, Concat(Marked(kNamed, field.substr(0, size)),
                                 field.substr(size), rest));
}

absl::Status InWordsOf(const FieldWords& words, const absl::Status& error) {
  if (error.ok() || !HasParts(error)) return error;
  return WithParts(error, Reworded(PartsOf(error), words));
}

std::string TextInWordsOf(const FieldWords& words, const std::string& parts) {
  return PlainText(Reworded(parts, words));
}

}  // namespace espalier
