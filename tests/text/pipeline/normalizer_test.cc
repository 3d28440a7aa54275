// Steps after each other: what one leaves of a text is a text for the next.
#include "text/pipeline/normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <boost/json/parse.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/status_matchers.h"
#include "text/pipeline/unicode.h"

namespace espalier {
namespace {

json::value SequenceOf(const std::vector<std::string>& steps) {
  json::array list;
  for (const std::string& step : steps) list.push_back(json::parse(step));
  return {{"type", "Sequence"}, {"normalizers", list}};
}

struct Normalized {
  std::string text;
  size_t beginning;

  bool operator==(const Normalized&) const = default;
};

void PrintTo(const Normalized& normalized, std::ostream* out) {
  *out << normalized.text << ", beginning " << normalized.beginning;
}

Normalized Apply(const std::vector<std::string>& steps, std::string_view text) {
  RegexBudget budget(text.size());
  const auto normalizer = Normalizer::Read(SequenceOf(steps), "normalizer");
  EXPECT_OK(normalizer);
  Normalizer::Text normalized(text, &budget);
  EXPECT_OK(normalizer->Apply(&normalized));
  return {normalized.text, normalized.beginning};
}

const std::string kNfc = R"({"type": "NFC"})";
const std::string kNfd = R"({"type": "NFD"})";
const std::string kNfkc = R"({"type": "NFKC"})";
const std::string kLowercase = R"({"type": "Lowercase"})";

std::string ReplaceStep(const char* pattern, const char* content) {
  return Concat(R"({"type": "Replace", "pattern": {"String": ")", pattern,
                R"("}, "content": ")", content, "\"}");
}

std::string Prepending(const char* prefix) {
  return Concat(R"({"type": "Prepend", "prepend": ")", prefix, "\"}");
}

TEST(NormalizerTest, ABeginningThatIsJoinedEndsWithItsCharacter) {
  EXPECT_EQ(Apply({kNfc}, "e\u0301t"), (Normalized{"\u00e9t", 2}));
  EXPECT_EQ(Apply({kNfc, kLowercase}, "E\u0301t\u00e9"),
            (Normalized{"\u00e9t\u00e9", 2}));
  EXPECT_EQ(Apply({kNfc, kNfc}, "a\u0323"), (Normalized{"\u1ea1", 3}));
  EXPECT_EQ(Apply({kNfkc, kNfd}, "a\u0323"), (Normalized{"a\u0323", 3}));
  // The later mark belongs before the accent.
  EXPECT_EQ(Apply({kNfd, kLowercase}, "\u00e9\u1dc2"),
            (Normalized{"e\u1dc2\u0301", 4}));
}

// As tokenizers 0.23.3 gives it.
TEST(NormalizerTest, NmtDropsControlsAndMakesOtherSpacesSpaces) {
  const std::string nmt = R"({"type": "Nmt"})";
  EXPECT_EQ(Apply({nmt},
                  "\x01"
                  "a\tb\n\v\x7f\u008f\u009f"
                  "c")
                .text,
            "a b c");
  EXPECT_EQ(Apply({nmt}, "\u200bx\u1680\u2028\u2029\ufeff\ufffd\u2581").text,
            " x      ");
  EXPECT_EQ(Apply({nmt}, "\u00a0\u0085\u0080é").text, "\u00a0\u0085\u0080é");
  EXPECT_EQ(Apply({nmt}, "\002ab"), (Normalized{"ab", 0}));
}

