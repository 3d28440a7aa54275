// Normalisation forms, against utf8proc's own and by the work they take.
#include "text/pipeline/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/few_cases.h"
#include "text/pipeline/canonical_order.h"

namespace espalier {
namespace {

using Characters = std::vector<char32_t>;

constexpr std::pair<NormalizationForm, int> kForms[] = {
    {NormalizationForm::kNfc, UTF8PROC_COMPOSE},
    {NormalizationForm::kNfd, UTF8PROC_DECOMPOSE},
    {NormalizationForm::kNfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {NormalizationForm::kNfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};

std::string FormOfUtf8proc(const std::string& text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(
      mapped, &std::free);
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(size)};
}

void ExpectFormsOfUtf8proc(const std::string& text) {
  for (const auto& [form, options] : kForms) {
    ASSERT_EQ(ToForm(text, form), FormOfUtf8proc(text, options)) << text;
  }
}

TEST(UnicodeTest, EveryCharactersFormsAreThoseOfUtf8proc) {
  const char32_t step = testing::Cases(1, 17);
  for (char32_t character = 1; character <= 0x10FFFF; character += step) {
    if (character >= 0xD800 && character <= 0xDFFF) continue;
    std::string text;
    AppendCharacter(character, &text);
    ExpectFormsOfUtf8proc(text);
  }
}

// Composing letters, Hangul's parts, marks of many classes, and other
// characters.
TEST(UnicodeTest, FormsOfRunsOfMarksAreThoseOfUtf8proc) {
  const Characters pieces = {
      'a',    'o',     0xE4,   0x1EBF, 0x915,   0x93C,   0x1100, 0x1161, 0x11A8,
      0xAC00, 0x300,   0x301,  0x302,  0x308,   0x315,   0x316,  0x323,  0x327,
      0x328,  0x345,   0x34F,  0x5B0,  0x5BC,   0x64B,   0x651,  0x94D,  0xE38,
      0xF71,  0x1D16D, 0x3099, 0xFB2C, 0x1D15E, 0xFDFA,  0x2126, 0x212B, 0x200D,
      ' ',    0xFF9E,  0x9BE,  0x9C7,  0x110BA, 0x11099, 0xF73,  0x340,  0x344};
  std::mt19937 random(20263);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (size_t size = random() % 24; size > 0; --size) {
      AppendCharacter(pieces[random() % pieces.size()], &text);
    }
    ExpectFormsOfUtf8proc(text);
  }
}

// The worst order: each mark of the second half belongs before all of the
// first.
TEST(UnicodeTest, OrderingMarksTakesNearlyLinearWork) {
  constexpr size_t kHalf = 100'000;
  Characters characters(2 * kHalf, 0x316);        // class 220
  std::fill_n(characters.begin(), kHalf, 0x315);  // class 232
  int64_t num_calls = 0;
  PutInCanonicalOrder(
      [&](char32_t character) {
        ++num_calls;
        return character == 0x315 ? 232 : 220;
      },
      std::span(characters));
  EXPECT_EQ(num_calls, 2 * kHalf);
  EXPECT_TRUE(std::ranges::is_sorted(characters, std::ranges::greater()));
  // So that it is the work of the whole, too: 800 kB of marks.
  std::string text = "a";
  for (size_t i = 0; i < 4 * kHalf; ++i) {
    text += i < 2 * kHalf ? "\u0315" : "\u0316";
  }
  for (const auto& [form, options] : kForms) {
    const std::string ordered = ToForm(text, form);
    EXPECT_EQ(ordered.substr(0, 5), "a\u0316\u0316");
    EXPECT_EQ(ordered.size(), text.size());
  }
}

TEST(UnicodeTest, MarksOfOneClassStayAsTheyWereWritten) {
  // Two above, two below, in turn.
  EXPECT_EQ(ToForm("x\u0301\u0323\u0302\u0316", NormalizationForm::kNfd),
            "x\u0323\u0316\u0301\u0302");
}

}  // namespace
}  // namespace espalier
