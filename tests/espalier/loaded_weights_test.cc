// Generators on the weights of others (GeneratorOptions::loaded_weights).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "espalier/generator.h"
#include "tests/batcher/toy_requests.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

std::vector<GenerationRequest> Requests() {
  GenerationRequest beams{"How old are you?"};
  beams.params.num_beams = 5;
  beams.params.num_return_sequences = 3;
  GenerationRequest samples{"The weather is nice today."};
  samples.params.do_sample = true;
  samples.params.seed = 3;
  samples.params.num_return_sequences = 4;
  return {beams, samples};
}

std::vector<std::vector<std::string>> TextsOf(Generator& generator) {
  std::vector<std::vector<std::string>> texts;
  for (const GenerationRequest& request : Requests()) {
    const auto answer = generator.Generate(request);
    EXPECT_OK(answer);
    if (answer.ok()) texts.push_back(answer->texts);
  }
  return texts;
}

// The cache of the first is gone before the next is made, and so is the file of
// the weights.
void ExpectOtherPageSizes(const std::string& device) {
  const ScratchDirectory scratch;
  const std::string directory = scratch.path("model");
  std::filesystem::copy(EnFrDir(), directory,
                        std::filesystem::copy_options::recursive);
  GeneratorOptions options = {.device = device,
                              .dtype = "f32",
                              .kv_cache_bytes = 32 << 20,
                              .draft_model = directory};
  std::shared_ptr<const ModelWeights> weights;
  std::vector<std::vector<std::string>> expected;
  {
    auto first = Generator::Load(directory, options);
    ASSERT_OK(first);
    weights = first->weights();
    ASSERT_NE(weights, nullptr);
    expected = TextsOf(*first);
  }
  std::filesystem::remove(directory + "/model.safetensors");
  options.loaded_weights = weights;
  for (const int page_size : {1, 7, 64}) {
    options.page_size = page_size;
    auto other = Generator::Load(directory + "/", options);
    ASSERT_OK(other);
    EXPECT_EQ(other->description().page_size, page_size);
    EXPECT_NE(other->weights(), nullptr);
    EXPECT_EQ(TextsOf(*other), expected) << page_size;
  }
}
TEST(LoadedWeightsTest, AnotherPageSizeNeedsNoOtherWeights) {
  ExpectOtherPageSizes("cpu");
  ExpectOtherPageSizes("auto");
}

TEST(LoadedWeightsTest, GeneratorsOnTheSameWeightsRunAtOnce) {
  auto first = Generator::Load(EnFrDir());
  ASSERT_OK(first);
  auto second = Generator::Load(
      EnFrDir(), {.page_size = 5, .loaded_weights = first->weights()});
  ASSERT_OK(second);
  auto pending = first->GenerateAsync(Requests()[0]);
  EXPECT_EQ(TextsOf(*second), TextsOf(*first));
  EXPECT_OK(pending.get());
}

TEST(LoadedWeightsTest, OptionsThatDifferAreNamed) {
  auto first = Generator::Load(EnFrDir());
  ASSERT_OK(first);
  const std::shared_ptr<const ModelWeights> weights = first->weights();
  const auto error = [&](const std::string& directory,
                         GeneratorOptions options) {
    options.loaded_weights = weights;
    return Generator::Load(directory, options).status();
  };
  const auto names = [](const std::string& text) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text));
  };
  EXPECT_THAT(error(EnFrDir(), {.weights = "int8"}),
              names("weights must be that of loaded_weights, \"stored\", got "
                    "\"int8\""));
  EXPECT_THAT(error(EnFrDir(), {.draft_model = EnFrDir()}),
              names("draft_model must be that of loaded_weights, \"\", got"));
  const ScratchDirectory scratch;
  std::filesystem::copy(EnFrDir(), scratch.path("model"),
                        std::filesystem::copy_options::recursive);
  EXPECT_THAT(error(scratch.path("model"), {}),
              names("the directory must be that of loaded_weights"));
}

TEST(LoadedWeightsTest, AModelOfOnesOwnHasNone) {
  auto generator =
      Generator::Create(std::make_shared<ToyModel>(ToyModelOptions()));
  ASSERT_OK(generator);
  EXPECT_EQ(generator->weights(), nullptr);
  auto first = Generator::Load(EnFrDir());
  ASSERT_OK(first);
  EXPECT_THAT(Generator::Create(std::make_shared<ToyModel>(ToyModelOptions()),
                                nullptr, {.loaded_weights = first->weights()})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("loaded_weights must be unset")));
}

}  // namespace
}  // namespace espalier::testing
