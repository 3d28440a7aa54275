// Catalogues of items on the command line: --items of generate, batch, serve
// and constrain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tests/cli/program.h"
#include "tests/numpy_file.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ItemsTest : public ::testing::Test {
 protected:
  ProgramRun Run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin() + 1, {"-m", SourcePath("models/en-fr")});
    return RunEspalier(args, input);
  }

  const ScratchDirectory scratch_;
  const std::string cities_ = scratch_.Write(
      "cities.jsonl", "\"Paris\"\n\"Lyon\"\n[337, 2707]\n\"La gare\"\n");
};

TEST_F(ItemsTest, TheOnlyCatalogueIsThatOfAllTexts) {
  const ProgramRun run =
      Run({"generate", "--items", "cities=" + cities_, "--num-beams", "6", "-n",
           "6", "--early-stopping", "never", "Where is the station?"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("Paris"));
  EXPECT_THAT(run.out, HasSubstr("Lyon"));
  EXPECT_THAT(run.out, HasSubstr("La gare"));
  EXPECT_EQ(std::ranges::count(run.out, '\n'), 5) << run.out;
}

TEST_F(ItemsTest, AFileOfNumPyIsACatalogue) {
  const std::string ids = scratch_.Write(
      "ids.npy", NumpyFile<int16_t>("<i2", "(2, 2)", {337, 2707, 338, -1}));
  const ProgramRun run =
      Run({"batch", "--items", "ids=" + ids},
          R"({"prompt": "Where is the station?", "params": {"num_beams": 6, )"
          R"("n": 6, "early_stopping": "never", "constraint": )"
          R"({"items": "ids"}}})"
          "\n");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  std::set<std::string> found;
  const json::value line = ParseLines(run.out).at(0);
  for (const json::value& hypothesis : line.at("hypotheses").as_array()) {
    found.insert(WriteJson(hypothesis.at("tokens").as_array().at(0)));
  }
  EXPECT_EQ(found, (std::set<std::string>{"337", "338"}));
}

TEST_F(ItemsTest, LinesAreCheckedAsThoseOfTheCatalogue) {
  const std::string lines = "[337, 2707]\n\n\"Lyon\"\n[1.5]\n\"Rome\"\n";
  const ProgramRun run = Run({"constrain", "--items", cities_, "-"}, lines);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.out, HasSubstr("yes       [337, 2707]"));
  EXPECT_THAT(run.out, HasSubstr("\nno "));
  EXPECT_THAT(run.err, HasSubstr("stdin:4: item[0] must be"));
  const ProgramRun file = Run({"constrain", "--items", cities_, "-i",
                               scratch_.Write("x.jsonl", lines)});
  EXPECT_EQ(file.exit_code, 1);
  EXPECT_THAT(file.err, HasSubstr("x.jsonl:4: item[0] must be"));
}

TEST_F(ItemsTest, ARequestMayNameOneAndExcludeItems) {
  const ProgramRun run = Run(
      {"batch", "--items", "cities=" + cities_, "--items", "more=" + cities_},
      R"({"prompt": "Where is the station?", "params": {"num_beams": 6, )"
      R"("n": 6, "early_stopping": "never", "constraint": {"items": "more", )"
      R"("exclude": ["Paris", [337, 2707]]}}})"
      "\n");
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, Not(HasSubstr("Paris")));
  EXPECT_THAT(run.out, HasSubstr("Lyon"));
  const json::value line = ParseLines(run.out).at(0);
  EXPECT_EQ(line.at("hypotheses").as_array().size(), 2);
}

