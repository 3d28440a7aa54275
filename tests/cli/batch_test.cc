// `espalier batch` as its users meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tests/cli/batch_runs.h"
#include "tests/cli/program.h"
#include "tests/request/json/malformed_requests.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(BatchTest, AMalformedLineGetsItsErrorAndDisturbsNobody) {
  const json::value good = ParseLines(RunBatch(kGoodLine).out).at(0);
  std::string input;
  std::vector<const MalformedRequest*> expected;
  const std::vector<MalformedRequest> all = MalformedRequests();
  for (const MalformedRequest& bad : all) {
    if (bad.line.empty()) continue;  // blank lines are skipped
    input += bad.line + "\n" + kGoodLine + "\n";
    expected.push_back(&bad);
  }
  const ProgramRun run = RunBatch(input);
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "");
  const std::vector<json::value> lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 2 * expected.size());
  ASSERT_GE(expected.size(), 60u);
  for (size_t i = 0; i < expected.size(); ++i) {
    const json::value& error = lines[2 * i].at("error");
    EXPECT_EQ(error.at("message"), json::value(expected[i]->message));
    EXPECT_EQ(error.at("code"), json::value("INVALID_ARGUMENT"));
    EXPECT_EQ(lines[2 * i + 1].at("hypotheses"), good.at("hypotheses"));
  }
}

TEST(BatchTest, LinesThatFailOutOfSightAreCountedOnStderr) {
  const ScratchDirectory scratch;
  const std::string input =
      "{\"prompt\": \"No.\"}\n{\"prompt\": 5}\n\n{\"prompt\": 6}\n";
  const std::vector<std::string> to_file = {"--output", scratch.path("out")};
  for (const auto& options : {to_file, std::vector<std::string>{"--figures"}}) {
    const ProgramRun run = RunBatch(input, options);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, HasSubstr("espalier: 2 of 3 requests failed\n"));
  }
  EXPECT_EQ(RunBatch("{\"prompt\": \"No.\"}", to_file).err, "");
}

TEST(BatchTest, AnswersComeInInputOrderWithTheirIds) {
  const ProgramRun run = RunBatch(
      R"({"id": "long", "prompt": "It rains and it rains and it rains.",)"
      R"( "params": {"num_beams": 8}})"
      "\n\n"
      R"({"prompt": "No."})"
      "\n"
      R"({"id": 2.5, "prompt": "Yes."})"
      "\r\n"
      R"({"id": -7, "prompt": "Yes."})");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::vector<json::value> lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("id"), json::value("long"));
  EXPECT_EQ(lines[1].at("id"), json::value(2));  // a blank line is a line
  EXPECT_EQ(lines[2].at("id"), json::value(2.5));
  EXPECT_EQ(lines[3].at("id"), json::value(-7));
  EXPECT_EQ(lines[2].at("hypotheses"), lines[3].at("hypotheses"));
}

TEST(BatchTest, ALineMayNameItsPromptTemplate) {
  const std::string line =
      R"({"prompt": "Il pleut.", "params": {"num_beams": 3}})";
  const std::string with = R"({"prompt": "Il pleut.", "template": "fr-en",)"
                           R"( "params": {"num_beams": 3}})";
  const auto chosen = ParseLines(RunBatch(line, {"--template", "fr-en"}).out);
  const ProgramRun run =
      RunBatch(line + "\n" + with + "\n" +
               R"({"prompt": "Il pleut.", "template": "de-en"})");
  const auto answers = ParseLines(run.out);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_NE(answers[0].at("hypotheses"), chosen[0].at("hypotheses"));
  EXPECT_EQ(answers[1].at("hypotheses"), chosen[0].at("hypotheses"));
  EXPECT_EQ(answers[2].at("error").at("code"), json::value("INVALID_ARGUMENT"));
  const json::value& message = answers[2].at("error").at("message");
  EXPECT_THAT(std::string(message.as_string()),
              AllOf(StartsWith("template: "), HasSubstr("de-en"),
                    HasSubstr("en-fr"), HasSubstr("fr-en")));
}

