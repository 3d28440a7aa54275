// Order of the sources of defaults: the command line and the request come
// before the model's generation_config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class GenerationConfigTest : public ::testing::Test {
 protected:
  GenerationConfigTest() { LinkFiles(ModelDirectory("en-fr"), model_); }

  void WriteConfig(const std::string& config) {
    model_.Write("generation_config.json", config);
  }
  ProgramRun Run(std::vector<std::string> args, const std::string& input = "") {
    args.insert(args.begin() + 1, {"-m", model_.path()});
    return RunEspalier(args, input);
  }
  json::value Answer(const std::string& params,
                     const std::vector<std::string>& options = {}) {
    std::vector<std::string> args = {"batch"};
    args.insert(args.end(), options.begin(), options.end());
    const ProgramRun run = Run(
        args, R"({"prompt": "How old are you?", "params": )" + params + "}\n");
    EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
    EXPECT_EQ(run.err, "");
    return ParseLines(run.out).at(0);
  }

  const ScratchDirectory model_;
};

json::value DefaultsOf(const json::value& answer) {
  const json::object& usage = answer.at("usage").as_object();
  return usage.contains("defaults") ? usage.at("defaults") : nullptr;
}

TEST_F(GenerationConfigTest, RequestsGoBeforeIt) {
  const json::value plain = Answer("{}");
  EXPECT_EQ(DefaultsOf(plain), nullptr);
  WriteConfig(R"({"num_beams": 3, "num_return_sequences": 2,
                  "length_penalty": 0.5, "eos_token_id": 2})");
  const json::value taken = Answer("{}");
  EXPECT_EQ(DefaultsOf(taken), (json::value{{"num_beams", 3},
                                            {"num_return_sequences", 2},
                                            {"length_penalty", 0.5}}));
  EXPECT_EQ(taken.at("hypotheses").as_array().size(), 2u);
  const json::value said =
      Answer(R"({"num_beams": 3, "n": 2, "length_penalty": 0.5})");
  EXPECT_EQ(DefaultsOf(said), nullptr);
  EXPECT_EQ(said.at("hypotheses"), taken.at("hypotheses"));
  // Holds even for the value that applies without the file.
  const json::value one = Answer(R"({"num_beams": 1})");
  EXPECT_EQ(one.at("hypotheses"), plain.at("hypotheses"));
  EXPECT_EQ(Answer("{}", {"--generation-config", "none"}).at("hypotheses"),
            plain.at("hypotheses"));
}

// A model that samples by default searches for a request that sets only
// num_beams, as on the server.
TEST_F(GenerationConfigTest, ASearchThatIsAskedForDrawsNothing) {
  const std::vector<std::string> args = {"generate", "--num-beams", "3",
                                         "How old are you?"};
  WriteConfig(R"({"eos_token_id": 2})");
  const ProgramRun plain = Run(args);
  WriteConfig(R"({"eos_token_id": 2, "do_sample": true, "top_k": 20})");
  const ProgramRun run = Run(args);
  EXPECT_EQ(run.out, plain.out);
  const auto note = [&](std::string_view num_beams,
                        std::string_view do_sample) {
    return Concat(num_beams, " asks for the search: do_sample true and top_k ",
                  "20 of ", model_.path(), "/generation_config.json are left ",
                  "out; ", do_sample, " draws beams");
  };
  EXPECT_EQ(
      run.err,
      Concat("espalier: note: ", note("--num-beams", "--do-sample"), "\n"));
  const ProgramRun batch = Run(
      {"batch"}, R"({"id": "a", "prompt": "No.", "params": {"num_beams": 3}})"
                 "\n");
  EXPECT_THAT(batch.err, HasSubstr(Concat("note: request \"a\": ",
                                          note("num_beams", "do_sample"))));
  EXPECT_EQ(Run({"generate", "--num-beams", "3", "--do-sample", "--seed", "1",
                 "How old are you?"})
                .err,
            "");
}

