#include "text/prompt_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::EnFrDir;
using ::espalier::testing::EnFrTokenizer;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<PromptTemplates> Parse(const std::string& text) {
  return PromptTemplates::Parse(text, EnFrTokenizer());
}

// A file of one template "t" with this prompt.
std::string FileWithPrompt(const std::string& prompt) {
  return R"({"default": "t", "templates": [{"name": "t", "prompt": )" + prompt +
         "}]}";
}

TEST(PromptTemplateTest, EmbeddedModelsCarryBothDirections) {
  for (const std::string& dir : {EnFrDir(), EnFrDir() + "-draft"}) {
    ASSERT_OK_AND_ASSIGN(const auto templates,
                         PromptTemplates::Load(dir, EnFrTokenizer()));
    EXPECT_EQ(templates.default_template().name, "en-fr");
    ASSERT_OK_AND_ASSIGN(const auto* back, templates.Find("fr", "en"));
    EXPECT_EQ(back->name, "fr-en");
    EXPECT_EQ(back->description, "French to English");
    EXPECT_THAT(back->before_text, ElementsAre(1, 5));
    EXPECT_THAT(back->after_text, ElementsAre(4));
  }
}

TEST(PromptTemplateTest, APromptIsTheTextBetweenItsPieces) {
  ASSERT_OK_AND_ASSIGN(const auto templates,
                       PromptTemplates::Load(EnFrDir(), EnFrTokenizer()));
  const PromptTemplate& en_fr = templates.default_template();
  ASSERT_OK_AND_ASSIGN(const auto prompt,
                       en_fr.Apply("She made him cry.", EnFrTokenizer()));
  EXPECT_THAT(prompt, ElementsAre(1, 4, 333, 545, 365, 2001, 262, 5));
  EXPECT_THAT(en_fr.Apply("\xFF", EnFrTokenizer()),
              StatusIs(kInvalid, HasSubstr("not UTF-8")));
}

// For a blank text the model would invent a sentence.
TEST(PromptTemplateTest, ABlankTextIsRefused) {
  ASSERT_OK_AND_ASSIGN(const auto templates,
                       PromptTemplates::Load(EnFrDir(), EnFrTokenizer()));
  const auto is_blank =
      StatusIs(kInvalid, HasSubstr("prompt must not be blank, got"));
  const PromptTemplate& en_fr = templates.default_template();
  for (const char* blank : {"", " ", " \t\r\n "}) {
    EXPECT_THAT(en_fr.Apply(blank, EnFrTokenizer()), is_blank) << blank;
  }
  EXPECT_OK(en_fr.Apply(".", EnFrTokenizer()));
  // A tokenizer that makes a space of U+3000.
  ASSERT_OK_AND_ASSIGN(
      const auto rules,
      Tokenizer::Load(SourcePath("tests/data/charsmap.model")));
  EXPECT_THAT(en_fr.Apply("\u3000 ", *rules), is_blank);
}

TEST(PromptTemplateTest, ADirectoryWithoutTemplatesPutsBosBeforeTheText) {
  const std::string dir = SourcePath("tests/text");
  ASSERT_OK_AND_ASSIGN(const auto templates,
                       PromptTemplates::Load(dir, EnFrTokenizer()));
  EXPECT_EQ(templates.default_template().name, "default");
  ASSERT_OK_AND_ASSIGN(const auto prompt, templates.default_template().Apply(
                                              "She made", EnFrTokenizer()));
  EXPECT_THAT(prompt, ElementsAre(1, 333, 545));
  EXPECT_THAT(
      templates.Find("", ""),
      StatusIs(absl::StatusCode::kNotFound, EndsWith("the model has default")));
}

TEST(PromptTemplateTest, TheTextMayStandFirstOrLastOrAlone) {
  ASSERT_OK_AND_ASSIGN(const auto first,
                       Parse(FileWithPrompt(R"([{"text": true}, "<fr>"])")));
  EXPECT_THAT(first.default_template().before_text, IsEmpty());
  EXPECT_THAT(first.default_template().after_text, ElementsAre(5));
  ASSERT_OK_AND_ASSIGN(const auto last,
                       Parse(FileWithPrompt(R"(["<fr>", {"text": true}])")));
  EXPECT_THAT(last.default_template().before_text, ElementsAre(5));
  EXPECT_THAT(last.default_template().after_text, IsEmpty());
  EXPECT_OK(Parse(FileWithPrompt(R"([{"text": true}])")));
}

TEST(PromptTemplateTest, AnUnknownTemplateIsAnErrorThatListsWhatThereIs) {
  ASSERT_OK_AND_ASSIGN(const auto templates,
                       PromptTemplates::Load(EnFrDir(), EnFrTokenizer()));
  constexpr char kList[] = "the model has en-fr (en to fr), fr-en (fr to en)";
  EXPECT_THAT(templates.Find("de-fr"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("\"de-fr\""), HasSubstr(kList))));
  EXPECT_THAT(templates.Find("en", "de"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("\"en\" to \"de\""), HasSubstr(kList))));
}

