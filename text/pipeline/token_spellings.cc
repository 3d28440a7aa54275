#include "text/pipeline/token_spellings.h"

#include <algorithm>

#include "base/check.h"

namespace espalier {

void TokenSpellings::Add(SpellingKind kind, std::string_view text) {
  CHECK(text.size() <= UINT32_MAX - text_.size()) << "spellings of 4 GiB";
  text_ += text;
  max_bytes_ = std::max(max_bytes_, text.size());
  begins_.push_back(static_cast<uint32_t>(text_.size()));
  kinds_.push_back(kind);
}

void TokenSpellings::AddOpening(TokenId token, SpellingKind kind,
                                std::string_view text) {
  CHECK(openings_.empty() || openings_.back().token < token) << token;
  openings_.push_back({token, kind, std::string(text)});
}

TokenSpelling TokenSpellings::OpeningOf(TokenId token) const {
  const TokenSpelling anywhere = Of(token);
  if (anywhere.kind == SpellingKind::kOutside) return anywhere;
  const auto own =
      std::ranges::lower_bound(openings_, token, {}, &Opening::token);
  if (own == openings_.end() || own->token != token) return anywhere;
  return {own->kind, own->text};
}

}  // namespace espalier
