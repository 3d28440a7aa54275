#include "text/tokenizer/languages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "tests/status_matchers.h"
#include "text/tokenizer/language_names.h"

namespace espalier {
namespace {

using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr TokenId kEos = 2;

NaturalLanguages LanguagesOf(const std::vector<std::string>& codes,
                             LanguageMark mark = LanguageMark::kSourceFirst) {
  std::vector<NaturalLanguage> languages;
  for (const std::string& code : codes) {
    languages.push_back({code, static_cast<TokenId>(100 + languages.size())});
  }
  return {mark, std::move(languages), kEos};
}

NaturalLanguages Nllb() {
  return LanguagesOf({"ace_Arab", "eng_Latn", "fra_Latn", "fur_Latn",
                      "nob_Latn", "zho_Hans", "zho_Hant"});
}

std::string Found(const NaturalLanguages& languages, const std::string& name) {
  const auto found = languages.Find(name);
  return found.ok() ? (*found)->code : Message(found.status());
}

TEST(LanguagesTest, ALanguageIsFoundByCodeIsoCodeAndName) {
  const NaturalLanguages nllb = Nllb();
  for (const char* const name :
       {"fra_Latn", "FRA_LATN", "fra-latn", "fra", "fr", "French", "french"}) {
    EXPECT_EQ(Found(nllb, name), "fra_Latn") << name;
  }
  EXPECT_EQ(Found(nllb, "no"), "nob_Latn");
  EXPECT_EQ(Found(nllb, "nb"), "nob_Latn");
  EXPECT_EQ(Found(nllb, "Chinese (Traditional)"), "zho_Hant");
  const NaturalLanguages m2m100 = LanguagesOf({"en", "fr", "zh", "ast", "ns"});
  for (const char* const name : {"fr", "FR", "fra", "French"}) {
    EXPECT_EQ(Found(m2m100, name), "fr") << name;
  }
  EXPECT_EQ(Found(m2m100, "Chinese"), "zh");
  EXPECT_EQ(Found(m2m100, "Asturian"), "ast");
  EXPECT_EQ(Found(m2m100, "Northern Sotho"), "ns");
  const NaturalLanguages mbart = LanguagesOf({"en_XX", "fr_XX", "zh_CN"});
  for (const char* const name : {"fr_XX", "fr", "fra", "French"}) {
    EXPECT_EQ(Found(mbart, name), "fr_XX") << name;
  }
  EXPECT_EQ(Found(mbart, "Chinese"), "zh_CN");
}

TEST(LanguagesTest, AnUnknownLanguageIsAnErrorWithTheClosestFirst) {
  EXPECT_THAT(Nllb().Find("Frenhc"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(StartsWith("no language \"Frenhc\"; the model has "
                                        "fra_Latn (French), "),
                             HasSubstr(", zho_Hant"), HasSubstr("ace_Arab"))));
  EXPECT_THAT(Found(Nllb(), ""), StartsWith("no language \"\"; "));
  EXPECT_THAT(Found(Nllb(), std::string(100'000, 'x')),
              HasSubstr("the model has "));
}

TEST(LanguagesTest, ANameOfSeveralIsAnErrorThatListsThem) {
  for (const char* const name : {"zh", "zho", "Chinese"}) {
    EXPECT_EQ(Found(Nllb(), name),
              std::string("the language \"") + name +
                  "\" may be zho_Hans (Chinese (Simplified)) or zho_Hant "
                  "(Chinese (Traditional))");
  }
}

TEST(LanguagesTest, EachClassPutsTheTokensWhereItsModelsWereTrained) {
  const auto between = [](LanguageMark mark) {
    const NaturalLanguages languages = LanguagesOf({"en", "fr"}, mark);
    return languages.Between(
        languages.takes_source() ? languages.WithCode("en") : nullptr,
        *languages.WithCode("fr"));
  };
  Direction direction = between(LanguageMark::kSourceFirst);
  EXPECT_THAT(direction.before_text, ElementsAre(100));
  EXPECT_THAT(direction.after_text, ElementsAre(kEos));
  EXPECT_EQ(direction.first_output, 101);
  direction = between(LanguageMark::kSourceLast);
  EXPECT_THAT(direction.before_text, IsEmpty());
  EXPECT_THAT(direction.after_text, ElementsAre(kEos, 100));
  EXPECT_EQ(direction.first_output, 101);
  direction = between(LanguageMark::kTargetFirst);
  EXPECT_THAT(direction.before_text, ElementsAre(101));
  EXPECT_THAT(direction.after_text, ElementsAre(kEos));
  EXPECT_EQ(direction.first_output, std::nullopt);
}

// MADLAD's: some languages have tokens of scripts and regions besides.
TEST(LanguagesTest, ANameWithoutAScriptOrARegionIsTheLanguageItself) {
  const NaturalLanguages madlad =
      LanguagesOf({"ace", "ace_Arab", "fr_CA", "fr", "gsw", "hi_Latn", "hi",
                   "ms_Arab_BN", "ms", "zh_Hant", "zh_Latn", "zh"});
  for (const char* const name : {"fr", "FR", "fra", "French"}) {
    EXPECT_EQ(Found(madlad, name), "fr") << name;
  }
  EXPECT_EQ(Found(madlad, "fr-ca"), "fr_CA");
  EXPECT_EQ(Found(madlad, "Hindi"), "hi");
  EXPECT_EQ(Found(madlad, "Malay"), "ms");
  EXPECT_EQ(Found(madlad, "Acehnese"), "ace");
  EXPECT_EQ(Found(madlad, "Acehnese (Arabic)"), "ace_Arab");
  for (const char* const name : {"Chinese", "zho", "Chinese (Simplified)"}) {
    EXPECT_EQ(Found(madlad, name), "zh") << name;
  }
  EXPECT_EQ(Found(madlad, "Chinese (Traditional)"), "zh_Hant");
  // A code without a name.
  EXPECT_EQ(Found(madlad, "gsw"), "gsw");
  EXPECT_THAT(Found(madlad, "Chinese (Traditionl)"),
              HasSubstr("has zh_Hant (Chinese (Traditional)), "));
}

TEST(LanguagesTest, CodesHaveEnglishNames) {
  EXPECT_EQ(EnglishNameOf("zh"), "Chinese");
  EXPECT_EQ(EnglishNameOf("zh_Hant"), "Chinese (Traditional)");
  EXPECT_EQ(EnglishNameOf("zh_Latn"), "Chinese");
  EXPECT_EQ(EnglishNameOf("arb_Arab"), "Modern Standard Arabic");
  EXPECT_EQ(EnglishNameOf("ar"), "Arabic");
  EXPECT_EQ(EnglishNameOf("ar_AR"), "Arabic");
  EXPECT_EQ(EnglishNameOf("xx"), "");
  EXPECT_THAT(LanguageNamesOf("swh_Latn"), Contains("Swahili"));
}

}  // namespace
}  // namespace espalier
