// Requests of a generator take defaults from the model's
// generation_config.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "base/status.h"
#include "espalier/generator.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr char kSampling[] =
    R"({"eos_token_id": 2, "do_sample": true, "temperature": 0.6,
        "top_p": 0.9, "max_new_tokens": 40})";

// The translator with another generation_config.json.
class GeneratorDefaultsTest : public ::testing::Test {
 protected:
  GeneratorDefaultsTest() {
    for (const auto& file : std::filesystem::directory_iterator(EnFrDir())) {
      std::filesystem::create_symlink(
          file.path(), model_.path(file.path().filename().string()));
    }
  }

  absl::StatusOr<Generator> Load(const std::string& config,
                                 const std::string& option = "auto") {
    model_.Write("generation_config.json", config);
    return Generator::Load(model_.path(), {.generation_config = option});
  }

  const ScratchDirectory model_;
};

GenerationRequest Seeded(const char* prompt = "How old are you?") {
  GenerationRequest request{prompt};
  request.params.seed = 3;
  return request;
}

TEST_F(GeneratorDefaultsTest, AreAsIfTheRequestHadSaidSo) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Load(kSampling));
  ASSERT_OK_AND_ASSIGN(const Generation taken, generator.Generate(Seeded()));
  EXPECT_THAT(taken.usage.defaults,
              ElementsAre(Pair("do_sample", "true"), Pair("temperature", "0.6"),
                          Pair("top_p", "0.9"), Pair("max_new_tokens", "40")));
  EXPECT_EQ(taken.seed, 3);
  GenerationRequest request = Seeded();
  request.params.do_sample = true;
  request.params.temperature = 0.6;
  request.params.top_p = 0.9;
  request.params.max_new_tokens = 40;
  ASSERT_OK_AND_ASSIGN(const Generation said, generator.Generate(request));
  EXPECT_THAT(said.usage.defaults, IsEmpty());
  EXPECT_EQ(said.hypotheses[0].tokens, taken.hypotheses[0].tokens);
  ASSERT_OK_AND_ASSIGN(const EngineRequest made, generator.Prepare(Seeded()));
  EXPECT_EQ(made.request.params, request.params);
  // Every way to run the request applies the same defaults.
  const auto streamed =
      generator.Stream(Seeded(), [](const StreamEvent&) { return true; });
  ASSERT_OK(streamed);
  EXPECT_EQ(streamed->texts, taken.texts);
  EXPECT_EQ(streamed->usage.defaults, taken.usage.defaults);
  const auto later = generator.GenerateAsync(Seeded()).get();
  ASSERT_OK(later);
  EXPECT_EQ(later->usage.defaults, taken.usage.defaults);
}

TEST_F(GeneratorDefaultsTest, ParamsAsTheyStandTakeNone) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Load(kSampling));
  ASSERT_OK_AND_ASSIGN(Generator plain, Generator::Load(EnFrDir()));
  GenerationRequest request{"How old are you?"};
  request.takes_defaults = false;
  ASSERT_OK_AND_ASSIGN(const Generation stands, generator.Generate(request));
  ASSERT_OK_AND_ASSIGN(const Generation greedy, plain.Generate(request));
  EXPECT_EQ(stands.texts, greedy.texts);
  EXPECT_EQ(stands.seed, std::nullopt);
  EXPECT_THAT(stands.usage.defaults, IsEmpty());
  // Theirs can be begun with.
  request.params = generator.defaults().params;
  request.params.seed = 3;
  ASSERT_OK_AND_ASSIGN(const Generation begun, generator.Generate(request));
  ASSERT_OK_AND_ASSIGN(const Generation taken, generator.Generate(Seeded()));
  EXPECT_EQ(begun.texts, taken.texts);
}

// A caller that says do_sample false means it.
TEST_F(GeneratorDefaultsTest, GivenParamsTakeNoneThoughTheyDoNotDiffer) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Load(kSampling));
  GenerationRequest request{"How old are you?"};
  request.given = {"do_sample", "temperature", "top_p"};
  ASSERT_OK_AND_ASSIGN(const Generation output, generator.Generate(request));
  EXPECT_THAT(output.usage.defaults, ElementsAre(Pair("max_new_tokens", "40")));
  EXPECT_FALSE(output.seed.has_value());
}

