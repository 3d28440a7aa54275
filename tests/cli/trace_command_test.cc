// `espalier trace` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/program.h"
#include "tests/few_cases.h"
#include "tests/trace/fake_trace.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

ProgramRun Trace(const std::string& file,
                 const std::vector<std::string>& args = {},
                 const std::string& input = "") {
  std::vector<std::string> all = {"trace", file};
  all.insert(all.end(), args.begin(), args.end());
  return RunEspalier(all, input);
}

TEST(TraceCommandTest, DrawsEveryFormatToAFileOrToStdout) {
  const ScratchDirectory scratch;
  const std::string lines = TraceLines(MakeUpTrace({}));
  const std::string file = scratch.Write("trace.jsonl", lines);
  const std::vector<std::pair<std::string, std::string>> formats = {
      {"text", "Request 0: A made-up prompt."},
      {"svg", "<svg "},
      {"html", "<!doctype html>"},
      {"dot", "digraph "}};
  for (const auto& [format, beginning] : formats) {
    const ProgramRun run = Trace(file, {"--to", format});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out, StartsWith(beginning));
    EXPECT_EQ(Trace("-", {"--to", format}, lines).out, run.out);
    const std::string output = scratch.path("out");
    EXPECT_EQ(Trace(file, {"--to", format, "-o", output}).exit_code, 0);
    EXPECT_EQ(ReadText(output), run.out);
  }
  EXPECT_EQ(Trace(file).out, Trace(file, {"--to", "text"}).out);
}

TEST(TraceCommandTest, OneRequestOfSeveralCanBeChosen) {
  const std::string lines = TraceLines(MakeUpTrace({.request = 2})) +
                            TraceLines(MakeUpTrace({.request = 7}));
  EXPECT_THAT(Trace("-", {}, lines).out, HasSubstr("Request 7"));
  const ProgramRun run = Trace("-", {"--request", "2"}, lines);
  EXPECT_THAT(run.out, HasSubstr("Request 2"));
  EXPECT_THAT(run.out, Not(HasSubstr("Request 7")));
  const ProgramRun none = Trace("-", {"--request", "3"}, lines);
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(
      none.err,
      HasSubstr("no request 3 in stdin, which has 2 requests: 2 and 7"));
  const std::string one = TraceLines(MakeUpTrace({.request = 4}));
  EXPECT_THAT(Trace("-", {"--request", "0"}, one).err,
              HasSubstr("which has 1 request: 4\n"));
  std::string many;
  for (const int request : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11}) {
    many += TraceLines(MakeUpTrace({.request = request}));
  }
  EXPECT_THAT(Trace("-", {"--request", "10"}, many).err,
              HasSubstr("11 requests: 0, 1, 2, 3, 4, 5, 6, 7 and 3 more\n"));
  EXPECT_THAT(Trace("-", {"--to", "png"}, one).err,
              HasSubstr("--to must be text, svg, html or dot, got \"png\""));
}

TEST(TraceCommandTest, ADeviceWithoutAnEndIsRefused) {
  for (const char* const device : {"/dev/zero", "/dev/urandom"}) {
    const ProgramRun run = Trace(device, {});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err,
                HasSubstr(std::string(device) + " is a device: it must be "
                                                "a file or a pipe"));
  }
  EXPECT_THAT(Trace("/dev/null", {}).err, HasSubstr("no request in /dev/null"));
}

TEST(TraceCommandTest, TheNameOfTheOutputChoosesTheFormat) {
  const ScratchDirectory scratch;
  const std::string file =
      scratch.Write("trace.jsonl", TraceLines(MakeUpTrace({})));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a.svg", "svg"}, {"a.HTML", "html"}, {"a.htm", "html"},
      {"a.dot", "dot"}, {"a.gv", "dot"},    {"a.txt", "text"},
      {"a", "text"},    {"svg", "text"},    {"a.out", "text"}};
  for (const auto& [name, format] : cases) {
    const std::string output = scratch.path(name);
    EXPECT_EQ(Trace(file, {"-o", output}).exit_code, 0);
    EXPECT_EQ(ReadText(output), Trace(file, {"--to", format}).out) << name;
  }
  EXPECT_EQ(Trace(file, {"-o", scratch.path("b.svg"), "--to", "dot"}).exit_code,
            0);
  EXPECT_THAT(ReadText(scratch.path("b.svg")), StartsWith("digraph "));
}

