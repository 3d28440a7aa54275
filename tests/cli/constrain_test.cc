// espalier constrain: languages, and which texts are in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

ProgramRun Constrain(std::vector<std::string> args,
                     const std::string& input = "") {
  args.insert(args.begin(), "constrain");
  return RunEspalier(args, input);
}

TEST(ConstrainTest, TextsOutsideTheLanguageNameTheByte) {
  const std::string dates = "[0-9]{4}-[0-9]{2}";
  const ProgramRun run =
      Constrain({"--regex", dates, "2026-11", "26-11", "2026"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.out, HasSubstr("yes       \"2026-11\"\n"));
  EXPECT_THAT(run.out, HasSubstr("\"26-11\": leaves it at byte 2, after "
                                 "\"26\", where \"0\" to \"9\" may follow\n"));
  EXPECT_THAT(run.out, HasSubstr("\"2026\": ends early, at byte 4, where \"-\" "
                                 "may follow\n"));
  EXPECT_EQ(Constrain({"--regex", dates, "2026-11"}).exit_code, 0);
  // Each --choice takes one text.
  const ProgramRun choice =
      Constrain({"--choice", "yes", "--choice", "no", "no", "ye"});
  EXPECT_EQ(choice.exit_code, 1) << choice.err;
  EXPECT_THAT(choice.out, HasSubstr("yes       \"no\"\n"));
  EXPECT_THAT(choice.out, HasSubstr("no        \"ye\": ends early"));
  const ProgramRun words =
      Constrain({"--must-contain", "ab", "--must-contain", "bc", "--regex",
                 "[abc]+", "xabc", "abc", "bcab", "ab"});
  EXPECT_EQ(words.exit_code, 1) << words.err;
  EXPECT_THAT(words.out, HasSubstr("\"xabc\": leaves it at byte 0"));
  EXPECT_THAT(words.out, HasSubstr("yes       \"abc\"\n"));
  EXPECT_THAT(words.out, HasSubstr("yes       \"bcab\"\n"));
  EXPECT_THAT(words.out, HasSubstr("no        \"ab\": ends early"));
}

// Samples are in the language: they are checked by another run.
TEST(ConstrainTest, SamplesOfALanguageAreInIt) {
  for (const std::string pattern : {"(ab|é)*c", "\\S{3,}", "[^x]?"}) {
    const ProgramRun run =
        Constrain({"--regex", pattern, "--json", "--samples", "20"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    std::string lines;
    const json::object language =
        ParseLines(run.out)[0].at("language").as_object();
    for (const json::value& sample : language.at("samples").as_array()) {
      lines += WriteJson(json::object{{"text", sample}}) + "\n";
    }
    const ProgramRun check =
        Constrain({"--regex", pattern, "--json", "-i", "-"}, lines);
    EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
    EXPECT_EQ(ParseLines(check.out).size(), 21);
  }
}

TEST(ConstrainTest, ATextsTokensAreThoseOfTheModel) {
  const ProgramRun run =
      Constrain({"--choice", "Oui.", "--choice", "Non.", "--json", "-m",
                 ModelDirectory("en-fr"), "Oui."});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = ParseLines(run.out);
  const json::object& text = lines[1].as_object();
  EXPECT_EQ(text.at("tokens").as_array().size(),
            text.at("num_legal_tokens").to_number<size_t>());
  EXPECT_GT(lines[0].at("language").at("first_tokens").to_number<int>(), 0);
  const int least = lines[0].at("language").at("min_tokens").to_number<int>();
  EXPECT_GE(least, 1);
  EXPECT_LE(least, text.at("num_legal_tokens").to_number<int>());
}

// SentencePiece spells a text that begins with no word as a dropped space and
// the rest; a character that the vocabulary lacks is lost.
TEST(ConstrainTest, ATokenizersSpellingIsLegalUnlessItChangesTheText) {
  const ProgramRun run = Constrain({"--regex", "[\\s\\S]*", "--json", "-m",
                                    ModelDirectory("en-fr"), "--", "{", "中",
                                    "#x", "½", "🙂 a", " b", "-"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const json::value& line : ParseLines(run.out)) {
    const json::object& text = line.as_object();
    if (!text.contains("text") || text.contains("decoded")) continue;
    EXPECT_EQ(text.at("tokens").as_array().size(),
              text.at("num_legal_tokens").to_number<size_t>())
        << WriteJson(line);
  }
  const ProgramRun lost =
      Constrain({"--regex", "漢?a", "-m",
                 SourcePath("tests/data/text_models/bart"), "漢a"});
  EXPECT_EQ(lost.exit_code, 0) << lost.err;
  EXPECT_THAT(lost.out, HasSubstr("but the tokenizer changes it to \"a\""));
}

std::string WriteSchema(const std::string& schema) {
  const std::string file = ::testing::TempDir() + "/schema.json";
  std::ofstream(file) << schema;
  return file;
}

TEST(ConstrainTest, TextsOfASchemaAreThoseOfItsValues) {
  const std::string file = WriteSchema(
      R"({"type": "object", "properties": {"x": {"type": "integer"},
          "y": {"maximum": 5}}, "required": ["x"],
          "additionalProperties": false})");
  const ProgramRun run =
      Constrain({"--json-schema", file, R"({"x": 1})", R"({"x":1, "y": 4.5})",
                 R"({"y": 4})", R"({"x": 1, "y": 6})"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.out, HasSubstr(R"(yes       "{\"x\": 1}")"));
  EXPECT_THAT(run.out, HasSubstr(R"(yes       "{\"x\":1, \"y\": 4.5}")"));
  EXPECT_THAT(run.out,
              HasSubstr(R"(leaves it at byte 2, after "{\"", where "x")"));
  EXPECT_THAT(run.out, HasSubstr("leaves it at byte 14"));
  const ProgramRun compact = Constrain(
      {"--json-schema", file, "--no-spaces", R"({"x":1})", R"({"x": 1})"});
  EXPECT_THAT(compact.out, HasSubstr("leaves it at byte 5"));
  const ProgramRun lines =
      Constrain({"--json-schema", file, "--whitespace", "\\n",
                 "{\n\"x\"\n:\n1\n}", R"({"x":1})"});
  EXPECT_THAT(lines.out, HasSubstr("yes       \"{\\n\\\"x\\\"\\n:\\n1\\n}\""));
  EXPECT_THAT(lines.out, HasSubstr("leaves it at byte 1, after \"{\""));
  // Samples are JSON.
  const ProgramRun samples =
      Constrain({"--json-schema", file, "--json", "--samples", "20"});
  ASSERT_EQ(samples.exit_code, 0) << samples.err;
  const json::value language = ParseLines(samples.out)[0].at("language");
  for (const json::value& sample : language.at("samples").as_array()) {
    EXPECT_TRUE(ParseJson(std::string(sample.as_string())).ok());
  }
}

TEST(ConstrainTest, SamplesAreShort) {
  const std::string file =
      WriteSchema(R"({"type": "string", "minLength": 100000})");
  const ProgramRun run = Constrain({"--json-schema", file, "--samples", "5"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              EndsWith("a text has at least 100002 bytes\n"
                       "sample    5 of 5 are left out, which have more than "
                       "4096 bytes, or too many ways to be read\n"));
  const ProgramRun some =
      Constrain({"--regex", "a{5000}|b", "--json", "--samples", "50"});
  const json::value language = ParseLines(some.out)[0].at("language");
  const int64_t num_left_out = language.at("num_samples_left_out").as_int64();
  const json::array& samples = language.at("samples").as_array();
  EXPECT_GT(num_left_out, 0);
  EXPECT_GT(samples.size(), 0);
  EXPECT_EQ(std::ssize(samples) + num_left_out, 50);
  for (const json::value& sample : samples) EXPECT_EQ(sample, "b");
  EXPECT_THAT(Constrain({"--regex", "a{4096}", "--samples", "1"}).out,
              HasSubstr("sample    \"aaaa"));
}

TEST(ConstrainTest, ASchemaOrGrammarMayBeTheValueOfItsOption) {
  const std::string schema = R"( {"type": "integer"})";
  EXPECT_THAT(Constrain({"--json-schema", schema, "7"}).out,
              HasSubstr("yes       \"7\""));
  EXPECT_THAT(Constrain({"--json-schema", R"({"type": )", "7"}).err,
              ::testing::StartsWith("espalier: --json-schema: "));
  EXPECT_THAT(Constrain({"--grammar", R"(root ::= "a" "b"?)", "ab"}).out,
              HasSubstr("yes       \"ab\""));
}

TEST(ConstrainTest, ErrorsOfASchemaHaveItsPointer) {
  const ProgramRun run = Constrain(
      {"--json-schema",
       WriteSchema(R"js({"properties": {"a": {"pattern": "(?=b)"}}})js")});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err,
              HasSubstr("--json-schema: #/properties/a/pattern: at byte 0"));
  EXPECT_THAT(Constrain({"--json-schema", "nope.json"}).err,
              HasSubstr("--json-schema: no such file: nope.json"));
  EXPECT_THAT(Constrain({"--regex", "a", "--no-spaces"}).err,
              HasSubstr("--no-spaces needs --json-schema"));
  EXPECT_THAT(Constrain({"--regex", "a", "--whitespace", " "}).err,
              HasSubstr("--whitespace needs --json-schema"));
  EXPECT_THAT(Constrain({"--json-schema", "{}", "--whitespace", "x"}).err,
              HasSubstr("--whitespace must be bounded, none or a regular "
                        "expression of white space: a text that it matches "
                        "has \"x\""));
  EXPECT_THAT(
      Constrain({"--json-schema", "{}", "--whitespace", " ", "--no-spaces"})
          .err,
      HasSubstr("--no-spaces and --whitespace exclude each other"));
}

TEST(ConstrainTest, TextsOfAGrammarAreThoseOfItsRoot) {
  const std::string file = ::testing::TempDir() + "/pairs.gbnf";
  std::ofstream(file) << "root ::= \"(\" root \")\" | [xy]+ # pairs\n";
  const ProgramRun run =
      Constrain({"--grammar", file, "((xy))", "((x)", "(z)"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.out, HasSubstr("1 call up to 64 deep"));
  EXPECT_THAT(run.out, HasSubstr("a text has at least 1 bytes"));
  EXPECT_THAT(run.out, HasSubstr("yes       \"((xy))\"\n"));
  EXPECT_THAT(run.out, HasSubstr("no        \"((x)\": ends early, at byte 4, "
                                 "where \")\" may follow"));
  EXPECT_THAT(run.out, HasSubstr("leaves it at byte 1, after \"(\", where "
                                 "\"(\", \"x\" or \"y\" may follow"));
  const ProgramRun samples =
      Constrain({"--grammar", file, "--json", "--samples", "20", "(x)", "-m",
                 SourcePath("models/en-fr")});
  ASSERT_EQ(samples.exit_code, 0) << samples.err;
  const std::vector<json::value> lines = ParseLines(samples.out);
  const json::value language = lines[0].at("language");
  EXPECT_EQ(language.at("calls"), 1);
  EXPECT_EQ(language.at("max_depth"), 64);
  EXPECT_EQ(language.at("min_tokens"), 1);
  EXPECT_EQ(language.at("samples").as_array().size(), 20);
  EXPECT_EQ(lines[1].at("num_legal_tokens").as_int64(),
            std::ssize(lines[1].at("tokens").as_array()));
  std::ofstream(file) << "root ::= a\na ::= root \"x\" | \"y\"";
  EXPECT_THAT(Constrain({"--grammar", file}).err,
              HasSubstr("--grammar: rule \"a\" is left recursive"));
  std::string ambiguous = "root ::= \"c\"";
  for (int i = 0; i < 300; ++i) ambiguous += Concat(" | s", i, " \"q\"");
  for (int i = 0; i < 300; ++i) {
    ambiguous += Concat("\ns", i, " ::= \"a\" root \"", i, "\" | \"b\"");
  }
  std::ofstream(file) << ambiguous;
  EXPECT_THAT(Constrain({"--grammar", file, "b"}).err,
              HasSubstr("--grammar is too ambiguous where a text begins"));
  EXPECT_THAT(Constrain({"--grammar", "nope.gbnf"}).err,
              HasSubstr("--grammar: no such file: nope.gbnf"));
}

TEST(ConstrainTest, TextMayStandBeforeAMarker) {
  const std::vector<std::string> start = {"--choice", "Yes", "--start-after",
                                          "</think>"};
  const auto run = [&](std::vector<std::string> args) {
    args.insert(args.begin(), start.begin(), start.end());
    return Constrain(std::move(args));
  };
  const ProgramRun texts =
      run({"Hm.</think>\n\nYes", "</think>Yes", "Yes", "Hm.</think>No"});
  EXPECT_EQ(texts.exit_code, 1) << texts.err;
  EXPECT_THAT(texts.out, HasSubstr("a text has at least 11 bytes"));
  EXPECT_THAT(texts.out, HasSubstr("yes       \"Hm.</think>\\n\\nYes\"\n"));
  EXPECT_THAT(texts.out, HasSubstr("yes       \"</think>Yes\"\n"));
  EXPECT_THAT(texts.out, HasSubstr("no        \"Yes\": ends early"));
  EXPECT_THAT(texts.out, HasSubstr("no        \"Hm.</think>No\": leaves it"));
  EXPECT_EQ(run({"-m", SourcePath("models/en-fr"), "Hm.</think>Yes"}).exit_code,
            0);
  const auto error = [&](const std::string& marker) {
    return Constrain({"--regex", "a", "-m", SourcePath("models/en-fr"),
                      "--start-after", marker})
        .err;
  };
  EXPECT_THAT(error("</s>"),
              HasSubstr("--start-after must not be a special token of the "
                        "model, which no text spells, got \"</s>\""));
  EXPECT_THAT(error("\xFF"), HasSubstr("--start-after is not UTF-8"));
  EXPECT_THAT(error(std::string(257, 'a')),
              HasSubstr("--start-after must have at most 256 bytes, got 257"));
}

TEST(ConstrainTest, ErrorsNameTheOption) {
  const auto error = [](std::vector<std::string> args,
                        const std::string& input = "") {
    const ProgramRun run = Constrain(std::move(args), input);
    EXPECT_EQ(run.exit_code, 2) << run.out;
    return run.err;
  };
  EXPECT_THAT(
      error({"--regex", "(a"}),
      EndsWith("--regex: at byte 0: the group is not closed by \")\"\n"));
  EXPECT_THAT(error({"a"}),
              HasSubstr("--regex, --choice, --json-schema, --grammar, "
                        "--must-contain or --items must be given, one of "
                        "these, got none"));
  EXPECT_THAT(error({"--must-contain", "b", "--regex", "a*"}),
              EndsWith("--must-contain: no text of the language contains all "
                       "words\n"));
  EXPECT_THAT(error({"--must-contain", "b", "--items", "x"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(error({"--regex", "a", "--seed", "-1"}),
              HasSubstr("--seed must be an integer in [0, "));
  EXPECT_THAT(error({"--regex", "a", "--choice", "b"}), HasSubstr("got 2"));
  EXPECT_THAT(error({"--choice", "a", "--choice", ""}),
              HasSubstr("--choice must not be empty"));
  EXPECT_THAT(error({"--regex", "a", "-m", "nope"}), HasSubstr(" -m: "));
  EXPECT_THAT(
      error({"--regex", "漢", "-m", SourcePath("tests/data/text_models/t5")}),
      HasSubstr(" -m: the vocabulary can spell no text of the language"));
  EXPECT_THAT(error({"--regex", "a", "-i", "nope"}), HasSubstr(" -i: "));
  EXPECT_THAT(error({"--regex", "a", "b", "-i", "-"}),
              HasSubstr("give texts or -i, not both"));
  EXPECT_THAT(Constrain({"--regex", "a", "-"}, "{\"text\": \"b\"}").out,
              HasSubstr("no        \"b\""));
  const ProgramRun line =
      Constrain({"--regex", "a", "-i", "-"}, "{\"txt\": 1}\n{\"text\": \"a\"}");
  EXPECT_EQ(line.exit_code, 1);
  EXPECT_THAT(line.err, HasSubstr("stdin:1: unknown field \"txt\""));
}

}  // namespace
}  // namespace espalier::testing
