#include "text/sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/stopwatch.h"

namespace espalier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Texts(std::string_view text) {
  std::vector<std::string> texts;
  for (const Sentence& sentence : SplitSentences(text)) {
    texts.emplace_back(sentence.text);
  }
  return texts;
}

TEST(SentencesTest, EndAtFullStopsAndOtherMarks) {
  EXPECT_THAT(Texts("It rains. Does it? Yes! Good."),
              ElementsAre("It rains.", "Does it?", "Yes!", "Good."));
  EXPECT_THAT(Texts("Really?! Yes!!! No."),
              ElementsAre("Really?!", "Yes!!!", "No."));
  EXPECT_THAT(Texts("It rains"), ElementsAre("It rains"));
  EXPECT_THAT(Texts("how are you? i am fine"),
              ElementsAre("how are you?", "i am fine"));
  EXPECT_THAT(Texts("¿Qué hora es? ¡Es tarde! Vamos."),
              ElementsAre("¿Qué hora es?", "¡Es tarde!", "Vamos."));
}

TEST(SentencesTest, AreNotEndedByAbbreviations) {
  for (const char* text :
       {"Mr. Smith met Dr. Jones and Prof. Li.", "We met Mme. Curie.",
        "He came, e.g. On foot.", "See p. 5 and Fig. 3 there.",
        "It is No. 5 on the list.", "On Jan. 5 we met.",
        "J. R. R. Tolkien wrote it.", "I saw John F. Kennedy.",
        "The U.S. Army came.", "Am 5. Mai kam er.", "Das ist z.B. Wasser.",
        "Das ist z. B. Wasser.", "Er kam d. h. A. Meier kam.",
        "He sold fruit, wood etc. in town."}) {
    EXPECT_THAT(Texts(text), ElementsAre(text));
  }
  EXPECT_THAT(Texts("I live in the U.S. It is big."),
              ElementsAre("I live in the U.S.", "It is big."));
  EXPECT_THAT(Texts("He came at 5 p.m. She left."),
              ElementsAre("He came at 5 p.m.", "She left."));
  EXPECT_THAT(Texts("He said No. One came."),
              ElementsAre("He said No.", "One came."));
}

TEST(SentencesTest, BeyondTheLimitAreLeftOut) {
  const std::string text = "It rains. Does it? Yes!";
  for (size_t limit = 0; limit <= 4; ++limit) {
    EXPECT_EQ(SplitSentences(text, limit).size(), std::min<size_t>(limit, 3));
  }
  EXPECT_EQ(SplitSentences("It rains.\nYes.", 1)[0].text, "It rains.");
}

TEST(SentencesTest, AreNotEndedByNumbersAndNames) {
  for (const char* text :
       {"It cost 3.14 dollars.", "Go to example.com/a?b=c now.",
        "Version 1.2.3 is out.", "1. First of all, it rains.",
        "Open file.txt please."}) {
    EXPECT_THAT(Texts(text), ElementsAre(text));
  }
  EXPECT_THAT(Texts("It cost 5. Then I left."),
              ElementsAre("It cost 5.", "Then I left."));
}

TEST(SentencesTest, HaveTheirQuotationMarks) {
  EXPECT_THAT(Texts("\"It rains.\" \"He goes.\" (So it is.) “Yes!” Good."),
              ElementsAre("\"It rains.\"", "\"He goes.\"", "(So it is.)",
                          "“Yes!”", "Good."));
  EXPECT_THAT(Texts("\"Are you there?\" he asked. She was."),
              ElementsAre("\"Are you there?\" he asked.", "She was."));
  EXPECT_THAT(Texts("« Il pleut ! » dit-il. « Non. » Elle part."),
              ElementsAre("« Il pleut ! » dit-il.", "« Non. »", "Elle part."));
  EXPECT_THAT(Texts("Er kam. »Gut!« Sie ging. „Ja.“ Gut."),
              ElementsAre("Er kam.", "»Gut!«", "Sie ging.", "„Ja.“", "Gut."));
  EXPECT_THAT(Texts("— Oui. — Non."), ElementsAre("— Oui.", "— Non."));
}

