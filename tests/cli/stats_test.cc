// --stats FILE as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/live_program.h"
#include "tests/cli/program.h"
#include "tests/prometheus_checker.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

const char kTwoLines[] =
    "{\"prompt\": \"It rains.\", \"params\": {\"num_beams\": 4}}\n"
    "{\"prompt\": \"Go.\", \"params\": {\"max_tokens\": -1}}\n";

std::vector<std::string> BatchWith(std::vector<std::string> options) {
  options.insert(options.begin(), {"batch", "-m", ModelDirectory("en-fr")});
  return options;
}

// Returns the sample with the model's label and `labels`.
double Sample(const PrometheusSamples& samples, const std::string& name,
              const std::string& labels = "") {
  const std::string model = "model_name=\"" + ModelDirectory("en-fr") + "\"";
  const auto found = samples.find(name + "{" + model + labels + "}");
  return found == samples.end() ? -1 : found->second;
}

PrometheusSamples ReadStats(const std::string& file) {
  const auto samples = ReadPrometheus(ReadText(file));
  EXPECT_OK(samples);
  return samples.ok() ? *samples : PrometheusSamples();
}

TEST(StatsTest, AtItsEndARunHasWrittenWhatItDid) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("stats.prom", "of before\n");
  const ProgramRun run =
      RunEspalier(BatchWith({"--stats", file, "--figures"}), kTwoLines);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const PrometheusSamples samples = ReadStats(file);
  EXPECT_EQ(Sample(samples, "espalier:requests_total"), 1);
  EXPECT_EQ(Sample(samples, "vllm:request_success_total",
                   ",finished_reason=\"stop\""),
            1);
  EXPECT_EQ(Sample(samples, "vllm:num_requests_running"), 0);
  EXPECT_EQ(Sample(samples, "vllm:e2e_request_latency_seconds_count"), 1);
  EXPECT_GT(Sample(samples, "vllm:e2e_request_latency_seconds_sum"), 0);
  EXPECT_GT(Sample(samples, "vllm:prompt_tokens_total"), 1);
  // All of them, and no request waited.
  EXPECT_EQ(Sample(samples, "espalier:steps_total"),
            1 + Sample(samples, "vllm:inter_token_latency_seconds_count"));
  EXPECT_FALSE(std::filesystem::exists(file + ".tmp"));
}

TEST(StatsTest, GenerateWritesThemToo) {
  const ScratchDirectory scratch;
  const std::string file = scratch.path("stats.prom");
  for (const char* how : {"--stream=false", "--stream"}) {
    const ProgramRun run =
        RunEspalier({"generate", "-m", ModelDirectory("en-fr"), how, "--stats",
                     file, "It rains.", "Go."});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(Sample(ReadStats(file), "espalier:requests_total"), 2);
  }
}

TEST(StatsTest, TheFileIsKeptUpToDateWhileTheProgramRuns) {
  const ScratchDirectory scratch;
  const std::string file = scratch.path("stats.prom");
  LiveProgram program(BatchWith({"--stats", file}), LiveProgram::Ends::kPipes);
  program.Write("{\"prompt\": \"It rains.\"}\n");
  EXPECT_THAT(program.ReadLine(), HasSubstr("hypotheses"));
  double num_requests = 0;
  for (int i = 0; i < 6000 && num_requests < 1; ++i) {
    usleep(10'000);
    num_requests = Sample(ReadStats(file), "espalier:requests_total");
  }
  EXPECT_EQ(num_requests, 1);
  program.CloseInput();
  EXPECT_EQ(program.Wait().exit_code, 0);
}

TEST(StatsTest, WhatCannotBeWrittenIsRefusedBeforeAnythingRuns) {
  const ScratchDirectory scratch;
  const std::string other = scratch.Write("other", "{\"prompt\": \"No.\"}\n");
  const std::string directory = scratch.path("directory");
  std::filesystem::create_directory(directory);
  const std::string input = scratch.Write("in.tmp", kTwoLines);
  const std::string theirs = scratch.Write("full.tmp", "of somebody else\n");
  const std::string link = scratch.path("link");
  std::filesystem::create_symlink(scratch.Write("target", ""), link);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--stats", "/no/such/stats"},
       "--stats: cannot write /no/such/stats: No "},
      {{"--stats", directory},
       "espalier: --stats: " + directory + " is not a regular file\n"},
      {{"--stats", "/dev/null"},
       "espalier: --stats: /dev/null is not a regular file\n"},
      {{"--stats", "-"}, "--stats needs a file, got -"},
      {{"--stats", ""}, "--stats must not be empty"},
      {{"--stats", other, "--input", other},
       "--stats and --input are the same file"},
      {{"--stats", other, "--output", other},
       "--stats and --output are the same file"},
      {{"--stats", other, "--trace", other},
       "--trace and --stats are the same file"},
      {{"--stats", scratch.path("new"), "--trace", scratch.path("./new")},
       "--trace and --stats are the same file"},
      // By way of FILE.tmp, be that there already or not.
      {{"--stats", scratch.path("new"), "--output", scratch.path("./new.tmp")},
       "--stats is first written to " + scratch.path("new.tmp") +
           ", the file of --output"},
      {{"--stats", scratch.path("new"), "--trace", scratch.path("new.tmp")},
       "new.tmp, the file of --trace"},
      {{"--stats", scratch.path("in"), "--input", input},
       "in.tmp, the file of --input"},
      {{"--stats", link, "--output", scratch.path("target.tmp")},
       "target.tmp, the file of --output"},
      {{"--stats", scratch.path("full")},
       "espalier: --stats: " + scratch.path("full") + " is first written to " +
           theirs + ", where there is another file"}};
  for (const auto& [options, message] : cases) {
    const ProgramRun run = RunEspalier(BatchWith(options), kTwoLines);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(message));
  }
  EXPECT_EQ(ReadText(other), "{\"prompt\": \"No.\"}\n");
  EXPECT_EQ(ReadText(input), kTwoLines);
  EXPECT_EQ(ReadText(theirs), "of somebody else\n");
}