TEST_F(GeneratorDefaultsTest, PreparedTokensTakeNone) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Load(kSampling));
  GenerationRequest request{"How old are you?"};
  request.takes_defaults = false;
  ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> tokens,
                       generator.MakePrompt(request.prompt));
  ASSERT_OK_AND_ASSIGN(const EngineRequest made,
                       generator.PrepareTokens({.prompt_tokens = tokens,
                                                .params = request.params}));
  ASSERT_OK_AND_ASSIGN(const EngineRequest of_text, generator.Prepare(request));
  EXPECT_EQ(made.request.params, of_text.request.params);
  EXPECT_EQ(made.request.prompt_tokens, of_text.request.prompt_tokens);
  EXPECT_EQ(made.request.num_continued, of_text.request.num_continued);
}

TEST_F(GeneratorDefaultsTest, NoneIsAsAModelWithoutTheFile) {
  ASSERT_OK_AND_ASSIGN(Generator none, Load(kSampling, "none"));
  ASSERT_OK_AND_ASSIGN(Generator plain, Generator::Load(EnFrDir()));
  EXPECT_TRUE(plain.defaults().empty());
  ASSERT_OK_AND_ASSIGN(const Generation output, none.Generate(Seeded()));
  ASSERT_OK_AND_ASSIGN(const Generation greedy, plain.Generate(Seeded()));
  EXPECT_EQ(output.texts, greedy.texts);
  EXPECT_THAT(output.usage.defaults, IsEmpty());
  EXPECT_THAT(greedy.usage.defaults, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const EngineRequest request, none.Prepare(Seeded()));
  EXPECT_EQ(request.request.params.max_new_tokens,
            std::nullopt);  // not the file's
}

TEST_F(GeneratorDefaultsTest, AnotherFileOrDirectoryTakesItsPlace) {
  const ScratchDirectory other;
  const std::string file = other.Write("generation_config.json",
                                       R"({"num_beams": 3, "max_length": 30,
                                           "eos_token_id": [2, 262]})");
  for (const std::string& option : {file, other.path()}) {
    ASSERT_OK_AND_ASSIGN(Generator generator, Load(kSampling, option));
    ASSERT_OK_AND_ASSIGN(const Generation output, generator.Generate(Seeded()));
    EXPECT_THAT(output.usage.defaults,
                ElementsAre(Pair("eos_token_id", "[2, 262]"),
                            Pair("num_beams", "3"), Pair("max_length", "30")));
    EXPECT_EQ(output.seed, std::nullopt);
  }
}

TEST_F(GeneratorDefaultsTest, WhatIsNotSupportedIsToldOrRefused) {
  constexpr char kUnsupported[] = R"({"guidance_scale": 5, "num_beams": 2})";
  ASSERT_OK_AND_ASSIGN(Generator generator, Load(kUnsupported));
  const std::string told = model_.path() +
                           "/generation_config.json: guidance_scale 5 is not "
                           "supported";
  EXPECT_EQ(UnsupportedWarning(generator.defaults()), told + ", and ignored");
  EXPECT_THAT(
      Load(kUnsupported, "strict"),
      StatusIs(kInvalid, told + "; generation_config auto goes on without"));
  EXPECT_OK(Load(kSampling, "strict"));
}

TEST_F(GeneratorDefaultsTest, WrongValuesAndFilesAreNamed) {
  const std::string path = model_.path() + "/generation_config.json: ";
  EXPECT_THAT(Load(R"({"temperature": -2})"),
              StatusIs(kInvalid, path + "temperature must be at least 0, got "
                                        "-2"));
  EXPECT_THAT(
      Load(R"({"top_p": "high"})"),
      StatusIs(kInvalid, path + "top_p must be a number, got \"high\""));
  EXPECT_THAT(Load("[]"), StatusIs(kInvalid, path + "must be a JSON object"));
  // Wrong values of fields that are not used.
  EXPECT_OK(Load(R"({"temperature": -2})", "none"));
  EXPECT_OK(Load(R"({"max_new_tokens": 0})", "none"));
  EXPECT_THAT(
      Load(R"({"max_new_tokens": 0})"),
      StatusIs(kInvalid, path + "max_new_tokens must be at least 1, got "
                                "0"));
  EXPECT_THAT(Load("{}", ""),
              StatusIs(kInvalid,
                       "generation_config must be auto, strict, none, a file "
                       "or a directory, got \"\""));
  EXPECT_THAT(
      Load("{}", model_.path("no.json")),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("generation_config: ")));
}