TEST(SentencesTest, GoOnAfterAnEllipsisBeforeALowerCaseWord) {
  EXPECT_THAT(Texts("Wait... what? Well… I do... You do."),
              ElementsAre("Wait... what?", "Well…", "I do...", "You do."));
}

TEST(SentencesTest, OfChineseAndJapaneseNeedNoSpaces) {
  EXPECT_THAT(
      Texts("你好。今天下雨吗？是的！「好。」他说。"),
      ElementsAre("你好。", "今天下雨吗？", "是的！", "「好。」", "他说。"));
  EXPECT_THAT(Texts("これは本です。はい。"),
              ElementsAre("これは本です。", "はい。"));
}

TEST(SentencesTest, EndAtLineBreaks) {
  const std::string text = "\n It rains\r\nHe goes. \n\n  She sits\t. \n";
  const std::vector<Sentence> sentences = SplitSentences(text);
  ASSERT_EQ(sentences.size(), 3u);
  EXPECT_EQ(sentences[0].text, "It rains");
  EXPECT_EQ(sentences[0].after, "\r\n");
  EXPECT_EQ(sentences[1].text, "He goes.");
  EXPECT_EQ(sentences[1].after, " \n\n  ");
  EXPECT_EQ(sentences[2].text, "She sits\t.");
  EXPECT_EQ(sentences[2].after, "");
}

TEST(SentencesTest, OfBlankTextsAreNone) {
  EXPECT_THAT(Texts(""), IsEmpty());
  EXPECT_THAT(Texts(" \n\t\u2003 "), IsEmpty());
}

TEST(SentencesTest, OfPunctuationAloneAreOne) {
  EXPECT_THAT(Texts(". . . . ... !!! ?"), ElementsAre(". . . . ... !!! ?"));
  EXPECT_THAT(Texts("!"), ElementsAre("!"));
  EXPECT_THAT(Texts("... It rains."), ElementsAre("... It rains."));
}

// All but white space is in a sentence, in order.
RC_GTEST_PROP(SentencesTest, AreTheTextWithoutWhiteSpaceAround, ()) {
  const auto parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("It", "rains", "Dr", ".", "?", "!", " ",
                                    " ", "\n", "\"", "»", "«", "5", "。", "é",
                                    "-", "…", "U.S", "Mai", ","));
  std::string text;
  for (const std::string& part : parts) text += part;
  std::string joined;
  const std::vector<Sentence> sentences = SplitSentences(text);
  for (const Sentence& sentence : sentences) {
    RC_ASSERT(!sentence.text.empty());
    RC_ASSERT(sentence.text.find_first_of("\n") == std::string_view::npos);
    RC_ASSERT(sentence.text.front() != ' ' && sentence.text.back() != ' ');
    RC_ASSERT(sentence.after.find_first_not_of(" \n") ==
              std::string_view::npos);
    joined += Concat(sentence.text, sentence.after);
  }
  const size_t begin = text.find_first_not_of(" \n");
  if (begin == text.npos) {
    RC_ASSERT(sentences.empty());
  } else {
    const size_t end = text.find_last_not_of(" \n") + 1;
    RC_ASSERT(joined == text.substr(begin, end - begin));
  }
}

// Whatever is looked for ahead or behind.
TEST(SentencesTest, TakeLinearTime) {
  for (const char* const unit : {". ", "Ab. ", "Mr. ", "U.", "a", "! » ", ". (",
                                 "\n.", "。", "   ", "5. Mai "}) {
    std::string text;
    while (text.size() < (1 << 20)) text += unit;
    const Stopwatch watch;
    const size_t num_sentences = SplitSentences(text).size();
    EXPECT_LT(watch.Elapsed(), absl::Seconds(10)) << unit << num_sentences;
  }
}

}  // namespace
}  // namespace espalier