TEST(PromptTemplateTest, TemplatesKeepTheFilesOrderAndDefault) {
  ASSERT_OK_AND_ASSIGN(const auto templates, Parse(R"(
      {"default": "a", "templates": [
        {"name": "b", "from": "x", "to": "y", "prompt": [{"text": true}]},
        {"name": "a", "prompt": ["<s>", {"text": true}]},
        {"name": "c", "prompt": [{"text": true}]}]})"));
  EXPECT_THAT(templates.Find("d"),
              StatusIs(absl::StatusCode::kNotFound,
                       EndsWith("the model has b (x to y), a, c")));
  EXPECT_EQ(templates.default_template().name, "a");
  EXPECT_THAT(templates.default_template().before_text, ElementsAre(1));
}

TEST(PromptTemplateTest, ErrorsOfAFileNameIt) {
  const ScratchDirectory scratch;
  const std::string path =
      scratch.Write("prompt_template.json", R"({"default": 7})");
  EXPECT_THAT(PromptTemplates::Load(scratch.path(), EnFrTokenizer()),
              StatusIs(kInvalid,
                       AllOf(HasSubstr(path), HasSubstr("top level.default"))));
}

struct Malformed {
  const char* what;     // the law's name
  std::string text;     // the file
  const char* message;  // part of the expected error
};

std::ostream& operator<<(std::ostream& out, const Malformed& malformed) {
  return out << malformed.text;
}

class MalformedPromptTemplateTest : public ::testing::TestWithParam<Malformed> {
};

TEST_P(MalformedPromptTemplateTest, NamesPlaceAndValue) {
  EXPECT_THAT(Parse(GetParam().text),
              StatusIs(kInvalid, HasSubstr(GetParam().message)));
}

const Malformed kMalformed[] = {
    {"NotJson", "{\"default\": ", "not JSON"},
    {"NotAnObject", "[1]", "top level must be an object, got [1]"},
    {"UnknownField", R"({"default": "t", "templates": [], "defualt": "t"})",
     "top level: unknown field \"defualt\"; known fields: default, templates"},
    {"NoDefault", R"({"templates": []})",
     "top level: field \"default\" is missing"},
    {"DefaultOfWrongType", R"({"default": 1, "templates": []})",
     "top level.default must be a string that is not empty, got 1"},
    {"NoTemplatesField", R"({"default": "t"})",
     "top level: field \"templates\" is missing"},
    {"TemplatesOfWrongType", R"({"default": "t", "templates": {"a": 1}})",
     "top level.templates must be a list, got {\"a\": 1}"},
    {"NoTemplates", R"({"default": "t", "templates": []})",
     "templates must not be empty"},
    {"TemplateOfWrongType", R"({"default": "t", "templates": ["t"]})",
     "templates[0] must be an object, got \"t\""},
    {"UnknownTemplateField",
     R"({"default": "t", "templates": [{"name": "t", "promt": []}]})",
     "templates[0]: unknown field \"promt\"; known fields: name, from, to"},
    {"NoName",
     R"({"default": "t", "templates": [{"prompt": [{"text": true}]}]})",
     "templates[0]: field \"name\" is missing"},
    {"EmptyName",
     R"({"default": "t", "templates": [{"name": "", "prompt": []}]})",
     "templates[0].name must be a string that is not empty, got \"\""},
    {"DescriptionOfWrongType",
     R"({"default": "t", "templates": [
         {"name": "t", "description": false, "prompt": [{"text": true}]}]})",
     "templates[0].description must be a string that is not empty, got false"},
    {"FromWithoutTo",
     R"({"default": "t", "templates": [
         {"name": "t", "from": "en", "prompt": [{"text": true}]}]})",
     "templates[0]: \"from\" and \"to\" go together, only \"from\" is given"},
    {"NameTwice",
     R"({"default": "t", "templates": [
         {"name": "t", "prompt": [{"text": true}]},
         {"name": "t", "prompt": [{"text": true}]}]})",
     "templates[1].name \"t\" is used twice"},
    {"DirectionTwice",
     R"({"default": "t", "templates": [
         {"name": "t", "from": "a", "to": "b", "prompt": [{"text": true}]},
         {"name": "u", "from": "a", "to": "b", "prompt": [{"text": true}]}]})",
     "templates[1]: from \"a\" to \"b\" is already the direction of \"t\""},
    {"DefaultThatIsNone",
     R"({"default": "x", "templates": [
         {"name": "t", "prompt": [{"text": true}]}]})",
     "default: no prompt template \"x\"; the file has t"},
    {"NoPrompt", R"({"default": "t", "templates": [{"name": "t"}]})",
     "templates[0]: field \"prompt\" is missing"},
    {"PromptOfWrongType", FileWithPrompt("\"<s>\""),
     "templates[0].prompt must be a list, got \"<s>\""},
    {"UnknownPiece", FileWithPrompt(R"(["<s>", "<de>", {"text": true}])"),
     "templates[0].prompt[1]: the tokenizer has no piece \"<de>\""},
    {"PieceOfWrongType", FileWithPrompt(R"([1, {"text": true}])"),
     "templates[0].prompt[0] must be a piece (a string) or {\"text\": true}, "
     "got 1"},
    {"SlotThatIsFalse", FileWithPrompt(R"([{"text": false}])"),
     "templates[0].prompt[0] must be a piece (a string) or {\"text\": true}, "
     "got {\"text\": false}"},
    {"SlotWithMore", FileWithPrompt(R"([{"text": true, "trim": true}])"),
     "got {\"text\": true, \"trim\": true}"},
    {"NoSlot", FileWithPrompt(R"(["<s>"])"),
     "templates[0].prompt needs {\"text\": true} once, has it 0 times"},
    {"TwoSlots", FileWithPrompt(R"([{"text": true}, {"text": true}])"),
     "templates[0].prompt needs {\"text\": true} once, has it 2 times"},
};

INSTANTIATE_TEST_SUITE_P(PromptTemplateTest, MalformedPromptTemplateTest,
                         ::testing::ValuesIn(kMalformed),
                         [](const auto& test) { return test.param.what; });

}  // namespace
}  // namespace espalier