// Such a field lets texts through that are no items.
TEST_F(ItemsTest, CataloguesAreRefusedWithAnotherFieldThatRestricts) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--choice", "Marseille"}, "--choice"},
      {{"--must-contain", "a"}, "--must-contain"},
      {{"--constraint", R"({"regex": "a"})"}, "--constraint"},
      {{"--regex", "a", "--items", "more=" + cities_}, "--regex"},
      {{"--allowed-sequences", "[[7]]"}, "--allowed-sequences"},
      {{"--allowed-token-ids", "7"}, "--allowed-token-ids"}};
  for (const auto& [options, name] : cases) {
    std::vector<std::string> args = {"generate", "--items",
                                     "cities=" + cities_};
    args.insert(args.end(), options.begin(), options.end());
    args.push_back("No.");
    const ProgramRun run = Run(args);
    EXPECT_EQ(run.exit_code, 2) << run.out;
    EXPECT_EQ(run.err, "espalier: --items must be left out with " + name +
                           ", which names no catalogue\n");
  }
}

TEST_F(ItemsTest, ANoteSaysThatNoneOfSeveralCataloguesIsNamed) {
  std::vector<std::string> args = {"generate", "--items", "a.b=" + cities_,
                                   "--items", "more=" + cities_};
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = args;
    all.insert(all.end(), more.begin(), more.end());
    all.push_back("It rains.");
    ProgramRun printed = Run(all);
    EXPECT_EQ(printed.exit_code, 0) << printed.err;
    return printed;
  };
  const ProgramRun free = run({});
  EXPECT_THAT(free.out, HasSubstr("pleut"));
  EXPECT_THAT(free.err,
              HasSubstr("espalier: note: none of the 2 catalogues of --items "
                        "is named, so texts are not restricted to items; "
                        "--constraint '{\"items\": \"a.b\"}' names one\n"));
  EXPECT_EQ(run({"--constraint", R"({"items": "a.b"})"}).err, "");
  args = {"generate", "--items", "cities=" + cities_};
  EXPECT_EQ(run({}).err, "");
}