TEST(StatsTest, WhatIsThereAndCannotBeReplacedIsNamedWithWhatReplacesIt) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("stats.prom", "of before\n");
  // A link to a device blocks even the superuser.
  std::filesystem::create_symlink("/dev/null", file + ".tmp");
  const ProgramRun run = RunEspalier(BatchWith({"--stats", file}), "");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("cannot write " + file + " by way of "));
  EXPECT_THAT(run.err, HasSubstr("stats.prom.tmp: Too many levels"));
  EXPECT_EQ(ReadText(file), "of before\n");
}

// Whichever of its files it is that stops it.
TEST(StatsTest, ARunThatCannotWriteLeavesAllFilesAlone) {
  const ScratchDirectory scratch;
  const std::string files[] = {scratch.Write("output", "of before\n"),
                               scratch.Write("trace", "of before\n"),
                               scratch.Write("stats", "of before\n")};
  const char* const options[] = {"--output", "--trace", "--stats"};
  for (size_t wrong = 0; wrong < 3; ++wrong) {
    std::vector<std::string> args;
    for (size_t i = 0; i < 3; ++i) {
      args.insert(args.end(),
                  {options[i], i == wrong ? "/no/such/file" : files[i]});
    }
    const ProgramRun run = RunEspalier(BatchWith(args), kTwoLines);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("cannot write /no/such/file: No such "));
    for (const std::string& file : files) {
      EXPECT_EQ(ReadText(file), "of before\n") << options[wrong] << file;
    }
  }
}

// A run that was killed leaves it behind, in whole or in part.
TEST(StatsTest, WhatAKilledRunLeftIsReplaced) {
  const ScratchDirectory scratch;
  const std::string file = scratch.path("stats.prom");
  for (const char* left : {"", "# HELP vllm:num_requests_running Req"}) {
    scratch.Write("stats.prom.tmp", left);
    EXPECT_EQ(RunEspalier(BatchWith({"--stats", file}), "").exit_code, 0);
    EXPECT_EQ(Sample(ReadStats(file), "espalier:requests_total"), 0);
    EXPECT_FALSE(std::filesystem::exists(file + ".tmp"));
  }
}

TEST(StatsTest, ALinkStaysALink) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("stats.prom", "");
  const std::string link = scratch.path("link");
  std::filesystem::create_symlink(file, link);
  EXPECT_EQ(RunEspalier(BatchWith({"--stats", link}), "").exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(Sample(ReadStats(file), "espalier:requests_total"), 0);
}

// A directory that vanishes during the run is reported at the end.
TEST(StatsTest, WhatCannotBeWrittenToTheEndIsAnError) {
  const ScratchDirectory scratch;
  const std::string directory = scratch.path("directory");
  std::filesystem::create_directory(directory);
  const std::string file = directory + "/stats.prom";
  LiveProgram program(BatchWith({"--stats", file}), LiveProgram::Ends::kPipes);
  program.Write("{\"prompt\": \"It rains.\"}\n");
  EXPECT_THAT(program.ReadLine(), HasSubstr("hypotheses"));
  std::filesystem::remove_all(directory);
  program.CloseInput();
  const ProgramRun run = program.Wait();
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("cannot write " + file + ": No such"));
}

}  // namespace
}  // namespace espalier::testing