// Each by the option that raises it.
TEST(BatchTest, LimitsNameTheirOptions) {
  const auto error = [](const std::string& line,
                        std::vector<std::string> options) {
    const json::value answer = ParseLines(RunBatch(line, options).out).at(0);
    return std::string(answer.at("error").at("message").as_string());
  };
  EXPECT_EQ(error(R"({"prompt": "It rains."})", {"--max-line-bytes", "20"}),
            "a line may have 20 bytes (--max-line-bytes), this one has more");
  EXPECT_EQ(error(R"({"prompt": "No.", "params": {"stop": ["a", "b", "c"]}})",
                  {"--max-list-elements", "2"}),
            "stop must have at most 2 elements (--max-list-elements), got 3");
  EXPECT_THAT(error(R"({"prompt": "No.", "params": {"num_beams": 9}})",
                    {"--max-candidates", "17"}),
              AllOf(HasSubstr("it ranks 18 candidates in a step"),
                    EndsWith("there is room for 17 (--max-candidates)")));
  EXPECT_THAT(error(R"({"prompt": "No.", "params": {"num_beams": 9,)"
                    R"( "repetition_penalty": 1.5}})",
                    {"--max-score-edits", "5"}),
              EndsWith("there is room for 5 (--max-score-edits)"));
  EXPECT_THAT(
      error(R"({"prompt": "No.", "params": {"speculate": "draft"}})", {}),
      EndsWith("got \"draft\"; give one by --draft-model DIR"));
}

TEST(BatchTest, FilesServeAsWellAsPipes) {
  const ScratchDirectory scratch;
  const std::string input = scratch.Write("in.jsonl", kGoodLine);
  const std::string output = scratch.path("out.jsonl");
  const std::string expected = RunBatch(kGoodLine).out;
  const std::vector<std::vector<std::string>> ways = {
      {"--input", input, "--output", output}, {input, "-o", output}};
  for (const std::vector<std::string>& args : ways) {
    const ProgramRun run = RunBatch("", args);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_EQ(ReadText(output), expected);
    std::filesystem::remove(output);
  }
}

TEST(BatchTest, WhatCannotRunLeavesTheOutputAsItWas) {
  const ScratchDirectory scratch;
  const std::string input = scratch.Write("in.jsonl", kGoodLine);
  const std::string output = scratch.Write("out.jsonl", "precious\n");
  const std::vector<std::vector<std::string>> cases = {
      {ModelDirectory("en-fr")},  // a directory
      {scratch.path("nothing")},
      {input, "--trace", "/nowhere/trace"},
      {input, "--stats", "/nowhere/stats"}};
  for (std::vector<std::string> args : cases) {
    SCOPED_TRACE(args.back());
    args.insert(args.end(), {"--output", output});
    EXPECT_EQ(RunBatch("", args).exit_code, 2);
    EXPECT_EQ(ReadText(output), "precious\n");
  }
}

TEST(BatchTest, ARequestThatCanNeverFitIsRefusedWithTheFigures) {
  const ProgramRun run =
      RunBatch(R"({"prompt_tokens": [1, 4, 5], "params": {"num_beams": 100}})"
               "\n" +
                   std::string(kGoodLine),
               {"--kv-cache-mib", "10"});
  EXPECT_EQ(run.exit_code, 1);
  const std::vector<json::value> lines = ParseLines(run.out);
  EXPECT_EQ(lines.at(0).at("error").at("code"),
            json::value("RESOURCE_EXHAUSTED"));
  EXPECT_EQ(std::string(lines.at(0).at("error").at("message").as_string()),
            "the request can never fit: it needs 1700 pages of 16 tokens at "
            "worst (3 prompt tokens, num_beams 100, max_new_tokens 256), "
            "there are 106; lower num_beams or max_new_tokens, or raise "
            "--kv-cache-mib");
  EXPECT_TRUE(lines.at(1).as_object().contains("hypotheses"));
}

TEST(BatchTest, ImpossibleRequestsEndWithOneClearError) {
  std::string all_tokens = "[0";
  for (int i = 1; i < 6000; ++i) all_tokens += "," + std::to_string(i);
  all_tokens += "]";
  for (const char* num_beams : {"1", "4"}) {
    const ProgramRun run =
        RunBatch(R"({"prompt_tokens": [1, 4, 5], "params": {"num_beams": )" +
                 std::string(num_beams) + R"(, "suppress_tokens": )" +
                 all_tokens + "}}\n" + kGoodLine);
    EXPECT_EQ(run.exit_code, 1);
    const std::vector<json::value> lines = ParseLines(run.out);
    EXPECT_EQ(lines.at(0).at("error").at("code"),
              json::value("FAILED_PRECONDITION"));
    EXPECT_THAT(std::string(lines.at(0).at("error").at("message").as_string()),
                HasSubstr("no token is possible after 0 generated tokens: "
                          "suppress_tokens leaves none to which the model "
                          "gives a chance"));
    EXPECT_TRUE(lines.at(1).as_object().contains("hypotheses"));
  }
}