TEST_F(ItemsTest, ErrorsNameTheOptionTheFileAndTheLine) {
  const auto error = [&](std::vector<std::string> args) {
    args.insert(args.begin(), "generate");
    args.push_back("Hello");
    const ProgramRun run = Run(args);
    EXPECT_EQ(run.exit_code, 2) << run.out;
    return run.err;
  };
  EXPECT_THAT(error({"--items", cities_}),
              HasSubstr("--items must be NAME=FILE, got \""));
  EXPECT_THAT(error({"--items", "a b=" + cities_}),
              HasSubstr("--items: the name of a catalogue must be 1 to 64 "
                        "letters, digits"));
  EXPECT_THAT(error({"--items", "..=" + cities_}),
              HasSubstr("--items: the name of a catalogue must not be \".\" or "
                        "\"..\", got \"..\""));
  EXPECT_THAT(error({"--items", "a=" + cities_, "--items", "a=" + cities_}),
              HasSubstr("--items must have each name once, got \"a\" twice"));
  EXPECT_THAT(
      error({"--items", "a=" + scratch_.path("none.jsonl")}),
      HasSubstr("--items: no such file: " + scratch_.path("none.jsonl")));
  const std::string bad = scratch_.Write("bad.jsonl", "[7]\n[7, 6000]\n");
  EXPECT_THAT(error({"--items", "a=" + bad}),
              HasSubstr("--items: " + bad +
                        ": line 2: item[1] must be a token id in [0, 6000), "
                        "got 6000"));
  const std::string ended = scratch_.Write("ended.jsonl", "[7]\n[7, 2, 8]\n");
  const std::string ends =
      "--items: " + ended +
      ": line 2: item[1], which is not its last token, must not be an id that "
      "ends the model's output, got 2";
  EXPECT_THAT(error({"--items", "a=" + ended}), HasSubstr(ends));
  EXPECT_THAT(Run({"constrain", "--items", ended}).err, HasSubstr(ends));
  EXPECT_EQ(RunEspalier({"constrain", "--items", ended}).exit_code, 0);
  const std::string none =
      scratch_.Write("none.json", R"({"eos_token_id": []})");
  const ProgramRun run = Run({"generate", "--items", "a=" + ended,
                              "--generation-config", none, "Hello"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(error({"--items", "a=" + ended, "--generation-config", none,
                     "--eos-token-id", "2"}),
              HasSubstr("an item of \"a\" must not have an id that ends the "
                        "output before its last token, got 2 as token 1 of "
                        "[7, 2, 8]"));
  const std::string pair = scratch_.Write("pair.jsonl", "[337, 2707]\n");
  EXPECT_THAT(error({"--items", "a=" + pair, "--max-new-tokens", "1"}),
              HasSubstr("--max-new-tokens must be at least 2, which an item of "
                        "--items needs, got 1\n"));
  EXPECT_THAT(error({"--items", "a=" + pair, "--stop-token-ids", "337"}),
              HasSubstr("--items: an item of \"a\" must not have an id that "));
  EXPECT_THAT(error({"--items", "a=" + cities_, "--items", "b=" + cities_,
                     "--constraint", R"({"items": "c"})"}),
              HasSubstr("--constraint: items must name a catalogue, of "
                        "which there are "
                        "\"a\", \"b\", got \"c\""));
  EXPECT_THAT(error({"--items", "a=" + cities_, "--start-after", "x"}),
              HasSubstr("--start-after must be unset with --items, got \"x\""));
}

// The config has the ids that end outputs, which items are checked for.
TEST_F(ItemsTest, ConstrainRefusesABadConfigButNeedsNone) {
  std::filesystem::create_symlink(SourcePath("models/en-fr/tokenizer.model"),
                                  scratch_.path("tokenizer.model"));
  const std::vector<std::string> args = {"constrain", "--items",       cities_,
                                         "-m",        scratch_.path(), "Paris"};
  const ProgramRun without = RunEspalier(args);
  EXPECT_EQ(without.exit_code, 0) << without.err;
  scratch_.Write("config.json", "{");
  const ProgramRun bad = RunEspalier(args);
  EXPECT_EQ(bad.exit_code, 2) << bad.out;
  EXPECT_THAT(bad.err, StartsWith("espalier: -m: "));
  EXPECT_THAT(bad.err, HasSubstr("config.json: not JSON"));
}

TEST_F(ItemsTest, ConstrainSaysWhichItemsThereAre) {
  const std::string songs =
      scratch_.Write("songs.jsonl", "[7, 8]\n[7, 9, 10]\n[11]\n");
  const ProgramRun run =
      RunEspalier({"constrain", "--items", songs, "[7, 8]", "[7]", "[7, 10]"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  EXPECT_THAT(run.out, StartsWith("items     3 items, the longest of 3 tokens; "
                                  "6 nodes, "));
  EXPECT_THAT(run.out, HasSubstr("yes       [7, 8]\n"));
  EXPECT_THAT(run.out, HasSubstr("no        [7]: begins one, and is none\n"));
  EXPECT_THAT(run.out,
              HasSubstr("no        [7, 10]: leaves them at token 1, 10\n"));
  const ProgramRun in_json = RunEspalier(
      {"constrain", "--items", songs, "--json", "--samples", "9", "[11]"});
  EXPECT_EQ(in_json.exit_code, 0) << in_json.err;
  const auto lines = ParseLines(in_json.out);
  EXPECT_EQ(lines.at(0).at("items").at("num_items"), 3);
  EXPECT_EQ(lines.at(0).at("items").at("samples").as_array().size(), 9);
  EXPECT_EQ(lines.at(1).at("is_item"), true);
  const ProgramRun texts =
      Run({"constrain", "--items", cities_, "Paris", "Nice"});
  EXPECT_EQ(texts.exit_code, 1) << texts.err;
  EXPECT_THAT(texts.out, HasSubstr("\"Paris\"\n"));
  EXPECT_THAT(
      RunEspalier({"constrain", "--items", cities_}).err,
      HasSubstr("--items: " + cities_ + ": line 1: a text needs a tokenizer"));
  EXPECT_EQ(RunEspalier({"constrain", "--items", songs, "[7]", "[7, 8.5]"}).err,
            "espalier: \"[7, 8.5]\": item[1] must be an integer, got 8.5\n");
}

}  // namespace
}  // namespace espalier::testing
