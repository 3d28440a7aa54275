// Generators of model directories, and options that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "espalier/generator.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/text/sentencepiece_as_json.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status LoadStatus(const GeneratorOptions& options) {
  return Generator::Load(EnFrDir(), options).status();
}

// Whose three best translations are known.
GenerationRequest HowOldAreYou() {
  GenerationRequest request{"How old are you?"};
  request.params.num_beams = 5;
  request.params.num_return_sequences = 3;
  return request;
}

void ExpectTranslated(Generator& generator) {
  const auto answer = generator.Generate(HowOldAreYou());
  ASSERT_OK(answer);
  EXPECT_THAT(answer->texts,
              ElementsAre("Quel âge avez-vous ?", "Quel âge as-tu ?",
                          "De quel âge as-tu ?"));
}

TEST(GeneratorLoadTest, TextsAreThoseOfTheEmbeddedTranslator) {
  for (const std::string device : {"cpu", "auto"}) {
    auto generator =
        Generator::Load(EnFrDir(), {.device = device, .dtype = "f32"});
    ASSERT_OK(generator);
    ExpectTranslated(*generator);
    GenerationRequest request = HowOldAreYou();
    request.params.stop = {" âge"};
    auto answer = generator->Generate(request);
    ASSERT_OK(answer);
    EXPECT_EQ(answer->texts[0], "Quel");
    request = {Prompt::Templated("Où est la gare ?", "fr-en")};
    request.params.num_beams = 5;
    answer = generator->Generate(request);
    ASSERT_OK(answer);
    EXPECT_EQ(answer->texts[0], "Where is the station?");
  }
}

// A directory as TextsAreThoseOfTheEmbeddedTranslator has it, but with a
// tokenizer.json of the same vocabulary in the place of tokenizer.model.
TEST(GeneratorLoadTest, ATokenizerJsonServesTheSameTexts) {
  const ScratchDirectory scratch;
  for (const std::string file : {"config.json", "generation_config.json",
                                 "model.safetensors", "prompt_template.json"}) {
    std::filesystem::create_symlink(EnFrDir() + "/" + file, scratch.path(file));
  }
  scratch.Write(
      "tokenizer.json",
      SentencePieceAsJson(
          ReadFile(EnFrDir() + "/tokenizer.model", size_t{1} << 20).value()));
  auto generator =
      Generator::Load(scratch.path(), {.device = "cpu", .dtype = "f32"});
  ASSERT_OK(generator);
  ExpectTranslated(*generator);
  GenerationRequest request = HowOldAreYou();
  std::string streamed;
  request.params.num_return_sequences = 1;
  request.params.stop = {" as", " avez"};
  const auto answer = generator->Stream(request, [&](const StreamEvent& event) {
    if (const auto* prefix = std::get_if<StablePrefixEvent>(&event)) {
      streamed += prefix->text;
    }
    return true;
  });
  ASSERT_OK(answer);
  EXPECT_EQ(answer->texts[0], "Quel âge");
  EXPECT_EQ(streamed, answer->texts[0]);
}

TEST(GeneratorLoadTest, ProgressRisesToAllBytesOfTheWeights) {
  std::vector<int64_t> done;
  int64_t all = 0;
  ASSERT_OK(LoadStatus({.load_progress = [&](int64_t d, int64_t total) {
    done.push_back(d);
    all = total;
  }}));
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_GT(done.size(), 6);
  ASSERT_FALSE(done.empty());
  EXPECT_EQ(done.back(), all);
  // In bf16; but norms.
  const auto file =
      std::filesystem::file_size(EnFrDir() + "/model.safetensors");
  EXPECT_NEAR(static_cast<double>(all), static_cast<double>(file), 0.01 * file);
}