TEST(BatchTest, AModelWithoutTokenizerServesTokens) {
  const ScratchDirectory scratch;
  for (const char* name :
       {"config.json", "generation_config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(ModelDirectory("en-fr") + "/" + name,
                                    scratch.path(name));
  }
  const ProgramRun run =
      RunEspalier({"batch", "-m", scratch.path()},
                  R"({"prompt_tokens": [1, 4, 264, 811, 341, 323, 262, 5]})"
                  "\n" +
                      std::string(kGoodLine) + "\n" +
                      R"({"prompt_tokens": [1, 4], "params": {"stop": "a"}})");
  EXPECT_EQ(run.exit_code, 1);
  const std::vector<json::value> lines = ParseLines(run.out);
  const json::value& hypothesis = lines.at(0).at("hypotheses").at(0);
  EXPECT_FALSE(hypothesis.as_object().contains("text"));
  EXPECT_FALSE(hypothesis.at("tokens").as_array().empty());
  EXPECT_THAT(std::string(lines.at(1).at("error").at("message").as_string()),
              HasSubstr("has no source.spm, tokenizer.json, tokenizer.model, "
                        "spiece.model, sentencepiece.bpe.model or merges.txt; "
                        "use prompt_tokens"));
  EXPECT_EQ(lines.at(2).at("error").at("message"),
            json::value("stop must be empty without a tokenizer, which makes "
                        "the text to find it in, got 1 string"));
}

TEST(BatchTest, FieldsWithoutEffectHaveANoteEach) {
  const std::string prompt = R"({"prompt": "No.", "params": {)";
  const ProgramRun run =
      RunBatch(prompt + "\"length_penalty\": 1}}\n" + prompt +
               R"("do_sample": true, "temperature": 0, "top_k": 3,)"
               R"( "speculate": "ngram:2:rejection"}})"
               "\n" +
               prompt + "\"renormalize_logits\": true}}\n" + prompt +
               R"("start_after": ".", "constraint": {"choice": ["7"]}}})"
               "\n");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err,
            "espalier: note: request 1: top_k has no effect with temperature "
            "0; mode rejection of speculate has no effect where nothing is "
            "sampled (said of one such request)\n");
}

TEST(BatchTest, WhatCannotRunExitsWithTwo) {
  const std::string model = ModelDirectory("en-fr");
  const struct {
    std::vector<std::string> args;
    const char* message;
  } cases[] = {
      {{"batch"}, "--model is required"},
      {{"batch", "-m", "/nowhere"},
       "espalier: -m: no such directory: /nowhere"},
      {{"batch", "--model", "/nowhere"},
       "espalier: --model: no such directory: /nowhere"},
      {{"batch", "-m", model, "--input", "/nowhere/in"},
       "espalier: --input: cannot read /nowhere/in"},
      {{"batch", "-m", model, "-f", "/nowhere/in"},
       "espalier: -f: cannot read /nowhere/in"},
      {{"batch", "-m", model, "/nowhere/in"},
       "espalier: cannot read /nowhere/in"},
      {{"batch", "-m", model, "-o", "/nowhere/out"},
       "espalier: -o: cannot write /nowhere/out"},
      {{"batch", "-m", model, "--input", model}, "Is a directory"},
      {{"batch", "-m", model, "--output", "/nowhere/out"},
       "espalier: --output: cannot write /nowhere/out: No such file or "
       "directory"},
      {{"batch", "-m", model, "--page-size", "0"},
       "batch: --page-size must be an integer in [1, 4096], got \"0\""},
      {{"batch", "-m", model, "--threads", "2.5"},
       "batch: --threads must be an integer in [0, 1024], got \"2.5\""},
      {{"batch", "-m", model, "--colour"}, "--colour"},
      {{"generate", "-m", model, "--num-beams", "few", "a"},
       "--num-beams must be an integer, got \"few\""},
  };
  for (const auto& [args, message] : cases) {
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_THAT(run.err, HasSubstr(message));
    EXPECT_EQ(run.out, "");
  }
}