TEST(TraceCommandTest, APictureOfGraphvizIsNoTextOfOurs) {
  const ScratchDirectory scratch;
  const std::string file =
      scratch.Write("trace.jsonl", TraceLines(MakeUpTrace({})));
  for (const char* ending : {"pdf", "PNG", "jpeg"}) {
    const std::string output = scratch.path(std::string("a.") + ending);
    const ProgramRun run = Trace(file, {"-o", output});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, HasSubstr("espalier: -o must end in .svg, .html, .dot "
                                   "or .txt, got \"" +
                                   output + "\"; "));
    EXPECT_THAT(run.err, HasSubstr("espalier trace FILE --to dot | dot -T"));
    EXPECT_FALSE(std::filesystem::exists(output));
  }
  const std::string chosen = scratch.path("b.pdf");
  EXPECT_EQ(Trace(file, {"-o", chosen, "--to", "dot"}).exit_code, 0);
}

// A trace of requests with these ids, numbered from 0.
std::string TraceOfIds(const std::vector<std::string>& ids) {
  std::string lines;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<TraceEvent> events =
        MakeUpTrace({.request = static_cast<int64_t>(i)});
    std::get<TraceRequest>(events[0]).caller_id = ids[i];
    lines += TraceLines(events);
  }
  return lines;
}

TEST(TraceCommandTest, ARequestIsChosenByItsCallersIdOrItsNumber) {
  // An id may be another's number, or be given twice.
  const std::string lines = TraceOfIds({"a", "2", "b c", "a", "1e3"});
  const auto drawn = [&](const std::string& request) {
    std::vector<std::string> titles;
    const ProgramRun run = Trace("-", {"--request", request}, lines);
    for (const std::string& line : SplitLines(run.out)) {
      if (line.starts_with("Request ")) {
        titles.push_back(line.substr(0, line.find(':')));
      }
    }
    return titles;
  };
  EXPECT_THAT(drawn("a"), ElementsAre("Request 0 (id a)", "Request 3 (id a)"));
  EXPECT_THAT(drawn("b c"), ElementsAre("Request 2 (id b c)"));
  EXPECT_THAT(drawn("2"), ElementsAre("Request 1 (id 2)"));
  EXPECT_THAT(drawn("1e3"), ElementsAre("Request 4 (id 1e3)"));
  EXPECT_THAT(drawn("3"), ElementsAre("Request 3 (id a)"));
  EXPECT_THAT(drawn("A"), ElementsAre());
  EXPECT_EQ(Trace("-", {"--request", "\xff"}, lines).err,
            "espalier: no request \\xff in stdin, which has 5 requests: "
            "0 (id a), 1 (id 2), 2 (id b c), 3 (id a) and 4 (id 1e3)\n");
}

// Every picture marks the missing end.
TEST(TraceCommandTest, ATraceWithoutItsEndSaysSoInEveryFormat) {
  const std::string whole = TraceLines(MakeUpTrace({}));
  const std::string cut = TraceLines(MakeUpTrace({.ends = false}));
  for (const char* format : {"text", "svg", "html", "dot"}) {
    EXPECT_THAT(Trace("-", {"--to", format}, cut).out,
                HasSubstr("the trace stops before its end"));
    EXPECT_THAT(Trace("-", {"--to", format}, whole).out,
                Not(HasSubstr("the trace stops before its end")));
  }
}

TEST(TraceCommandTest, AMalformedTraceIsRefusedWithLineAndField) {
  const ScratchDirectory scratch;
  const std::string lines = TraceLines(MakeUpTrace({}));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {lines + "{\"event\": \"end\"}\n", ": request is missing"},
      {lines.substr(0, lines.size() - 9) + "\n", ": not JSON at byte"},
      {lines + "{\"event\": \"end\"}", ": request is missing"},
      {lines + lines, ": request 0 begins twice"},
      {"", "no request in"},
      {"\n", ":1: not JSON"},
      {std::string(17 << 20, 'x'), " bytes, this one has more\n"},
      {"{\"id\": 1}\n", "event is missing; a trace is what espalier "},
      {"GIF89a", ":1: not JSON at byte 0: syntax error; a trace is what "}};
  for (const auto& [text, message] : cases) {
    const std::string file = scratch.Write("bad.jsonl", text);
    const ProgramRun run = Trace(file, {"--to", "html"});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, StartsWith("espalier: "));
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_THAT(run.err, HasSubstr(file));
  }
}

