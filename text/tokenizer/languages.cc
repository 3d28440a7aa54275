#include "text/tokenizer/languages.h"

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/spelling.h"
#include "base/status.h"
#include "text/tokenizer/language_names.h"

namespace espalier {
namespace {

constexpr size_t kMaxNameBytes = 100;
constexpr size_t kNumClosest = 3;

// "fra_Latn (French)"
std::string Described(const NaturalLanguage& language) {
  const std::string_view name = EnglishNameOf(language.code);
  if (name.empty()) return language.code;
  return Concat(language.code, " (", name, ")");
}

size_t Distance(std::string_view folded, const NaturalLanguage& language) {
  size_t distance = std::numeric_limits<size_t>::max();
  for (const std::string_view name : LanguageNamesOf(language.code)) {
    distance = std::min(distance, EditDistance(folded, NormalizeName(name)));
  }
  return distance;
}

// The languages, the closest to `name` first and these with their names.
std::string ListFrom(std::string_view name,
                     const std::vector<NaturalLanguage>& languages) {
  std::vector<std::pair<size_t, const NaturalLanguage*>> ranked;
  const std::string folded = NormalizeName(name.substr(0, kMaxNameBytes));
  for (const NaturalLanguage& language : languages) {
    ranked.emplace_back(Distance(folded, language), &language);
  }
  std::ranges::stable_sort(ranked, {}, [](const auto& r) { return r.first; });
  std::string list;
  for (size_t i = 0; i < ranked.size(); ++i) {
    if (i > 0) list += ", ";
    list +=
        i < kNumClosest ? Described(*ranked[i].second) : ranked[i].second->code;
  }
  return list;
}

}  // namespace

absl::StatusOr<const NaturalLanguage*> NaturalLanguages::Find(
    std::string_view name) const {
  if (const NaturalLanguage* const exact = WithCode(name)) return exact;
  const std::string folded = NormalizeName(name);
  std::vector<const NaturalLanguage*> meant;
  for (const NaturalLanguage& language : languages_) {
    if (NormalizeName(language.code) == folded) return &language;
    const auto names = LanguageNamesOf(language.code);
    if (std::ranges::any_of(names, [&](std::string_view known) {
          return NormalizeName(known) == folded;
        })) {
      meant.push_back(&language);
    }
  }
  const auto is_name = [&](const NaturalLanguage* language) {
    return NormalizeName(EnglishNameOf(language->code)) == folded;
  };
  // A name means the language itself, "fr", before "fr_CA".
  const auto is_alone = [](const NaturalLanguage* language) {
    return language->code.find('_') == std::string::npos;
  };
  if (meant.size() == 1) return meant[0];
  if (std::ranges::count_if(meant, is_name) == 1) {
    return *std::ranges::find_if(meant, is_name);
  }
  if (std::ranges::count_if(meant, is_alone) == 1) {
    return *std::ranges::find_if(meant, is_alone);
  }
  if (meant.empty()) {
    return NotFound("no language ", ShownInQuotes(name), "; the model has ",
                    ListFrom(name, languages_));
  }
  std::string list;
  for (const NaturalLanguage* language : meant) {
    if (!list.empty()) list += language == meant.back() ? " or " : ", ";
    list += Described(*language);
  }
  return NotFound("the language ", ShownInQuotes(name), " may be ", list);
}

const NaturalLanguage* NaturalLanguages::WithCode(std::string_view code) const {
  const auto found =
      std::ranges::find(languages_, code, &NaturalLanguage::code);
  return found == languages_.end() ? nullptr : &*found;
}

absl::StatusOr<Direction> NaturalLanguages::DefaultOf(
    const LanguageRule& rule) const {
  const NaturalLanguage* const source = WithCode(rule.source);
  if (source == nullptr && !rule.source_in.empty()) {
    return InvalidArgument(
        rule.source_in, ": src_lang must be a language of the vocabulary, got ",
        ShownInQuotes(rule.source));
  }
  return Of(source);
}

Direction NaturalLanguages::Of(const NaturalLanguage* source) const {
  Direction direction = around_;
  if (source == nullptr || !takes_source()) return direction;
  if (mark_ == LanguageMark::kSourceFirst) {
    direction.before_text.push_back(source->token);
  } else {
    direction.after_text.push_back(source->token);
  }
  return direction;
}

Direction NaturalLanguages::Between(const NaturalLanguage* source,
                                    const NaturalLanguage& target) const {
  Direction direction = Of(source);
  if (takes_source()) {
    direction.first_output = target.token;
  } else {
    direction.before_text.push_back(target.token);
  }
  return direction;
}

}  // namespace espalier
