#include "openai/object_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/spelling.h"
#include "base/status.h"
#include "openai/call_draft.h"
#include "openai/error.h"

namespace espalier::openai {
namespace {

constexpr size_t kMaxUnknown = 16;
constexpr size_t kMaxHints = 4;

// What other systems call a field.
struct OtherName {
  std::string_view theirs;
  std::string_view ours;
};
constexpr OtherName kOtherNames[] = {{"beam_width", "num_beams"},
                                     {"beam_size", "num_beams"},
                                     {"num_hypotheses", "n"}};

// Most keys have no escapes.
std::string_view PlainKey(std::string_view quoted, std::string* storage) {
  const std::string_view inner = quoted.substr(1, quoted.size() - 2);
  if (inner.find('\\') == inner.npos) return inner;
  return *storage = Unquoted(quoted);
}

}  // namespace

void ObjectFields::Add(std::string_view quoted_key, const JsonText& value) {
  std::string storage;
  const std::string_view key = PlainKey(quoted_key, &storage);
  const std::optional<KnownField> field = FindCallField(key, scope_);
  if (!field && IsPassedOver(key, scope_)) return;
  if (!field) return AddUnknown(std::string(key));
  if (place_of_.empty()) place_of_.assign(NumKnownFields(), -1);
  int& place = place_of_[field->number];
  if (place < 0) {
    place = static_cast<int>(fields_.size());
    const std::string_view name = field->call != nullptr ? field->call->name
                                  : field->param->name == key
                                      ? field->param->name
                                      : field->param->alias;
    fields_.push_back({*field, name, value});
  } else {
    fields_[place].value = value;
  }
}

void ObjectFields::AddUnknown(std::string key) {
  if (std::ranges::find(unknown_, key) != unknown_.end()) return;
  if (unknown_.size() == kMaxUnknown) {
    ++num_more_unknown_;
  } else {
    unknown_.push_back(std::move(key));
  }
}

std::vector<ObjectFields::Field> ObjectFields::Take() {
  std::erase_if(fields_,
                [](const Field& field) { return field.value.is_null(); });
  return std::move(fields_);
}

std::string ObjectFields::AboutUnknown(size_t i) const {
  const std::string& name = unknown_[i];
  std::string hint;
  if (scope_ == kInTokens && FindCallField(name, kInSampling)) {
    hint = "; it belongs in sampling_params";
  } else if (scope_ == kInSampling && FindCallField(name, kInTokens)) {
    hint = "; it belongs beside sampling_params";
  } else if (const auto* const other =
                 std::ranges::find(kOtherNames, name, &OtherName::theirs);
             other != std::end(kOtherNames)) {
    hint = Concat("; did you mean ", other->ours, "?");
  } else if (i < kMaxHints) {
    hint = DidYouMean(name, CallFieldNames(scope_));
    if (hint.empty() && scope_ == kInTokenize) {
      hint = DidYouMean(name, CallFieldNames(kInCompletions));
    }
  }
  return Concat("unknown field ", ShownInQuotes(name),
                scope_ == kInSampling ? " in sampling_params" : "", hint);
}

absl::Status WarnOfUnknown(const ObjectFields& fields, CallDraft* draft) {
  for (size_t i = 0; i < fields.unknown().size(); ++i) {
    std::string warning = fields.AboutUnknown(i);
    if (draft->strict) {
      return RefuseField(Shown(fields.unknown()[i]), warning);
    }
    draft->call.warnings.push_back(std::move(warning));
  }
  if (fields.num_more_unknown() > 0) {
    draft->call.warnings.push_back("and more unknown fields");
  }
  return absl::OkStatus();
}

absl::Status MissingField(std::string_view message,
                          std::initializer_list<std::string_view> names,
                          const CallDraft& draft) {
  for (const std::string& warning : draft.call.warnings) {
    for (const std::string_view name : names) {
      if (warning.ends_with(Concat("; did you mean ", name, "?"))) {
        return InvalidArgument(message, "; ", warning);
      }
    }
  }
  return InvalidArgument(message);
}

}  // namespace espalier::openai
