#include "request/bad_words.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/field_error.h"
#include "base/json.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {
namespace {

using TokenIds = std::vector<int64_t>;

std::string WithoutLeadingSpaces(const std::string& word) {
  return word.substr(std::min(word.find_first_not_of(' '), word.size()));
}

absl::StatusOr<TokenIds> Encode(const Tokenizer& tokenizer,
                                const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                   tokenizer.EncodeOutput(text));
  return TokenIds(tokens.begin(), tokens.end());
}

bool EndsIn(const TokenIds& tokens, const TokenIds& ending) {
  return tokens.size() >= ending.size() &&
         std::equal(ending.rbegin(), ending.rend(), tokens.rbegin());
}

// Appends the forms of `word`; none if it has no tokens.
absl::Status AppendForms(const Tokenizer& tokenizer, const std::string& word,
                         std::vector<TokenIds>* forms) {
  ASSIGN_OR_RETURN(TokenIds first, Encode(tokenizer, word));
  if (first.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(TokenIds after_space, Encode(tokenizer, " " + word));
  const bool is_banned = EndsIn(after_space, first);
  forms->push_back(std::move(first));
  if (!is_banned) forms->push_back(std::move(after_space));
  return absl::OkStatus();
}

// The forms of all words.
absl::StatusOr<SharedList<TokenIds>> FormsOf(
    const std::vector<std::string>& words, const Tokenizer& tokenizer) {
  RETURN_IF_ERROR(CheckBadWords(words));
  std::vector<TokenIds> forms;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t num_before = forms.size();
    const absl::Status status =
        AppendForms(tokenizer, WithoutLeadingSpaces(words[i]), &forms);
    if (!status.ok())
      return AnnotateField(status, Concat("bad_words[", i, "]"));
    if (forms.size() > num_before) continue;
    return InvalidField("`bad_words`[", i,
                        "] must have a token in the model's vocabulary",
                        Got(ShownInQuotes(words[i])));
  }
  return SharedList<TokenIds>(std::move(forms));
}

struct JoinedLists {
  SharedList<TokenIds> list;
};

// `ids` and `forms`, one list for all copies of the two.
SharedList<TokenIds> Joined(const SharedList<TokenIds>& ids,
                            const SharedList<TokenIds>& forms) {
  if (ids.empty()) return forms;
  return ids
      .Derived<JoinedLists>({forms.id()},
                            [&] {
                              std::vector<TokenIds> all = ids;
                              all.insert(all.end(), forms.begin(), forms.end());
                              return JoinedLists{std::move(all)};
                            })
      ->list;
}

}  // namespace

absl::Status CheckBadWords(const std::vector<std::string>& words) {
  if (words.size() > kMaxBadWords) {
    return InvalidField("`bad_words` must have at most ", Limit(kMaxBadWords),
                        " words", Got(words.size()));
  }
  size_t num_bytes = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!IsUtf8(word)) {
      return InvalidField("`bad_words`[", i, "] is not UTF-8");
    }
    if (WithoutLeadingSpaces(word).empty()) {
      return InvalidField("`bad_words`[", i, "] must not be ",
                          word.empty() ? "empty" : "spaces alone",
                          Got(ShownInQuotes(word)));
    }
    num_bytes += word.size();
  }
  if (num_bytes <= kMaxBadWordBytes) return absl::OkStatus();
  return InvalidField("`bad_words` must have at most ", Limit(kMaxBadWordBytes),
                      " bytes together", Got(num_bytes));
}

absl::Status ResolveBadWords(const Tokenizer* tokenizer,
                             GenerationParams* params) {
  const SharedList<std::string>& words = params->bad_words;
  if (words.empty()) return absl::OkStatus();
  if (tokenizer == nullptr) {
    RETURN_IF_ERROR(CheckBadWords(words));
    return NoTokensOfBadWords(*params);
  }
  const auto forms = words.Derived<absl::StatusOr<SharedList<TokenIds>>>(
      {tokenizer->number()}, [&] { return FormsOf(words, *tokenizer); });
  RETURN_IF_ERROR(forms->status());
  params->bad_words_ids = Joined(params->bad_words_ids, **forms);
  params->bad_words.clear();
  return absl::OkStatus();
}

absl::Status NoTokensOfBadWords(const GenerationParams& params) {
  return InvalidField(
      "`bad_words` must be empty without a tokenizer, which makes "
      "`bad_words_ids` of it",
      Got(ShownInQuotes(params.bad_words.front())));
}

}  // namespace espalier
