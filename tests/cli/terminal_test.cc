// Output at a terminal, where it differs from output to pipes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/live_program.h"
#include "tests/cli/program.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::ContainsRegex;
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

// Removes the sequences by which a slow run erases its progress line.
std::string WithoutErasing(std::string out) {
  const std::string erase = "\r\x1b[K";
  for (size_t at; (at = out.find(erase)) != std::string::npos;) {
    out.erase(at, erase.size());
  }
  return out;
}

ProgramRun RunOnTerminal(const std::vector<std::string>& args) {
  return LiveProgram(args, LiveProgram::Ends::kTerminal).Wait();
}

TEST(TerminalTest, ControlCharactersAreShownToATerminalAndSentToAPipe) {
  const ProgramRun shown = RunOnTerminal(ControlArgs());
  EXPECT_EQ(shown.exit_code, 0) << shown.out;
  EXPECT_THAT(shown.out, HasSubstr(kShown));
  EXPECT_THAT(shown.out, HasSubstr("It\\u001b[31m rains."));
  EXPECT_THAT(WithoutErasing(shown.out), Not(HasSubstr(kEscape)));

  const ProgramRun sent = RunEspalier(ControlArgs());
  EXPECT_THAT(sent.out,
              HasSubstr(std::string("\x1b[2J\u00e9\u009b\r\x7f\t\0", 12)));
  EXPECT_THAT(sent.out, HasSubstr("It\x1b[31m rains."));
}

TEST(TerminalTest, AStreamShowsThemToo) {
  const ProgramRun shown = RunOnTerminal(ControlArgs("--stream"));
  EXPECT_EQ(shown.exit_code, 0) << shown.out;
  EXPECT_THAT(shown.out, HasSubstr(std::string("  ") + kShown));
  EXPECT_THAT(WithoutErasing(shown.out), Not(HasSubstr(kEscape)));
}

// Holds for a streamed text, too, in which each token is a byte.
TEST(TerminalTest, FurtherLinesOfATextStandUnderItsFirst) {
  const std::vector<std::string> args = {
      "generate",
      "-m",
      ModelDirectory("en-fr"),
      "It rains.",
      "--allowed-sequences",
      Bytes({"<0x41>", "<0x0A>", "<0x0A>", "<0x42>", "<0x0A>", "<0x43>"})};
  for (const bool is_stream : {false, true}) {
    std::vector<std::string> given = args;
    if (is_stream) given.push_back("--stream");
    const std::string grown = is_stream ? "  A\n\n  B\n  C\n" : "";
    const std::string sent = RunEspalier(given).out;
    EXPECT_THAT(sent, MatchesRegex("It rains\\.\n" + grown +
                                   " +-[0-9]+\\.[0-9]{4}  A\n\n {12}B\n"
                                   " {12}C\n"));
    // A terminal makes \r\n of \n.
    EXPECT_THAT(RunOnTerminal(given).out,
                HasSubstr("  A\r\n\r\n            B\r\n            C\r\n"));
  }
}

TEST(TerminalTest, PiecesOfASampleStandUnderItsNumber) {
  const ProgramRun run =
      RunEspalier({"generate", "-m", ModelDirectory("en-fr"), "It rains.",
                   "--stream", "--do-sample", "-n", "2", "--allowed-sequences",
                   Bytes({"<0x41>", "<0x0A>", "<0x42>"})});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* const number : {"0", "1"}) {
    EXPECT_THAT(run.out,
                ContainsRegex(std::string("  \\[") + number +
                              "\\] +-?[0-9]+\\.[0-9]{4}  A\n {17}B\n"));
  }
}

TEST(TerminalTest, SoDoMessages) {
  const ProgramRun run = RunOnTerminal(
      {"generate", "-m", ModelDirectory("en-fr"), "\x1b[31m", "\xff\xc2"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("\"\\xff\\xc2\": prompt is not UTF-8"));
  EXPECT_THAT(WithoutErasing(run.out), Not(HasSubstr(kEscape)));
}

TEST(TerminalTest, CommandsThatReadLinesFromATerminalSayThatTheyWait) {
  for (const char* command : {"batch", "tokenize"}) {
    LiveProgram program({command, "-m", ModelDirectory("en-fr")},
                        LiveProgram::Ends::kTerminal);
    EXPECT_TRUE(
        program.WaitFor("reading lines from the terminal, until Ctrl-D"));
    program.Send(SIGINT);
    program.Wait();
  }
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

// Returns the terminal's output up to the end of the next answer.
std::string ReadAnswer(LiveProgram& program) {
  std::string text;
  while (text.find("hypotheses") == std::string::npos) {
    text += program.ReadLine() + "\n";
  }
  return text;
}

TEST(TerminalTest, LongRunsTellHowFarTheyAreAndEraseItAgain) {
  LiveProgram program({"batch", "-m", ModelDirectory("en-fr")},
                      LiveProgram::Ends::kTerminal);
  const std::string line = R"({"prompt": "No."})"
                           "\n";
  program.Write(line);
  ReadAnswer(program);
  usleep(150'000);  // longer than it waits between two reports
  program.Write(line);
  EXPECT_THAT(ReadAnswer(program),
              ContainsRegex("\r\x1b\\[K2 requests, [0-9]+/s\r\x1b\\[K\\{"));
  program.Write("\x04");
  EXPECT_EQ(program.Wait().exit_code, 0);
}

// One search that takes very long, of which nothing else would be seen.
TEST(TerminalTest, OneLongRequestTellsThatItRuns) {
  LiveProgram program({"generate", "-m", ModelDirectory("en-fr"), "--num-beams",
                       "640", "--min-new-tokens", "250", "It rains."},
                      LiveProgram::Ends::kTerminal);
  EXPECT_TRUE(program.WaitFor("\r\x1b[K0/1 request, 0/s, ", " s\r"));
  program.Send(SIGINT);
  EXPECT_THAT(program.Wait().out,
              ContainsRegex("\r\x1b\\[K0/1 request, 0/s, [0-9]+ s\r"));
}

// A wrapped line would not be erased.
TEST(TerminalTest, ProgressStaysWithinTheTerminalsWidth) {
  const ScratchDirectory scratch;
  const std::string line =
      "{\"prompt\": \"No.\", \"params\": {\"min_tokens\": 250}}\n";
  const std::string input = scratch.Write("in", line + line + line + line);
  const std::string out =
      LiveProgram({"batch", "-m", ModelDirectory("en-fr"), "--max-running", "1",
                   "-i", input, "-o", scratch.path("out")},
                  LiveProgram::Ends::kNarrowTerminal)
          .Wait()
          .out;
  constexpr std::string_view kBegin = "\r\x1b[K";
  size_t longest = 0;
  for (size_t at = out.find(kBegin); at != std::string::npos;) {
    const size_t begin = at + kBegin.size();
    at = out.find(kBegin, begin);
    if (at == std::string::npos) break;  // what follows stays
    longest = std::max(longest, at - begin);
  }
  EXPECT_EQ(longest, 11u) << out;
}

}  // namespace
}  // namespace espalier::testing
