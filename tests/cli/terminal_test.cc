// What people see who run espalier at a terminal, and pipes do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/live_program.h"
#include "tests/cli/program.h"
#include "text/tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

const std::string kEscape = "\x1b";

// --allowed-sequences that leaves one text to generate: these bytes.
std::string Bytes(const std::vector<const char*>& pieces) {
  const auto tokenizer =
      Tokenizer::Load(ModelDirectory("en-fr") + "/tokenizer.model").value();
  json::array sequence;
  for (const char* piece : pieces) {
    sequence.push_back(tokenizer->PieceToId(piece).value());
  }
  return WriteJson(json::array{std::move(sequence)});
}

// Clears the screen, é, the C1 control that is ESC and [, end of line, DEL.
std::vector<std::string> ControlArgs(const char* more = nullptr) {
  std::vector<std::string> args = {
      "generate",
      "-m",
      ModelDirectory("en-fr"),
      "It\x1b[31m rains.",
      "--allowed-sequences",
      Bytes({"<0x1B>", "<0x5B>", "<0x32>", "<0x4A>", "<0xC3>", "<0xA9>",
             "<0xC2>", "<0x9B>", "<0x0D>", "<0x7F>", "<0x09>", "<0x00>"})};
  if (more != nullptr) args.push_back(more);
  return args;
}
constexpr char kShown[] = "\\u001b[2J\u00e9\\u009b\\u000d\\u007f\t\\u0000";

ProgramRun RunOnTerminal(const std::vector<std::string>& args) {
  return LiveProgram(args, LiveProgram::Ends::kTerminal).Wait();
}

TEST(TerminalTest, ControlCharactersAreShownToATerminalAndSentToAPipe) {
  const ProgramRun shown = RunOnTerminal(ControlArgs());
  EXPECT_EQ(shown.exit_code, 0) << shown.out;
  EXPECT_THAT(shown.out, HasSubstr(kShown));
  EXPECT_THAT(shown.out, HasSubstr("It\\u001b[31m rains."));
  EXPECT_THAT(shown.out, Not(HasSubstr(kEscape)));

  const ProgramRun sent = RunEspalier(ControlArgs());
  EXPECT_THAT(sent.out,
              HasSubstr(std::string("\x1b[2J\u00e9\u009b\r\x7f\t\0", 12)));
  EXPECT_THAT(sent.out, HasSubstr("It\x1b[31m rains."));
}

TEST(TerminalTest, AStreamShowsThemToo) {
  const ProgramRun shown = RunOnTerminal(ControlArgs("--stream"));
  EXPECT_EQ(shown.exit_code, 0) << shown.out;
  EXPECT_THAT(shown.out, HasSubstr(std::string("  ") + kShown));
  EXPECT_THAT(shown.out, Not(HasSubstr(kEscape)));
}

TEST(TerminalTest, SoDoMessages) {
  const ProgramRun run = RunOnTerminal(
      {"generate", "-m", ModelDirectory("en-fr"), "\x1b[31m", "\xff\xc2"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("\"\\xff\\xc2\": prompt is not UTF-8"));
  EXPECT_THAT(run.out, Not(HasSubstr(kEscape)));
}

TEST(TerminalTest, LinesOfBatchStayTheSameJson) {
  const ScratchDirectory scratch;
  const std::string input = scratch.Write(
      "in", "{\"id\": \"\u009b2J\u00e9\", \"prompt\": \"No.\"}\n");
  const ProgramRun run =
      RunOnTerminal({"batch", "-m", ModelDirectory("en-fr"), "-i", input});
  EXPECT_THAT(run.out, Not(HasSubstr("\u009b")));
  // Progress may come before it, and ends with the sequence that erases it.
  const std::string line = run.out.substr(run.out.find('{'));
  EXPECT_EQ(ParseLines(line).at(0).at("id"), json::value("\u009b2J\u00e9"));
}

// Screen lines as progress leaves them, one for each time it is overwritten.
std::vector<std::string> ProgressLines(std::string out) {
  const std::string erase = "\r\x1b[K";
  std::vector<std::string> lines;
  for (size_t at = out.find(erase); at != std::string::npos;) {
    const size_t begin = at + erase.size();
    at = out.find(erase, begin);
    lines.push_back(out.substr(begin, at - begin));
  }
  return lines;
}

TEST(TerminalTest, LongRunsTellHowFarTheyAre) {
  std::string lines;
  for (int i = 0; i < 80; ++i) {
    lines += R"({"prompt": "Where is it, and who has seen it?",)"
             R"( "params": {"num_beams": 16}})"
             "\n";
  }
  const ScratchDirectory scratch;
  const std::vector<std::string> args = {"batch",
                                         "-m",
                                         ModelDirectory("en-fr"),
                                         "-i",
                                         scratch.Write("in", lines),
                                         "--max-running",
                                         "2",
                                         "-o",
                                         scratch.path("out")};
  const std::vector<std::string> progress =
      ProgressLines(RunOnTerminal(args).out);
  ASSERT_GE(progress.size(), 2u);
  EXPECT_EQ(progress.back(), "");  // nothing stays
  for (const std::string& line : progress) EXPECT_LT(line.size(), 80u);
  EXPECT_THAT(progress.front(),
              MatchesRegex("[0-9]+(/80)? requests?, [0-9]+/s"));
  EXPECT_EQ(RunEspalier(args).err, "");
}

}  // namespace
}  // namespace espalier::testing
