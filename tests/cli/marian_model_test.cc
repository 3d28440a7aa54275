// models/en-fr-marian, as people have such models: a trained translator of
// Marian's architecture, from text to text, against `generate` of transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tests/cli/program.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

class MarianModelTest : public ::testing::Test {
 protected:
  MarianModelTest()
      : references_(
            ParseLines(ReadText(SourcePath("tests/data/marian_beams.jsonl")))) {
  }

  // Returns the results of greedy searches of the prompts, each after its text
  // in `begun`, if that is not empty.
  std::vector<json::value> Translate(const std::vector<std::string>& begun) {
    std::string requests;
    for (size_t i = 0; i < references_.size(); ++i) {
      json::object params = {{"num_beams", 1}, {"max_new_tokens", 40}};
      if (!begun.empty()) params["decoder_prompt"] = begun[i];
      const json::object request = {{"prompt", references_[i].at("prompt")},
                                    {"template", references_[i].at("template")},
                                    {"params", params}};
      requests += WriteJson(request) + "\n";
    }
    const ProgramRun run = RunEspalier(
        {"batch", "-m", SourcePath("models/en-fr-marian"), "--input", "-"},
        requests);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return ParseLines(run.out);
  }

  // Returns the results of all requests in one batch, with limited concurrency.
  static std::vector<json::value> RunBatch(
      const std::vector<json::value>& references,
      const std::string& max_running) {
    std::string requests;
    for (const json::value& line : references) {
      json::object request = {{"prompt", line.at("prompt")},
                              {"template", line.at("template")},
                              {"params", line.at("params")}};
      json::object& params = request["params"].as_object();
      params["num_return_sequences"] = params["num_beams"];
      requests += WriteJson(request) + "\n";
    }
    const ProgramRun run =
        RunEspalier({"batch", "-m", SourcePath("models/en-fr-marian"),
                     "--input", "-", "--max-running", max_running},
                    requests);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return ParseLines(run.out);
  }

  const std::vector<json::value> references_;
};

TEST_F(MarianModelTest, TranslationsAreThoseOfTransformers) {
  ASSERT_GE(references_.size(), 40);
  const std::vector<json::value> results = RunBatch(references_, "64");
  ASSERT_EQ(results.size(), references_.size());
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(results[i].at("usage").at("prompt_tokens").as_int64(),
              std::ssize(references_[i].at("prompt_tokens").as_array()));
    const json::array& expected = references_[i].at("hypotheses").as_array();
    const json::array& found = results[i].at("hypotheses").as_array();
    ASSERT_EQ(found.size(), expected.size());
    for (size_t k = 0; k < found.size(); ++k) {
      EXPECT_EQ(found[k].at("tokens"), expected[k].at("tokens"));
      EXPECT_EQ(found[k].at("text"), expected[k].at("text"));
      if (expected[k].at("score").is_null()) continue;
      EXPECT_NEAR(found[k].at("score").to_number<double>(),
                  expected[k].at("score").to_number<double>(), 1e-4);
    }
  }
}

TEST_F(MarianModelTest, AloneTheyAreAsTogether) {
  const std::vector<json::value> alone = RunBatch(references_, "1");
  const std::vector<json::value> together = RunBatch(references_, "64");
  ASSERT_EQ(alone.size(), references_.size());
  ASSERT_EQ(together.size(), references_.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i].at("hypotheses"), together[i].at("hypotheses")) << i;
  }
}