TEST(BatchTest, OutputThatCannotBeWrittenIsAnError) {
  const ProgramRun run = RunBatch(kGoodLine, {"--output", "/dev/full"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err,
              HasSubstr("cannot write /dev/full: No space left on device"));
}

TEST(BatchTest, ATraceSaysWhyRequestsEndedWithoutAnswer) {
  const ScratchDirectory scratch;
  const std::string trace = scratch.path("trace.jsonl");
  // So many that some still run, or wait, when the first answer is written.
  std::string lines = std::string(kGoodLine) + "\n";
  for (int i = 0; i < 100; ++i) {
    lines += R"({"prompt": "It rains.", "params": {"max_new_tokens": 250,)"
             R"( "ignore_eos": true}})"
             "\n";
  }
  const ProgramRun run =
      RunBatch(lines, {"--output", "/dev/full", "--trace", trace});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(RunEspalier({"trace", trace}).out,
              HasSubstr("\nCANCELLED: the output cannot be written\n"));
}

// The reader, the engine or the model's limits may find the error.
TEST(BatchTest, ErrorsNameWhatTheLineNames) {
  const auto error = [](const std::string& params) {
    const json::value answer = ParseLines(RunBatch(WithParams(params)).out)[0];
    return std::string(answer.at("error").at("message").as_string());
  };
  EXPECT_THAT(error(R"({"n": 3})"),
              StartsWith("n must be 1 in greedy search (num_beams is 1 "));
  EXPECT_THAT(error(R"({"num_return_sequences": 3})"),
              StartsWith("num_return_sequences must be 1 in greedy search"));
  EXPECT_THAT(error(R"({"max_tokens": 5000})"), StartsWith("max_tokens must "));
  EXPECT_EQ(error(R"({"min_tokens": -1})"),
            "min_tokens must be at least 0, got -1");
  EXPECT_THAT(error(R"({"decoder_input_ids": [5000000]})"),
              StartsWith("decoder_input_ids[0] must be "));
  // Values are not renamed.
  EXPECT_THAT(error(R"({"n": 1, "early_stopping": "num_return_sequences"})"),
              EndsWith("got \"num_return_sequences\""));
}

TEST(BatchTest, TextHasNoSpecialTokens) {
  const ProgramRun run = RunBatch(
      R"({"prompt_tokens": [1, 4, 337, 5], "params": {"allowed_sequences":)"
      R"( [[279, 5, 279, 4]]}})");
  EXPECT_EQ(ParseLines(run.out).at(0).at("hypotheses").at(0).at("text"),
            json::value("Il Il"));
}

// Stop strings are found in special tokens, too, and in the text of the first
// min_new_tokens if they end after it.
TEST(BatchTest, StopsAreFoundWhereTheyEnd) {
  const ProgramRun run = RunBatch(
      R"({"prompt": "Where is the station?", "params": {"min_new_tokens": 3, )"
      R"("max_new_tokens": 20, "stop": ["ve l"]}})"
      "\n"
      R"({"prompt": "It rains.", "params": {"max_new_tokens": 6, )"
      R"("stop": ["<fr>"], "logit_bias": {"5": 100}}})"
      "\n"
      R"({"prompt": "It rains.", "params": {"max_new_tokens": 2, )"
      R"("skip_special_tokens": false, "logit_bias": {"5": 100}}})"
      "\n");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  const std::vector<json::value> answers = ParseLines(run.out);
  const auto first = [&](size_t line) {
    return answers.at(line).at("hypotheses").at(0);
  };
  EXPECT_EQ(first(0).at("finish_reason"), "stop");
  EXPECT_EQ(first(0).at("text"), "Où se trou");
  EXPECT_EQ(first(1).at("finish_reason"), "stop");
  EXPECT_EQ(first(1).at("tokens"), json::array({5}));
  EXPECT_EQ(first(2).at("text"), "<fr><fr>");
}

TEST(BatchTest, NamesOfSpecialTokensAreThemIfTheLineSaysSo) {
  const std::string line = R"({"prompt": "It rains.</s>")";
  const ProgramRun run = RunBatch(line + R"(, "parse_special": true})" + "\n" +
                                  R"({"prompt": "It rains."})" + "\n");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.err, "");
  const std::vector<json::value> answers = ParseLines(run.out);
  const auto num_tokens = [&](size_t i) {
    return answers.at(i).at("usage").at("prompt_tokens").as_int64();
  };
  EXPECT_EQ(num_tokens(0), num_tokens(1) + 1);
  const ProgramRun plain = RunBatch(line + "}\n" + line + "}\n");
  EXPECT_EQ(plain.err,
            "espalier: note: a prompt has the name of a special token as text, "
            "\"</s>\"; with --parse-special it is that token (said of one such "
            "prompt)\n");
}