TEST_F(GeneratorDefaultsTest, AnErrorSaysWhereTheBeamsAreFrom) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Load(R"({"num_beams": 4})"));
  GenerationRequest request = Seeded();
  request.params.num_return_sequences = 5;
  EXPECT_THAT(generator.Generate(request),
              StatusIs(kInvalid,
                       "num_return_sequences must be at most 4 (num_beams), "
                       "got 5; num_beams is 4 by " +
                           model_.path() + "/generation_config.json"));
}

// The decoder's context begins with one token, here the prompt. The first
// generated token is forced, too.
TEST_F(GeneratorDefaultsTest, ForcedTokensStandWhereTheyAreForced) {
  ASSERT_OK_AND_ASSIGN(
      Generator generator,
      Load(R"({"forced_bos_token_id": 700, "forced_eos_token_id": 800,
               "max_new_tokens": 4})",
           "strict"));
  const auto generate = [&](std::vector<TokenId> prompt) {
    GenerationRequest request{std::move(prompt)};
    request.params.ignore_eos = true;
    return generator.Generate(request)->hypotheses[0].tokens;
  };
  const std::vector<TokenId> one = generate({1});
  ASSERT_EQ(one.size(), 4);
  EXPECT_EQ(one.front(), 700);
  EXPECT_EQ(one.back(), 800);
  const std::vector<TokenId> several = generate({1, 4, 264, 5});
  EXPECT_NE(several.front(), 700);
  EXPECT_EQ(several.back(), 800);
}

// Stop strings are found in text.
TEST_F(GeneratorDefaultsTest, WithoutATokenizerStopStringsAreLeftOut) {
  const GenerationRequest request{std::vector<TokenId>{1, 4, 264, 5}};
  constexpr char kStops[] = R"({"stop_strings": ["x"], "max_new_tokens": 3})";
  std::filesystem::remove(model_.path("tokenizer.model"));
  ASSERT_OK_AND_ASSIGN(Generator generator, Load(kStops));
  EXPECT_THAT(UnsupportedWarning(generator.defaults()),
              HasSubstr("stop_strings [\"x\"] is not supported"));
  ASSERT_OK_AND_ASSIGN(const Generation output, generator.Generate(request));
  EXPECT_THAT(output.usage.defaults, ElementsAre(Pair("max_new_tokens", "3")));
  EXPECT_THAT(Load(kStops, "strict"),
              StatusIs(kInvalid, HasSubstr("stop_strings [\"x\"] is not "
                                           "supported; generation_config auto "
                                           "goes on without")));
}

TEST_F(GeneratorDefaultsTest, AModelOfOnesOwnHasThemOfAFileAlone) {
  const auto model = [] {
    return std::make_shared<ToyModel>(ToyModelOptions());
  };
  GenerationRequest request{std::vector<TokenId>{1, 2}};
  ASSERT_OK_AND_ASSIGN(Generator plain, Generator::Create(model()));
  ASSERT_OK_AND_ASSIGN(const Generation one, plain.Generate(request));
  EXPECT_THAT(one.usage.defaults, IsEmpty());
  const std::string file =
      model_.Write("gen.json", R"({"max_new_tokens": 3, "min_new_tokens": 3})");
  ASSERT_OK_AND_ASSIGN(
      Generator generator,
      Generator::Create(model(), nullptr, {.generation_config = file}));
  ASSERT_OK_AND_ASSIGN(const Generation three, generator.Generate(request));
  EXPECT_EQ(three.hypotheses[0].tokens.size(), 3u);
  EXPECT_THAT(
      Generator::Create(model(), nullptr,
                        {.generation_config = model_.Write(
                             "gen.json", R"({"suppress_tokens": [11]})")}),
      StatusIs(kInvalid, HasSubstr("suppress_tokens must be a token id in "
                                   "[0, 11), got 11")));
}

}  // namespace
}  // namespace espalier::testing