// As one that is still being written, or whose writer was killed.
TEST(TraceCommandTest, ATraceThatBreaksOffIsDrawnAsFarAsItGoes) {
  const std::string lines = TraceLines(MakeUpTrace({}));
  const size_t first = lines.find('\n') + 1;
  for (const std::string format : {"text", "svg", "html", "dot"}) {
    const size_t step = format == "text" ? Cases(211, 2003) : lines.size() / 3;
    for (size_t size = first; size < lines.size(); size += step) {
      const std::string cut = lines.substr(0, size);
      const std::string whole = cut.substr(0, cut.rfind('\n') + 1);
      const std::string rest = cut.substr(whole.size());
      const bool is_cut = !rest.empty() && !ParseJson(rest).ok();
      const std::string drawn = is_cut || rest.empty() ? whole : cut + "\n";
      const ProgramRun run = Trace("-", {"--to", format}, cut);
      EXPECT_EQ(run.exit_code, 0) << size;
      EXPECT_TRUE(run.out == Trace("-", {"--to", format}, drawn).out) << size;
      EXPECT_EQ(run.err.ends_with(": the last line has no end, and is left "
                                  "out\n"),
                is_cut)
          << size << run.err;
    }
  }
}

TEST(TraceCommandTest, WhatCannotBeReadOrWrittenIsAnError) {
  EXPECT_EQ(Trace("/nowhere").exit_code, 2);
  EXPECT_EQ(RunEspalier({"trace"}).exit_code, 2);
  EXPECT_THAT(Trace("-").err, HasSubstr("no request in stdin\n"));
  EXPECT_THAT(Trace("-", {}, "x\n").err, HasSubstr(" stdin:1: not JSON"));
  const std::string lines = TraceLines(MakeUpTrace({}));
  EXPECT_EQ(Trace("-", {"--to", "png"}, lines).exit_code, 2);
  const ProgramRun run = Trace("-", {"-o", "/nowhere/x"}, lines);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("/nowhere/x"));
}

ProgramRun Generate(const std::string& trace, const std::string& text) {
  return RunEspalier({"generate", "-m", ModelDirectory("en-fr"), "--num-beams",
                      "4", "--num-return-sequences", "2", "--trace", trace,
                      text});
}

TEST(TraceCommandTest, GenerateAndBatchWriteWhatItDraws) {
  const ScratchDirectory scratch;
  const std::string file = scratch.path("trace.jsonl");
  const ProgramRun run = Generate(file, "It rains.");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const ProgramRun drawn = Trace(file);
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_THAT(drawn.out, HasSubstr("It rains."));
  EXPECT_THAT(drawn.out, HasSubstr("★ ·Il"));
  // The hypotheses as `generate` prints them.
  for (const std::string& line : SplitLines(run.out)) {
    EXPECT_THAT(drawn.out, HasSubstr(line.substr(line.find_first_not_of(' '))));
  }

  const std::string requests =
      "{\"prompt\": \"It rains.\", \"params\": {\"num_beams\": 3}}\n"
      "{\"prompt\": \"\"}\n"
      "{\"prompt_tokens\": [1, 4, 377], \"id\": \"mine\"}\n"
      "{\"prompt_tokens\": [1, 4, 377], \"id\": 2.5}\n";
  EXPECT_EQ(
      RunEspalier({"batch", "-m", ModelDirectory("en-fr"), "--trace", file},
                  requests)
          .exit_code,
      1);
  const ProgramRun both = Trace(file);
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("Request 0 (id 0): "));
  EXPECT_THAT(both.out, HasSubstr("Request 1 (id mine): "));
  EXPECT_THAT(both.out, HasSubstr("Request 2 (id 2.5): "));
}

TEST(TraceCommandTest, ATraceThatCannotBeWrittenLeavesTheAnswers) {
  const ProgramRun run = Generate("/dev/full", "It rains.");
  EXPECT_THAT(run.out, HasSubstr("Il pleut."));
  EXPECT_EQ(run.err,
            "espalier: cannot write /dev/full to its end: No space left on "
            "device\n");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(Generate("/nowhere/t", "It rains.").err,
              HasSubstr("--trace: cannot write /nowhere/t: No such"));
}

