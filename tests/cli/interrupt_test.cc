// Ctrl-C, SIGTERM and closed pipes in the middle of espalier's work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stopwatch.h"
#include "base/wording.h"
#include "tests/cli/live_program.h"
#include "tests/cli/program.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using enum LiveProgram::Ends;

// Takes as long as the model's context lets it.
constexpr char kLongLine[] =
    R"({"id": "long", "prompt": "It rains.",)"
    R"( "params": {"num_beams": 64, "ignore_eos": true, "max_tokens": 200}})"
    "\n";
constexpr char kShortLine[] = R"({"id": "short", "prompt": "It rains."})"
                              "\n";

std::vector<std::string> Batch(std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"batch", "-m", ModelDirectory("en-fr")});
  return more;
}

TEST(InterruptTest, BatchWritesWhatHasFinishedAndEnds) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const ScratchDirectory scratch;
    const std::string trace = scratch.path("trace");
    LiveProgram program(Batch({"--trace", trace}), kPipes);
    program.Write(kShortLine);
    EXPECT_THAT(program.ReadLine(), HasSubstr("Il pleut."));
    program.Write(std::string(kLongLine) + kShortLine);
    while (ReadText(trace).find("\"request\": 2") == std::string::npos) {
      usleep(1000);
    }
    program.Send(signal);
    const ProgramRun run = program.Wait();  // its input is still open
    EXPECT_EQ(run.exit_code, 128 + signal);
    // The long one has no line; the last may have made it.
    EXPECT_THAT(run.out, Not(HasSubstr("long")));
    EXPECT_THAT(run.err, HasSubstr("interrupted: 3 requests read, "));
    const ProgramRun drawn = RunEspalier({"trace", trace});
    EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
    EXPECT_THAT(drawn.out, HasSubstr("\nCANCELLED: interrupted\n"));
  }
}

// A step of 130,000 tokens on one thread, which takes far longer.
TEST(InterruptTest, ASignalEndsTheProgramWithinALongStep) {
  std::string tokens = "1, 4";
  for (int i = 0; i < 850; ++i) tokens += ", 264";
  const std::string line = Concat("{\"prompt_tokens\": [", tokens, "]}\n");
  constexpr int kNumLines = 150;
  std::string lines;
  for (int i = 0; i < kNumLines; ++i) lines += line;
  const ScratchDirectory scratch;
  const std::string trace = scratch.path("trace");
  LiveProgram program(
      Batch({"--max-step-tokens", "1000000", "--threads", "1", "--trace", trace,
             "--input", scratch.Write("in", lines)}),
      kPipes);
  // All but those whose events are not written yet have been admitted.
  const std::string admitted = Concat("\"request\": ", kNumLines - 10);
  while (ReadText(trace).find(admitted) == std::string::npos) usleep(10'000);
  usleep(200'000);
  program.Send(SIGTERM);
  const Stopwatch watch;
  const ProgramRun run = program.Wait();
  // Sanitizers slow the steps down as much as the end.
  EXPECT_LT(watch.Elapsed(), absl::Seconds(Cases(2, 8)));
  EXPECT_EQ(run.exit_code, 128 + SIGTERM);
  EXPECT_EQ(run.err, "espalier: interrupted: 150 requests read, 0 answered\n");
}

TEST(InterruptTest, WhatHasFinishedIsInItsFileWhateverComes) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("answers.jsonl", "");
  LiveProgram program(Batch({"--output", file}), kPipes);
  program.Write(kShortLine);
  while (!ReadText(file).ends_with("}\n")) usleep(1000);
  program.Send(SIGKILL);
  EXPECT_EQ(program.Wait().exit_code, 128 + SIGKILL);
  EXPECT_THAT(ReadText(file), HasSubstr("Il pleut."));
}

TEST(InterruptTest, BatchThatOnlyWaitsForInputEndsAtOnce) {
  LiveProgram program(Batch(), kPipes);
  program.Write(kShortLine);
  program.ReadLine();
  program.Send(SIGINT);
  const ProgramRun run = program.Wait();
  EXPECT_EQ(run.exit_code, 130);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "espalier: interrupted: 1 request read, 1 answered\n");
}