TEST(GeneratorLoadTest, WrongOptionsAreNamed) {
  const auto named = [](const std::string& message) {
    return StatusIs(kInvalid, HasSubstr(message));
  };
  EXPECT_THAT(LoadStatus({.device = "gpu"}),
              named("device must be auto, cpu, cuda or cuda:N with N from 0, "
                    "got \"gpu\""));
  EXPECT_THAT(LoadStatus({.dtype = "int8"}),
              named("dtype must be f32, f16 or bf16, got \"int8\""));
  EXPECT_THAT(LoadStatus({.dtype = "bf16"}),
              named("dtype bf16 needs device cuda"));
  EXPECT_THAT(LoadStatus({.weights = "int2"}),
              named("weights must be stored, fp8, int8 or int4, got \"int2\""));
  EXPECT_THAT(LoadStatus({.device = "cuda", .weights = "int8"}),
              named("weights int8 needs device cpu"));
  EXPECT_THAT(LoadStatus({.device = "cuda", .dtype = "f16", .weights = "fp8"}),
              named("weights fp8 needs dtype bf16"));
  EXPECT_THAT(LoadStatus({.num_threads = -1}), named("num_threads"));
  EXPECT_THAT(LoadStatus({.num_threads = 1 << 20}), named("num_threads"));
  EXPECT_THAT(LoadStatus({.kv_cache_bytes = 0}), named("kv_cache_bytes"));
  EXPECT_THAT(LoadStatus({.kv_cache_bytes = 5}),
              named("kv_cache_bytes must hold a page of 98304 bytes (page_size "
                    "16), got 5"));
  EXPECT_THAT(LoadStatus({.page_size = 0}), named("page_size"));
  EXPECT_THAT(LoadStatus({.host_cache_bytes = -1}),
              named("host_cache_bytes must be at least 0, got -1"));
  EXPECT_THAT(LoadStatus({.host_cache_bytes = 5}),
              named("host_cache_bytes must hold a page of"));
  EXPECT_THAT(LoadStatus({.preempted_pages = "disk"}),
              named("preempted_pages must be auto, host or drop, got "
                    "\"disk\""));
  EXPECT_THAT(LoadStatus({.preempted_pages = "host"}),
              named("preempted_pages host needs host memory: give "
                    "host_cache_bytes, which is 0 here"));
  EXPECT_THAT(
      LoadStatus({.host_cache_bytes = 1 << 20, .preempted_pages = "drop"}),
      named("host_cache_bytes must be 0, or unset, with preempted_pages drop"));
  EXPECT_OK(LoadStatus({.host_cache_bytes = 0, .preempted_pages = "drop"}));
  EXPECT_THAT(LoadStatus({.page_size = 5000}), named("page_size"));
  EXPECT_THAT(LoadStatus({.max_step_tokens = 0}), named("max_step_tokens"));
  EXPECT_THAT(LoadStatus({.max_beams = -3}), named("max_beams"));
  EXPECT_THAT(LoadStatus({.max_candidates = 0}), named("max_candidates"));
  EXPECT_THAT(LoadStatus({.prefill_share = -0.1}),
              named("prefill_share must be in [0, 1], got -0.1"));
  EXPECT_THAT(LoadStatus({.prefill_share = 1.5}),
              named("prefill_share must be in [0, 1], got 1.5"));
  EXPECT_THAT(
      LoadStatus({.prefill_share = std::numeric_limits<double>::quiet_NaN()}),
      named("prefill_share must be in [0, 1], got nan"));
  EXPECT_THAT(LoadStatus({.max_running = 0}), named("max_running"));
  EXPECT_THAT(LoadStatus({.max_waiting = -1}), named("max_waiting"));
  EXPECT_THAT(LoadStatus({.step_timeout = absl::ZeroDuration()}),
              named("step_timeout must be above 0, got 0"));
  EXPECT_THAT(LoadStatus({.step_timeout = absl::Seconds(-1)}),
              named("step_timeout must be above 0, got -1s"));
  EXPECT_THAT(LoadStatus({.max_waiting_tokens = -1}),
              named("max_waiting_tokens"));
  EXPECT_THAT(LoadStatus({.device = "cuda", .num_threads = 2}),
              named("num_threads needs device cpu, got 2"));
}

#ifndef ESPALIER_CUDA
TEST(GeneratorLoadTest, CudaIsRefusedWithWhatToDo) {
  EXPECT_THAT(LoadStatus({.device = "cuda:0"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cmake --preset cuda")));
}
#endif

TEST(GeneratorLoadTest, MissingModelsAreNamed) {
  const ScratchDirectory scratch;
  EXPECT_THAT(
      Generator::Load(scratch.path("nowhere")).status(),
      StatusIs(absl::StatusCode::kNotFound,
               HasSubstr("no such directory: " + scratch.path("nowhere"))));
  EXPECT_THAT(Generator::Load("").status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("no such directory: \"\"")));
  const ScratchDirectory empty;
  EXPECT_THAT(Generator::Load(empty.path("")).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("config.json")));
}

TEST(GeneratorLoadTest, WhatIsNoModelDirectorySaysSo) {
  const ScratchDirectory scratch;
  const std::string file = scratch.Write("file", "{}");
  EXPECT_THAT(
      Generator::Load(file).status(),
      StatusIs(kInvalid, HasSubstr(file + " is a file; a model is a "
                                          "directory with config.json")));
  const std::string loop = scratch.path("loop");
  std::filesystem::create_symlink("loop", loop);
  EXPECT_THAT(Generator::Load(loop).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cannot read " + loop + ": ")));
}

// A model with an unreadable tokenizer is not a model without text.
TEST(GeneratorLoadTest, ATokenizerThatCannotBeReachedIsAnError) {
  const ScratchDirectory scratch;
  for (const std::string file : {"config.json", "model.safetensors"}) {
    std::filesystem::create_symlink(EnFrDir() + "/" + file, scratch.path(file));
  }
  EXPECT_OK(Generator::Load(scratch.path("")).status());
  const std::string loop = scratch.path("tokenizer.model");
  std::filesystem::create_symlink("tokenizer.model", loop);
  EXPECT_THAT(Generator::Load(scratch.path("")).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("tokenizer.model: ")));
}

TEST(GeneratorLoadTest, TooFewPagesSayWhatToDo) {
  auto generator = Generator::Load(EnFrDir(), {.kv_cache_bytes = 1 << 18});
  ASSERT_OK(generator);
  GenerationRequest request{"It rains."};
  request.params.num_beams = 50;
  request.params.max_new_tokens = 100;
  EXPECT_THAT(generator->Generate(request),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr(", or raise kv_cache_bytes")));
}

TEST(GeneratorCreateTest, WhatAModelDecidesMustBeUnset) {
  const auto status = [](const GeneratorOptions& options) {
    return Generator::Create(std::make_shared<ToyModel>(ToyModelOptions()),
                             nullptr, options)
        .status();
  };
  EXPECT_THAT(status({.device = "cuda"}),
              StatusIs(kInvalid, HasSubstr("cuda")));
  EXPECT_THAT(status({.dtype = "f32"}), StatusIs(kInvalid, HasSubstr("dtype")));
  EXPECT_THAT(status({.page_size = 16}),
              StatusIs(kInvalid, HasSubstr("page_size")));
  EXPECT_THAT(status({.kv_cache_bytes = 1 << 20}),
              StatusIs(kInvalid, HasSubstr("kv_cache_bytes")));
  EXPECT_THAT(Generator::Create(nullptr).status(),
              StatusIs(kInvalid, HasSubstr("null")));
  EXPECT_OK(status({.num_threads = 1, .max_beams = 4}));
}

}  // namespace
}  // namespace espalier::testing