TEST(TraceCommandTest, APictureDoesNotReplaceItsTrace) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("trace", "no trace\n");
  const ProgramRun run =
      RunEspalier({"trace", file, "--to", "html", "--output", file});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("the trace and --output are the same file"));
  EXPECT_EQ(ReadText(file), "no trace\n");
}

TEST(TraceCommandTest, ATraceCutsNoOtherFileToNothing) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("texts", "It rains.\n");
  const ProgramRun run = RunEspalier({"generate", "-m", ModelDirectory("en-fr"),
                                      "--file", file, "--trace", file});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--trace and --file are the same file"));
  EXPECT_EQ(RunEspalier({"batch", "-m", ModelDirectory("en-fr"), "--input",
                         file, "--trace", file})
                .exit_code,
            2);
  EXPECT_EQ(ReadText(file), "It rains.\n");
  EXPECT_THAT(Generate("-", "It rains.").err, HasSubstr("needs a file"));
}

TEST(TraceCommandTest, NorAFileThatTheShellOpened) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("texts", "It rains.\n");
  const std::string quoted = "'" + file + "'";
  const std::string generate =
      "generate -m '" + ModelDirectory("en-fr") + "' --trace " + quoted + " ";
  const std::pair<std::string, const char*> cases[] = {
      {generate + "< " + quoted, "--trace and --file are the same file"},
      {generate + "No. >> " + quoted, "--trace and stdout are the same file"},
      {"trace - -o " + quoted + " < " + quoted,
       "the trace and -o are the same file"}};
  for (const auto& [args, message] : cases) {
    const ProgramRun run =
        RunProgram("/bin/sh", {"-c", "'" ESPALIER_PROGRAM "' " + args}, "");
    EXPECT_EQ(run.exit_code, 2) << args;
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(ReadText(file), "It rains.\n");
  }
}

// Whatever it is that keeps a command from running.
TEST(TraceCommandTest, AnOlderTraceIsKeptIfNothingRuns) {
  const ScratchDirectory scratch;
  const std::string old = scratch.Write("trace", "older\n");
  const std::string model = ModelDirectory("en-fr");
  const std::string requests = scratch.Write("in", "{\"prompt\": \"No.\"}\n");
  const std::vector<std::vector<std::string>> cases = {
      {"generate", "-m", "/nowhere", "No."},
      {"generate", "-m", model, "--file", "/nowhere"},
      {"generate", "-m", model, "--file", "/"},
      {"generate", "-m", model, "--file", "/dev/null"},
      {"generate", "-m", model, "--num-beams", "0", "No."},
      {"generate", "-m", model, "--num-beams", "few", "No."},
      {"generate", "-m", model, "--eos-token-id", "100000", "No."},
      {"generate", "-m", model, "--kv-cache-mib", "1", "No."},
      {"generate", "-m", model, "--template", "x", "No."},
      {"generate", "-m", model, " "},
      {"batch", "-m", "/nowhere", "-i", requests},
      {"batch", "-m", model, "-i", "/nowhere"},
      {"batch", "-m", model, "-i", "/"},
      {"batch", "-m", model, "-i", requests, "-o", "/nowhere/out"},
      {"batch", "-m", model, "-i", requests, "-o", old},
      {"batch", "-m", model, "-i", requests, "--page-size", "0"}};
  for (std::vector<std::string> args : cases) {
    const std::string new_trace = scratch.path("new");
    for (const std::string& trace : {old, new_trace}) {
      std::vector<std::string> all = args;
      all.insert(all.begin() + 1, {"--trace", trace});
      if (args.back() == old && trace != old) continue;
      EXPECT_EQ(RunEspalier(all).exit_code, 2);
      EXPECT_EQ(ReadText(old), "older\n") << ::testing::PrintToString(all);
      EXPECT_EQ(ReadText(new_trace), "");
    }
  }
  EXPECT_EQ(Generate(old, "It rains.").exit_code, 0);
  EXPECT_THAT(Trace(old).out, HasSubstr("It rains."));
}

TEST(TraceCommandTest, HelpTeachesByExample) {
  EXPECT_THAT(RunEspalier({"trace", "--help"}).out,
              HasSubstr("espalier trace search.jsonl -o search.html"));
}

}  // namespace
}  // namespace espalier::testing