TEST(BatchTest, TheInputIsNeverOverwritten) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("requests.jsonl", kGoodLine);
  const ProgramRun run = RunBatch("", {"--input", file, "--output", file});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--input and --output are the same file"));
  EXPECT_EQ(ReadText(file), kGoodLine);
}

// Files that the shell opens have no name on the command line, and "-" is not a
// file name.
TEST(BatchTest, TheStandardStreamsAreFilesToo) {
  const ScratchDirectory scratch;
  const std::string requests = scratch.Write("in", kGoodLine);
  scratch.Write("-", "a file of this name");
  const auto run = [&](const std::string& args) {
    return RunProgram("/bin/sh",
                      {"-c", "cd '" + scratch.path() + "'; '" +
                                 ESPALIER_PROGRAM "' batch -m '" +
                                 ModelDirectory("en-fr") + "' " + args},
                      kGoodLine);
  };
  const struct {
    const char* args;
    const char* message;
  } cases[] = {
      {"-o in < in", "--input and -o are the same file, in\n"},
      {"--trace in < in", "--trace and --input are the same file, in\n"},
      {"--trace out > out", "--trace and --output are the same file, out\n"},
      {"< in >> in", "--input and --output are the same file, /dev/stdout\n"}};
  for (const auto& [args, message] : cases) {
    const ProgramRun refused = run(args);
    EXPECT_EQ(refused.exit_code, 2) << args;
    EXPECT_EQ(refused.err, Concat("espalier: ", message));
    EXPECT_EQ(ReadText(requests), kGoodLine);
  }
  const ProgramRun streams = run("");
  EXPECT_EQ(streams.err, "");
  EXPECT_EQ(streams.out, RunBatch(kGoodLine).out);
}

TEST(BatchTest, ABlankPromptIsRefused) {
  const ProgramRun run = RunBatch(R"({"prompt": " \t"})");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("prompt must not be blank"));
}

TEST(BatchTest, WhatARequestAsksForIsReported) {
  const ProgramRun run = RunBatch(
      R"({"prompt_tokens": [1, 4, 264, 811, 5], "params": {"do_sample": true, )"
      R"("max_tokens": 4, "logprobs": 2, "prompt_logprobs": 1}})");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const json::value line = ParseLines(run.out).at(0);
  EXPECT_TRUE(line.at("seed").is_number());
  const json::array& prompt = line.at("prompt_logprobs").as_array();
  ASSERT_EQ(prompt.size(), 5u);
  EXPECT_TRUE(prompt[0].is_null());
  EXPECT_EQ(prompt[1].at("token"), json::value(4));
  const json::value& hypothesis = line.at("hypotheses").at(0);
  const json::array& tokens = hypothesis.at("logprobs").as_array();
  ASSERT_EQ(tokens.size(), hypothesis.at("tokens").as_array().size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(tokens[i].at("token"), hypothesis.at("tokens").at(i));
    EXPECT_EQ(tokens[i].at("top").as_array().size(), 2u);
  }
}

TEST(BatchTest, FiguresAreToldOfARunThatEndsInAnError) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--input",
                                 "/proc/self/mem"},  // read: an error
        {"--output", "/dev/full"}}) {
    std::vector<std::string> options = args;
    options.push_back("--figures");
    const ProgramRun run = RunBatch(kGoodLine, options);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_THAT(run.err, StartsWith("0 requests in "));
    EXPECT_THAT(run.err, HasSubstr("\nespalier: cannot "));
  }
}

TEST(BatchTest, FiguresAndNothingElseGoToStderr) {
  const ProgramRun run = RunBatch(kGoodLine, {"--figures"});
  EXPECT_EQ(run.out, RunBatch(kGoodLine).out);
  EXPECT_EQ(SplitLines(run.err).size(), 5u) << run.err;
  EXPECT_THAT(run.err, StartsWith("1 request in "));
  for (const char* part :
       {"tokens/s", "steps", "prompt tokens and 0 cached", "0 preemptions",
        "without sharing", "tail copies", "outside the model"}) {
    EXPECT_THAT(run.err, HasSubstr(part));
  }
}

}  // namespace
}  // namespace espalier::testing
