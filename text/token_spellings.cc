#include "text/token_spellings.h"

#include "base/check.h"

namespace espalier {

void TokenSpellings::Add(SpellingKind kind, std::string_view text) {
  CHECK(text.size() <= UINT32_MAX - text_.size()) << "spellings of 4 GiB";
  text_ += text;
  begins_.push_back(static_cast<uint32_t>(text_.size()));
  kinds_.push_back(kind);
}

}  // namespace espalier