// Early versions of transformers have them there.
TEST_F(GenerationConfigTest, WithoutItTheModelsConfigHasThem) {
  const json::value plain = Answer(R"({"num_beams": 3})");
  json::object config =
      ParseJson(*ReadFile(ModelDirectory("en-fr") + "/config.json", 1 << 20))
          ->as_object();
  config["num_beams"] = 3;
  config["num_beam"] = 5;  // any model's own, not a misspelt field
  std::filesystem::remove(model_.path() + "/generation_config.json");
  std::filesystem::remove(model_.path() + "/config.json");
  model_.Write("config.json", WriteJson(config));
  const json::value taken = Answer("{}");
  EXPECT_EQ(DefaultsOf(taken), (json::value{{"num_beams", 3}}));
  EXPECT_EQ(taken.at("hypotheses"), plain.at("hypotheses"));
  EXPECT_THAT(RunEspalier({"inspect", model_.path()}).out,
              HasSubstr(" config.json: num_beams 3\n"));
  WriteConfig("{}");
  EXPECT_EQ(DefaultsOf(Answer("{}")), nullptr);
}

TEST_F(GenerationConfigTest, OptionsGoBeforeIt) {
  const auto generate = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "generate");
    options.push_back("How old are you?");
    const ProgramRun run = Run(options);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(run.err, "");
    return run.out;
  };
  const std::string greedy = generate({});
  const std::string beams = generate({"--num-beams", "5", "-n", "3"});
  WriteConfig(R"({"num_beams": 5, "num_return_sequences": 3})");
  EXPECT_EQ(generate({}), beams);
  EXPECT_EQ(generate({"--num-beams", "1"}), greedy);
  EXPECT_EQ(generate({"--generation-config", "none"}), greedy);
  EXPECT_EQ(generate({"--generation-config", "strict"}), beams);
  // Samples are numbered in a stream if there are several, even by default.
  WriteConfig(R"({"do_sample": true, "num_return_sequences": 2})");
  EXPECT_THAT(generate({"--stream"}), HasSubstr("  [1] "));
  EXPECT_EQ(generate({"--do-sample=false"}), greedy);
  const std::string file =
      model_.Write("other.json", R"({"stop_strings": [" âge"]})");
  EXPECT_EQ(generate({"--generation-config", file}),
            generate({"--stop", " âge", "--do-sample=false"}));
  EXPECT_THAT(generate({"--stream", "--generation-config", file}),
              Not(HasSubstr("âge")));
}

TEST_F(GenerationConfigTest, WhatIsNotSupportedIsToldOnce) {
  WriteConfig(R"({"guidance_scale": 2, "epsilon_cutoff": 0.1})");
  const std::string told = model_.path() +
                           "/generation_config.json: epsilon_cutoff 0.1 and "
                           "guidance_scale 2 are not "
                           "supported";
  const ProgramRun run = Run({"generate", "It rains.", "It snows."});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "espalier: warning: " + told + ", and ignored\n");
  for (const char* const command : {"generate", "batch", "score", "serve"}) {
    const ProgramRun strict = Run({command, "--generation-config", "strict"});
    EXPECT_EQ(strict.exit_code, 2);
    EXPECT_EQ(strict.err, "espalier: -m: " + told +
                              "; --generation-config auto goes on without\n");
  }
  EXPECT_EQ(Run({"generate", "--generation-config", "none", "It rains."}).err,
            "");
}

TEST_F(GenerationConfigTest, WrongValuesAreNamedBeforeAnythingRuns) {
  WriteConfig(R"({"top_p": 1.5})");
  const ProgramRun run = Run({"generate", "It rains."});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err,
              HasSubstr("espalier: -m: " + model_.path() +
                        "/generation_config.json: top_p must be in (0, 1], "
                        "got 1.5"));
  const ProgramRun missing =
      Run({"generate", "--generation-config", "no.json", "It rains."});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err,
              HasSubstr("--generation-config: no such file: no.json; it must "
                        "be auto, strict, none, a file or a directory\n"));
}