// Returns when the program waits for its reader: when what waits in the pipe
// grows no more. Not all of its 16 pages need be filled wholly.
void FillPipe(const LiveProgram& program) {
  int num_unread = 0;
  for (int still = 0; num_unread < 30'000 || still < 50; ++still) {
    usleep(10'000);
    const int before = std::exchange(num_unread, program.NumUnread());
    if (num_unread != before) still = 0;
    ASSERT_LT(still, 60'000) << "only " << num_unread << " bytes come";
  }
}

TEST(InterruptTest, BatchThatWaitsForItsReaderEnds) {
  // All requests run together, end in the same step, and have long outputs for
  // little work.
  LiveProgram program(Batch({"--figures", "--max-step-tokens", "2000"}),
                      kPipes);
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    lines += R"({"prompt": "It rains.", "params": {"num_beams": 8, "n": 8,)"
             R"( "max_new_tokens": 2, "logprobs": 5}})"
             "\n";
  }
  program.Write(lines);
  FillPipe(program);
  program.Send(SIGTERM);
  usleep(500'000);  // reading at once could let it go on before it sees that
  const ProgramRun run = program.Wait();
  EXPECT_EQ(run.exit_code, 128 + SIGTERM) << run.err;
  // A result that was not written does not count as an answer.
  const auto num_answers = std::ranges::count(run.out, '\n');
  EXPECT_LT(num_answers, 40);
  EXPECT_THAT(run.err, StartsWith("espalier: interrupted: 40 requests read, " +
                                  std::to_string(num_answers) + " answered\n"));
  EXPECT_THAT(run.err,
              HasSubstr("\n" + Pluralize(num_answers, "request") + " in "));
}

TEST(InterruptTest, GeneratePrintsEachTextWhenItsTurnComes) {
  std::vector<std::string> args = {
      "generate",      "-m",  ModelDirectory("en-fr"),
      "--max-running", "1",   "--ignore-eos",
      "--max-tokens",  "200", "It rains."};
  args.insert(args.end(), 100, "No.");
  args.push_back("The last.");
  LiveProgram program(args, kPipes);
  EXPECT_EQ(program.ReadLine(), "It rains.");
  EXPECT_THAT(program.ReadLine(), StartsWith("  "));
  program.Send(SIGINT);
  const ProgramRun run = program.Wait();
  EXPECT_EQ(run.exit_code, 130);
  EXPECT_THAT(run.out, Not(HasSubstr("The last.")));
  // Texts printed before the signal, and until the program sees it.
  const auto num_printed = 1 + std::ranges::count(run.out, '\n') / 3;
  EXPECT_EQ(run.err, Concat("espalier: interrupted: 102 texts read, ",
                            num_printed, " answered\n"));
}

// One text of 400 KB: the signal finds it within a write, of its last text.
TEST(InterruptTest, GenerateThatWaitsForItsReaderEnds) {
  for (const char* how : {"--stream=false", "--stream"}) {
    const ScratchDirectory scratch;
    const std::string trace = scratch.path("trace.jsonl");
    LiveProgram program({"generate", "-m", ModelDirectory("en-fr"), how,
                         "--num-beams", "64", "-n", "64", "--max-tokens", "4",
                         "--logprobs", "64", "--trace", trace, "It rains."},
                        kPipes);
    FillPipe(program);
    program.Send(SIGINT);
    usleep(500'000);  // reading at once could let it go on before it sees that
    const ProgramRun run = program.Wait();
    EXPECT_EQ(run.exit_code, 130) << how;
    EXPECT_LT(run.out.size(), 100'000u);
    EXPECT_EQ(run.err, "espalier: interrupted: 1 text read, 0 answered\n");
    EXPECT_EQ(RunEspalier({"trace", trace}).exit_code, 0);
  }
}

// Reads up to a line that has `part`. Fails if none comes.
void ReadLinesUpTo(LiveProgram& program, const std::string& part) {
  std::string read;
  for (int i = 0; i < 100; ++i) {
    const std::string line = program.ReadLine();
    if (line.find(part) != std::string::npos) return;
    read += line + "\n";
  }
  FAIL() << "no line with " << part << " comes after\n" << read;
}

// Counts that an interrupted program reports.
struct Counts {
  int num_read = 0;
  int num_answered = 0;
};

// Runs `input | espalier generate ARGS`, one text at a time, and interrupts it
// when it has had the time to read `num_texts`: a second, or more if that was
// too little.
Counts InterruptGenerate(const std::string& input, const std::string& args,
                         int num_texts) {
  constexpr char kFormat[] =
      "espalier: interrupted: %d texts read, %d answered";
  Counts counts;
  for (int seconds = 1; counts.num_read < num_texts && seconds <= 32;
       seconds *= 2) {
    const std::string command = Concat(
        input, " | timeout -k 30 -s INT ", seconds, " '", ESPALIER_PROGRAM,
        "' generate --max-running 1 --ignore-eos --max-tokens 1000 -m '",
        ModelDirectory("en-fr"), "' ", args);
    const ProgramRun run = RunProgram("/bin/sh", {"-c", command}, "");
    const size_t told = run.err.find("espalier: interrupted: ");
    if (told == std::string::npos) continue;  // it did not listen yet
    sscanf(run.err.c_str() + told, kFormat, &counts.num_read,
           &counts.num_answered);
  }
  return counts;
}

TEST(InterruptTest, GenerateReadsNoMoreThanItHasRoomFor) {
  const std::pair<const char*, int> cases[] = {
      {"--num-beams 8 --stream=false", 4096}, {"--num-beams 8 --stream", 256}};
  for (const auto& [args, limit] : cases) {
    const Counts counts = InterruptGenerate("yes No.", args, limit);
    // Two more: the text that is printed, and one that waits for room.
    EXPECT_GE(counts.num_read, limit) << args;
    EXPECT_LE(counts.num_read, limit + counts.num_answered + 2) << args;
  }
}

// Texts that are too long for the model wait behind one that is not.
TEST(InterruptTest, GenerateHoldsNoMoreBytesThanItHasRoomFor) {
  const ScratchDirectory scratch;
  const std::string text =
      scratch.Write("text", std::string(4 << 20, 'a') + "\n");
  const std::string input =
      Concat("(echo No.; while cat '", text, "'; do :; done) 2>/dev/null");
  constexpr int kLimit = 16;  // in 64 MiB
  for (const char* how : Cases<std::vector<const char*>>(
           {"--stream=false", "--stream"}, {"--stream"})) {
    const Counts counts =
        InterruptGenerate(input, std::string("--num-beams 64 ") + how, kLimit);
    EXPECT_GE(counts.num_read, kLimit) << how;
    EXPECT_LE(counts.num_read, kLimit + counts.num_answered + 4) << how;
  }
}

TEST(InterruptTest, GenerateBeginsBeforeItsPipeEnds) {
  for (const char* how : {"--stream=false", "--stream"}) {
    LiveProgram program({"generate", "-m", ModelDirectory("en-fr"), how},
                        kPipes);
    program.Write("It rains.\n");
    EXPECT_EQ(program.ReadLine(), "It rains.");
    EXPECT_THAT(program.ReadLine(), HasSubstr("Il pleut."));
    program.Write("\nNo.\n");
    ASSERT_NO_FATAL_FAILURE(ReadLinesUpTo(program, "No."));
    program.CloseInput();
    EXPECT_EQ(program.Wait().exit_code, 0);
  }
}

TEST(InterruptTest, GenerateThatOnlyWaitsForInputEndsAtOnce) {
  for (const char* how : {"--stream=false", "--stream"}) {
    LiveProgram program({"generate", "-m", ModelDirectory("en-fr"), how},
                        kPipes);
    program.Write("It rains.\n");
    ASSERT_NO_FATAL_FAILURE(ReadLinesUpTo(program, "  -0.1034  Il"));
    program.Send(SIGTERM);
    const ProgramRun run = program.Wait();
    EXPECT_EQ(run.exit_code, 143);
    EXPECT_EQ(run.err, "espalier: interrupted: 1 text read, 1 answered\n");
  }
}

TEST(InterruptTest, GenerateEndsWhatItCannotWrite) {
  const ScratchDirectory scratch;
  const std::string trace = scratch.path("trace.jsonl");
  const std::string command =
      std::string(ESPALIER_PROGRAM) + " generate --max-running 1 --trace " +
      trace + " -m " + ModelDirectory("en-fr") +
      " --ignore-eos --max-tokens 200 'It rains.' 'No.' >/dev/full";
  const ProgramRun run = RunProgram("/bin/sh", {"-c", command}, "");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(RunEspalier({"trace", trace}).out,
              HasSubstr("\nCANCELLED: the output cannot be written\n"));
}

TEST(InterruptTest, AStreamEndsItsLine) {
  LiveProgram program(
      {"generate", "-m", ModelDirectory("en-fr"), "--stream", "--ignore-eos",
       "--do-sample", "-n", "16", "--max-tokens", "200", "It rains."},
      kPipes);
  EXPECT_EQ(program.ReadLine(), "It rains.");
  EXPECT_THAT(program.ReadLine(), StartsWith("  ["));
  program.Send(SIGINT);
  const ProgramRun run = program.Wait();
  EXPECT_EQ(run.exit_code, 130);
  EXPECT_TRUE(run.out.empty() || run.out.ends_with('\n')) << run.out;
  EXPECT_EQ(run.err, "espalier: interrupted: 1 text read, 0 answered\n");
}

TEST(InterruptTest, AReaderThatLeavesEndsTheProgramQuietly) {
  LiveProgram program(Batch(), kPipes);
  program.Write(kShortLine);
  program.ReadLine();
  program.CloseOutput();
  program.Write(kShortLine);
  const ProgramRun run = program.Wait();
  EXPECT_EQ(run.exit_code, 128 + SIGPIPE);
  EXPECT_EQ(run.err, "");
}

TEST(InterruptTest, WhatCannotBeReadOrWrittenNamesTheReason) {
  const std::string program = "'" ESPALIER_PROGRAM "' ";
  const std::string model = " -m '" + ModelDirectory("en-fr") + "' ";
  const struct {
    std::string command;
    const char* message;
  } cases[] = {
      {"trap '' PIPE; (" + program + "batch" + model + "; echo $? >&2) | :",
       "cannot write stdout: Broken pipe\n2"},
      {program + "generate" + model + "No. >/dev/full",
       "cannot write stdout: No space left on device"},
      {program + "generate --stream" + model + "No. >/dev/full",
       "cannot write stdout: No space left on device"},
      {program + "generate" + model + "No. >&-",
       "cannot write stdout: Bad file descriptor"},
      {program + "generate" + model + "<&-",
       "cannot read stdin: Bad file descriptor"},
      {program + "batch" + model + "</", "cannot read stdin: Is a directory"},
      {program + "batch" + model + "-o /dev/full",
       "cannot write /dev/full: No space left on device"},
      {program + "batch" + model + "-o /nowhere/out",
       "cannot write /nowhere/out: No such file or directory"},
  };
  for (const auto& [command, message] : cases) {
    const ProgramRun run = RunProgram("/bin/sh", {"-c", command}, kShortLine);
    EXPECT_THAT(run.err, HasSubstr(message)) << command;
    if (command.starts_with("trap")) continue;  // the status is another's
    EXPECT_EQ(run.exit_code, 2) << command;
  }
}

}  // namespace
}  // namespace espalier::testing
