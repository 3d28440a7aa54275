// Names of the languages that multilingual translators know by codes:
// "eng_Latn" of NLLB, "en" of M2M100, "en_XX" of mBART, "zh_Hant" of
// MADLAD-400.
#pragma once

#include <string_view>
#include <vector>

namespace espalier {

// Returns all names of the language with this code: the code, the part of it
// before "_", codes of ISO 639 ("en", "eng") and English names. A code of two
// letters may stand for several languages of other models ("zh").
std::vector<std::string_view> LanguageNamesOf(std::string_view code);

// Returns "English"; empty if the code is unknown.
std::string_view EnglishNameOf(std::string_view code);

}  // namespace espalier