// Errors name generation_config.json as the source, and the limits of both
// contexts.
TEST_F(MarianModelTest, ErrorsSpeakOfTheValuesInForce) {
  const std::string model = SourcePath("models/en-fr-marian");
  const auto error = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"generate", "-m", model});
    const ProgramRun run = RunEspalier(args);
    EXPECT_EQ(run.exit_code, 2);
    return run.err;
  };
  const std::string kFile =
      "/generation_config.json: give another, or --generation-config none\n";
  EXPECT_EQ(error({"-n", "5", "No."}),
            "espalier: -n must be at most 4 (--num-beams), got 5; --num-beams "
            "is 4 by " +
                model + kFile);
  EXPECT_EQ(error({"--max-new-tokens", "512", "No."}),
            "espalier: --max-new-tokens must be at most 511 (the decoder's "
            "context of 512 less 1 token that it begins with), got 512\n");
  EXPECT_THAT(
      error({"--allowed-token-ids", "3", "No."}),
      ::testing::HasSubstr("; --bad-words-ids is [[3]] by " + model + kFile));
  EXPECT_THAT(error({std::string(60'000, 'a')}),
              ::testing::HasSubstr("prompt is too long: the model's encoder "
                                   "reads at most 512 tokens: "));
}

// After the first words of a translation comes its rest, with the space that
// divides the two.
TEST_F(MarianModelTest, ATranslationThatIsBegunGoesOn) {
  const std::vector<json::value> whole = Translate({});
  ASSERT_EQ(whole.size(), references_.size());
  const auto text_of = [](const json::value& result) {
    return std::string(
        result.at("hypotheses").at(0).at("text").as_string().c_str());
  };
  std::vector<std::string> begun;
  for (const json::value& result : whole) {
    const std::string text = text_of(result);
    const size_t second = text.find(' ', text.find(' ') + 1);
    begun.push_back(text.substr(0, second));
  }
  const std::vector<json::value> rest = Translate(begun);
  ASSERT_EQ(rest.size(), whole.size());
  int num_same = 0;
  for (size_t i = 0; i < rest.size(); ++i) {
    SCOPED_TRACE(begun[i]);
    EXPECT_EQ(rest[i].at("usage").at("prompt_tokens"),
              whole[i].at("usage").at("prompt_tokens"));
    num_same += begun[i] + text_of(rest[i]) == text_of(whole[i]);
  }
  // Others have been begun in other tokens than the model's.
  EXPECT_GE(num_same, std::ssize(rest) * 9 / 10);
}

// Only requests that set do_sample get a note on the model's beams.
TEST_F(MarianModelTest, BeamsThatAreDrawnByDefaultAreToldOf) {
  const std::string directory = SourcePath("models/en-fr-marian");
  const auto errors = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"generate", "-m", directory, "--seed", "1",
                                     "--max-new-tokens", "2"});
    options.emplace_back("Go.");
    const ProgramRun run = RunEspalier(options);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.err;
  };
  EXPECT_EQ(errors({"--do-sample"}),
            Concat("espalier: note: num_beams is 4 by ", directory,
                   "/generation_config.json, so beams are drawn; --num-beams 1 "
                   "draws samples\n"));
  EXPECT_EQ(errors({"--do-sample", "--speculate", "ngram"}),
            "espalier: note: num_beams 4 is left out, a default that does not "
            "go with speculate ngram\n");
  // More hypotheses than the default has beams leave it out.
  EXPECT_EQ(errors({"--do-sample", "-n", "6"}),
            Concat("espalier: note: num_beams is 4 by ", directory,
                   "/generation_config.json, fewer than -n 6, so samples are "
                   "drawn; --num-beams 6 draws beams\n"));
  for (const std::vector<std::string>& said :
       {std::vector<std::string>{"--do-sample", "--num-beams", "1"},
        {"--do-sample", "--num-beams", "4"},
        {"--do-sample", "--num-beams", "1", "-n", "6"},
        {"--do-sample", "--best-of", "6"}}) {
    EXPECT_EQ(errors(said), "");
  }
}

TEST_F(MarianModelTest, ABatchIsToldOfOneSuchRequest) {
  const std::string directory = SourcePath("models/en-fr-marian");
  const auto errors = [&](const std::vector<std::string>& params) {
    std::string input;
    for (size_t i = 0; i < params.size(); ++i) {
      input += Concat(R"({"id": "q)", i, R"(", "prompt": "Go.", "params": )",
                      R"({"max_tokens": 2, )", params[i], "}}\n");
    }
    const ProgramRun run = RunEspalier({"batch", "-m", directory}, input);
    EXPECT_EQ(run.exit_code, 0) << run.out;
    return run.err;
  };
  const std::string beams = R"("do_sample": true)";
  const std::string samples = R"("do_sample": true, "n": 6)";
  const std::string quiet = R"("do_sample": true, "num_beams": 4)";
  const auto note = [&](std::string_view id, std::string_view what) {
    return Concat("espalier: note: request \"", id, "\": num_beams is 4 by ",
                  directory, "/generation_config.json, ", what,
                  " (said of one such request)\n");
  };
  const std::string_view of_beams =
      "so beams are drawn; num_beams 1 draws samples";
  const std::string_view of_samples =
      "fewer than n 6, so samples are drawn; num_beams 6 draws beams";
  EXPECT_EQ(errors({R"("num_beams": 2)", quiet}), "");
  EXPECT_EQ(errors({quiet, beams}), note("q1", of_beams));
  EXPECT_EQ(errors({samples, quiet}), note("q0", of_samples));
  EXPECT_EQ(
      errors({R"("do_sample": true, "speculate": "ngram")", quiet}),
      "espalier: note: request \"q0\": num_beams 4 is left out, a default "
      "that does not go with speculate ngram (said of one such "
      "request)\n");
  // In the order of the answers.
  const std::string both = errors({samples, beams});
  EXPECT_THAT(both,
              ::testing::AllOf(::testing::HasSubstr(note("q0", of_samples)),
                               ::testing::HasSubstr(note("q1", of_beams))));
  const std::string one = errors({beams, beams, beams});
  EXPECT_EQ(std::ranges::count(one, '\n'), 1) << one;
}

}  // namespace
}  // namespace espalier::testing