// The default is a good one, of a model that --max-beams leaves no room for it.
TEST_F(GenerationConfigTest, MoreBeamsThanThereIsRoomForAreTold) {
  WriteConfig(R"({"num_beams": 4})");
  const auto generate = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"generate", "--max-beams", "2"});
    options.push_back("It rains.");
    return Run(options);
  };
  const std::string too_many =
      "num_beams must be at most 2 (--max-beams, what a step has room for), "
      "got 4; ";
  const std::string by_file =
      "num_beams is 4 by " + model_.path() +
      "/generation_config.json: give another, or --generation-config none";
  const std::string in_flags = "espalier: --num-beams" + too_many.substr(9) +
                               "--num-beams" + by_file.substr(9) + "\n";
  EXPECT_EQ(generate({}).exit_code, 2);
  EXPECT_EQ(generate({}).err, in_flags);
  for (const char* const num_beams : {"1", "2"}) {
    EXPECT_EQ(generate({"--num-beams", num_beams}).exit_code, 0);
  }
  EXPECT_EQ(generate({"--do-sample", "--num-beams", "1"}).exit_code, 0);
  EXPECT_EQ(generate({"--generation-config", "none"}).exit_code, 0);
  EXPECT_EQ(generate({"--num-beams", "3"}).err,
            "espalier: --num-beams must be at most 2 (--max-beams, what a step "
            "has room for), got 3\n");
  // In a batch each line has its own error.
  const ProgramRun batch =
      Run({"batch", "--max-beams", "2"},
          "{\"prompt\": \"No.\"}\n"
          "{\"prompt\": \"No.\", \"params\": {\"num_beams\": 2}}\n");
  EXPECT_EQ(batch.exit_code, 1);
  const std::vector<json::value> lines = ParseLines(batch.out);
  EXPECT_EQ(lines.at(0).at("error").at("message").as_string(),
            too_many + by_file);
  EXPECT_EQ(lines.at(1).at("hypotheses").as_array().size(), 1u);
  // Calls of a server may leave all open.
  EXPECT_EQ(Run({"serve", "--max-beams", "2", "--port", "0"}).err, in_flags);
  EXPECT_EQ(
      Run({"serve", "--max-beams", "2", "--port", "0", "--num-beams", "3"}).err,
      "espalier: --num-beams must be at most 2 (--max-beams, what a step "
      "has room for), got 3\n");
}

// A server of them would refuse every call that leaves its beams open.
TEST_F(GenerationConfigTest, NoServerStartsWhoseLimitsRefuseTheModelsBeams) {
  WriteConfig(R"({"num_beams": 4})");
  for (const char* const limit : {"--max-num-beams", "--max-choices"}) {
    const auto serve = [&](std::vector<std::string> options) {
      options.insert(options.begin(), {"serve", "--port", "0", limit, "2"});
      return Run(options);
    };
    const std::string range =
        Concat("espalier: --num-beams must be in [1, 2] (", limit, "), got 4");
    const ProgramRun refused = serve({});
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_EQ(refused.err,
              Concat(range, "; --num-beams is 4 by ", model_.path(),
                     "/generation_config.json: give another, or "
                     "--generation-config none\n"));
    EXPECT_EQ(serve({"--num-beams", "4"}).err, range + "\n");
  }
}

TEST_F(GenerationConfigTest, TheWordOfAnotherEngineIsUnderstood) {
  const ProgramRun run =
      Run({"generate", "--generation-config", "vllm", "It rains."});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "espalier: --generation-config must be none for no defaults of the "
            "model, got vLLM's word for that, \"vllm\"\n");
}

TEST_F(GenerationConfigTest, InspectListsThem) {
  EXPECT_THAT(RunEspalier({"inspect", model_.path()}).out,
              Not(HasSubstr("\n  defaults")));
  WriteConfig(R"({"do_sample": true, "temperature": 0.6, "top_h": 0.4})");
  const ProgramRun run = RunEspalier({"inspect", model_.path()});
  EXPECT_THAT(run.out, HasSubstr("  defaults       generation_config.json: "
                                 "do_sample true, temperature 0.6\n"));
  EXPECT_THAT(run.out, HasSubstr("not supported, and ignored: "
                                 "top_h 0.4\n"));
  WriteConfig(R"({"temperature": "hot"})");
  EXPECT_EQ(RunEspalier({"inspect", model_.path()}).exit_code, 2);
}

TEST_F(GenerationConfigTest, HelpOnAModelListsThem) {
  for (const char* command : {"generate", "batch"}) {
    WriteConfig(R"({"eos_token_id": 2})");
    const std::string plain = RunEspalier({command, "--help"}).out;
    EXPECT_EQ(Run({command, "--help"}).out, plain);
    WriteConfig(R"({"do_sample": true, "temperature": 0.6})");
    const ProgramRun run = Run({command, "--help"});
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_THAT(run.out, HasSubstr("Defaults of this model, by "
                                   "generation_config.json:\n  do_sample true\n"
                                   "  temperature 0.6\n"));
    WriteConfig(R"({"temperature": "hot"})");
    EXPECT_THAT(Run({command, "--help"}).out, HasSubstr("\"hot\""));
  }
}

}  // namespace
}  // namespace espalier::testing