TEST(NormalizerTest, BertCleansSpacesHanAndStripsAccentsAsItsFieldsSay) {
  const auto bert = [](const char* fields) {
    return Concat(R"({"type": "BertNormalizer", )", fields, "}");
  };
  const std::string text = "\u200dÀ\x01\t漢字e\u0301\u00a0\u3000Ω\ufffd";
  EXPECT_EQ(Apply({bert(R"("clean_text": true, "handle_chinese_chars": false,
                            "strip_accents": false, "lowercase": false)")},
                  text)
                .text,
            "À 漢字e\u0301  Ω");
  EXPECT_EQ(Apply({bert(R"("clean_text": false, "handle_chinese_chars": true,
                            "strip_accents": false, "lowercase": false)")},
                  "a漢字")
                .text,
            "a 漢  字 ");
  EXPECT_EQ(Apply({bert(R"("clean_text": false, "handle_chinese_chars": false,
                            "strip_accents": null, "lowercase": true)")},
                  "ÀΩe\u0301\u0903")
                .text,
            "aωe\u0903");
  EXPECT_EQ(Apply({bert(R"("clean_text": false, "handle_chinese_chars": false,
                            "strip_accents": true, "lowercase": false)")},
                  "ÀΩ")
                .text,
            "AΩ");
}

TEST(NormalizerTest, ABeginningThatIsReplacedEndsWithItsCharacter) {
  EXPECT_EQ(Apply({Prepending("é"),
                   R"({"type": "Replace", "pattern": {"Regex": "\\d+"},
                       "content": "▁"})",
                   kNfc},
                  "7a"),
            (Normalized{"é▁a", 5}));
}

// Expected results are those of the library.
TEST(NormalizerTest, TheLastCharacterOfAMatchTellsWhetherItIsOfTheBeginning) {
  EXPECT_EQ(Apply({ReplaceStep("a", "xy")}, "ad"), (Normalized{"xyd", 2}));
  EXPECT_EQ(Apply({ReplaceStep("ad", "b")}, "ad"), (Normalized{"b", 0}));
  EXPECT_EQ(Apply({ReplaceStep("ad", "xyz"), ReplaceStep("x", "q")}, "ad"),
            (Normalized{"qyz", 0}));
  // Several characters in front, all made from the first one.
  EXPECT_EQ(Apply({kNfd, ReplaceStep("e\u0301", "b")}, "\u00e9d"),
            (Normalized{"bd", 1}));
  const std::string prepend = Prepending("xy");
  EXPECT_EQ(Apply({prepend, ReplaceStep("y", "zz")}, "ad"),
            (Normalized{"xzzad", 4}));
  EXPECT_EQ(Apply({prepend, ReplaceStep("xya", "b")}, "ad"),
            (Normalized{"bd", 1}));
  EXPECT_EQ(Apply({prepend, ReplaceStep("yad", "b")}, "ad"),
            (Normalized{"xb", 1}));
  EXPECT_EQ(Apply({prepend, ReplaceStep("xyad", "b")}, "ad"),
            (Normalized{"b", 0}));
  EXPECT_EQ(Apply({prepend, ReplaceStep("d", "ee")}, "ad"),
            (Normalized{"xyaee", 3}));
}

TEST(NormalizerTest, APrefixIsOfTheBeginningIfWhatItIsBeforeIs) {
  EXPECT_EQ(Apply({Prepending("xy")}, "ad"), (Normalized{"xyad", 3}));
  EXPECT_EQ(Apply({ReplaceStep("a", ""), Prepending("xy")}, "ad"),
            (Normalized{"xyd", 0}));
  EXPECT_EQ(
      Apply({R"({"type": "Strip", "strip_left": true, "strip_right": false})",
             Prepending("xy")},
            "  ad"),
      (Normalized{"xyad", 0}));
}

// "^" or "a*" would match.
TEST(NormalizerTest, NothingIsReplacedInAnEmptyText) {
  const std::string replace =
      R"({"type": "Replace", "pattern": {"Regex": "^"}, "content": "x"})";
  EXPECT_EQ(Apply({replace}, ""), (Normalized{"", 0}));
  EXPECT_EQ(Apply({ReplaceStep("a", ""), replace}, "a"), (Normalized{"", 0}));
  EXPECT_EQ(Apply({ReplaceStep("a", ""), replace}, "ad"),
            (Normalized{"xd", 1}));
}

// Steps of all kinds but Precompiled, which needs a map of its own.
const std::vector<std::string>& AllSteps() {
  static const auto* const steps = [] {
    auto* list = new std::vector<std::string>{
        kNfc,
        kNfd,
        kNfkc,
        R"({"type": "NFKD"})",
        kLowercase,
        R"({"type": "StripAccents"})",
        R"({"type": "Strip", "strip_left": true, "strip_right": false})",
        R"({"type": "Strip", "strip_left": true, "strip_right": true})",
        R"({"type": "Prepend", "prepend": "é"})",
        R"({"type": "Prepend", "prepend": "▁a"})"};
    for (const char* const pattern :
         {R"({"String": "e"})", R"({"String": "▁a"})", R"({"Regex": "\\d+"})",
          R"({"Regex": "\\p{M}"})", R"({"Regex": "^"})", R"({"Regex": "..$"})",
          R"({"Regex": "\\s*"})"}) {
      for (const char* const content : {"", "b", "▁", "é", "\u0323", "a7"}) {
        list->push_back(std::string(R"({"type": "Replace", "pattern": )") +
                        pattern + R"(, "content": ")" + content + "\"}");
      }
    }
    return list;
  }();
  return *steps;
}

// Composing letters, Hangul's parts, marks of many classes, spaces, and letters
// whose case or form changes their size.
std::string RandomText() {
  constexpr char32_t kCharacters[] = {
      'a',    'e',    'E',    '7',     ' ',     0xA0,    0xC9,   0xE9,
      0x130,  0x1EA1, 0x212A, 0x1100,  0x1161,  0x11A8,  0xAC00, 0x301,
      0x302,  0x323,  0x345,  0x1DC2,  0x3099,  0x304B,  0x2581, 0xFB01,
      0x3000, 0xFDFA, 0x1F71, 0x1D15E, 0x110BA, 0x11099, 0x1F600};
  std::string text;
  const auto size = *rc::gen::inRange<size_t>(0, 8);
  for (size_t i = 0; i < size; ++i) {
    const auto character =
        *rc::gen::oneOf(rc::gen::elementOf(std::vector(std::begin(kCharacters),
                                                       std::end(kCharacters))),
                        rc::gen::inRange<char32_t>(1, 0xD800),
                        rc::gen::inRange<char32_t>(0xE000, 0x110000));
    AppendCharacter(character, &text);
  }
  return text;
}

RC_GTEST_PROP(NormalizerProperty, AnyStepsLeaveCharactersWhole, ()) {
  std::vector<std::string> steps;
  const auto num_steps = *rc::gen::inRange<size_t>(1, 6);
  for (size_t i = 0; i < num_steps; ++i) {
    steps.push_back(*rc::gen::elementOf(AllSteps()));
  }
  const std::string original = RandomText();
  const auto normalizer = Normalizer::Read(SequenceOf(steps), "normalizer");
  RC_ASSERT(normalizer.ok());
  RegexBudget budget(original.size());
  Normalizer::Text text(original, &budget);
  const absl::Status status = normalizer->Apply(&text);
  if (!status.ok()) {
    RC_ASSERT(status.code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  RC_ASSERT(IsUtf8(text.text));
  RC_ASSERT(text.beginning <= text.text.size());
  RC_ASSERT(IsUtf8(std::string_view(text.text).substr(0, text.beginning)));
}

}  // namespace
}  // namespace espalier
