// Generators on the weights of others (GeneratorOptions::loaded_weights).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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

// The cache of the first is gone before the next is made, and so are the files:
// nothing is read again.
TEST(LoadedWeightsTest, AnotherPageSizeNeedsNoOtherWeights) {
  const ScratchDirectory scratch;
  const std::string directory = scratch.path("model");
  std::filesystem::copy(EnFrDir(), directory,
                        std::filesystem::copy_options::recursive);
  std::optional<Generator> first;
  {
    auto loaded = Generator::Load(directory, {.draft_model = directory});
    ASSERT_OK(loaded);
    first.emplace(*std::move(loaded));
  }
  const std::vector<std::vector<std::string>> expected = TextsOf(*first);
  const std::shared_ptr<const ModelWeights> weights = first->weights();
  ASSERT_NE(weights, nullptr);
  first.reset();
  std::filesystem::remove(directory + "/model.safetensors");
  for (const int page_size : {1, 7, 64}) {
    auto other = Generator::Load(directory, {.kv_cache_bytes = 32 << 20,
                                             .page_size = page_size,
                                             .draft_model = directory,
                                             .loaded_weights = weights});
    ASSERT_OK(other);
    EXPECT_EQ(other->description().page_size, page_size);
    EXPECT_EQ(other->weights() == nullptr, false);
    EXPECT_EQ(TextsOf(*other), expected) << page_size;
  }
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
              names("directory must be that of loaded_weights"));
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
