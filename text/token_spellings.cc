#include "text/token_spellings.h"

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

}  // namespace espalier
