// Random requests of texts: between languages, in tokens that are bytes, in a
// language of texts, as streams. Together, in few pages, each gets what it gets
// alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "espalier/generator.h"
#include "tests/batcher/toy_requests.h"
#include "tests/executor/mixture_requests.h"
#include "tests/few_cases.h"
#include "tests/model/tiny_model.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using Answer = absl::StatusOr<Generation>;

constexpr int kPageSize = 4;

const std::vector<std::string> kTexts = {"Tom is here.", "Tom is here now.",
                                         "We are not here.", "Is he?"};

const std::vector<ConstraintParams> kLanguages = {
    {.choice = std::vector<std::string>{"Tom", "Tom is", "We are here"}},
    {.regex = "(Tom|We)( [a-z]{1,3}){0,2}"},
    {.regex = "[a-z]+( [a-z]+)?"},
    {.json_schema = R"({"type": "boolean"})"},
    {.json_schema = R"({"type": "array", "items": {"enum": [1, 12]}})"},
    {.grammar = "root ::= \"(\" root \")\" | [a-z]"}};

// A model directory of this name; "byt5" has random weights.
class ModelDirectory {
 public:
  explicit ModelDirectory(const std::string& name)
      : tiny_(name == "byt5" ? ByteFiles() : ModelFiles()),
        path_(name == "byt5" ? tiny_.path()
                             : SourcePath("tests/data/text_models/" + name)) {}

  const std::string& path() const { return path_; }

 private:
  static ModelFiles ByteFiles() {
    TinyModel model =
        MakeTinyModel({.vocab_size = 384, .max_context = 64}, /*seed=*/1);
    model.config["eos_token_id"] = 1;
    model.generation_config.clear();
    ModelFiles files = FilesOf(model);
    files["tokenizer_config.json"] = R"({"tokenizer_class": "ByT5Tokenizer"})";
    return files;
  }

  const TempDirectory tiny_;
  const std::string path_;
};

class GeneratorMixtureTest : public ::testing::TestWithParam<const char*> {
 protected:
  GeneratorMixtureTest() : directory_(GetParam()) {}

  Generator Load(int64_t kv_cache_bytes, bool prefix_cache) {
    absl::StatusOr<Generator> generator =
        Generator::Load(directory_.path(), {.num_threads = 1,
                                            .kv_cache_bytes = kv_cache_bytes,
                                            .page_size = kPageSize,
                                            .prefix_cache = prefix_cache});
    EXPECT_OK(generator);
    return *std::move(generator);
  }

  const ModelDirectory directory_;
};

std::vector<GenerationRequest> AnyTextRequests(int count,
                                               const Generator& generator) {
  const auto& languages = generator.tokenizer()->languages().all();
  std::vector<GenerationRequest> requests;
  for (Request& any : AnyMixtureRequests(count, 7, generator.description(),
                                         {.max_samples = 4,
                                         .max_beams = 4,
                                         .max_prompt_tokens = 12,
                                         .max_new_tokens = 24,
                                         .constrains = true})) {
    const size_t i = requests.size();
    std::string name;
    if (!languages.empty() && i % 4 > 0) {
      name = languages[i % languages.size()].code + "-" +
             languages[i / 2 % languages.size()].code;
    }
    any.params.logprobs_start = 0;  // a text has a length of its own
    const bool is_restricted =
        any.params.allowed_sequences || any.params.allowed_token_ids;
    if (any.params.constraint || (i % 2 == 1 && !is_restricted)) {
      any.params.constraint = kLanguages[i / 2 % kLanguages.size()];
    }
    // A language, and a template that forces its token, exclude times.
    if (any.params.constraint || !languages.empty()) {
      any.params.timestamps.reset();
    }
    requests.push_back({Prompt::Templated(kTexts[i % kTexts.size()], name),
                        std::move(any.params)});
  }
  return requests;
}

// The tokens of a stream begin or are those of its result.
Answer RunStream(Generator& generator, const GenerationRequest& request) {
  std::map<int, std::vector<TokenId>> samples;
  std::vector<TokenId> prefix;
  const auto append = [](const auto& event, std::vector<TokenId>* tokens) {
    tokens->insert(tokens->end(), event.tokens.begin(), event.tokens.end());
  };
  Answer answer = generator.Stream(request, [&](const StreamEvent& event) {
    if (const auto* sample = std::get_if<SampleEvent>(&event)) {
      append(*sample, &samples[sample->sample]);
    } else if (const auto* stable = std::get_if<StablePrefixEvent>(&event)) {
      append(*stable, &prefix);
    }
    return true;
  });
  if (!answer.ok()) return answer;
  for (const Hypothesis& hypothesis : answer->hypotheses) {
    EXPECT_TRUE(std::ranges::mismatch(prefix, hypothesis.tokens).in1 ==
                prefix.end());
    EXPECT_TRUE(IsBeamSearch(request.params) ||
                std::ranges::any_of(samples, [&](const auto& sample) {
                  return sample.second == hypothesis.tokens;
                }));
  }
  return answer;
}

// Every third one is a stream.
std::vector<Answer> RunTogether(
    Generator& generator, const std::vector<GenerationRequest>& requests) {
  std::vector<Answer> answers(requests.size(), absl::UnknownError("none"));
  std::vector<std::future<Answer>> futures(requests.size());
  std::vector<std::jthread> streams;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (i % 3 == 0) {
      streams.emplace_back(
          [&, i] { answers[i] = RunStream(generator, requests[i]); });
    } else {
      futures[i] = generator.GenerateAsync(requests[i]);
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    if (futures[i].valid()) answers[i] = futures[i].get();
  }
  streams.clear();
  return answers;
}

TEST_P(GeneratorMixtureTest, TogetherInFewPagesEachGetsWhatItGetsAlone) {
  constexpr int64_t kRoomyBytes = 1 << 24;
  Generator roomy = Load(kRoomyBytes, /*prefix_cache=*/false);
  const std::vector<GenerationRequest> requests =
      AnyTextRequests(Cases(240, 120), roomy);
  std::vector<Answer> alone;
  int num_answered = 0, num_in_language = 0;
  for (const GenerationRequest& request : requests) {
    alone.push_back(roomy.Generate(request));
    if (!alone.back().ok()) continue;
    ++num_answered;
    num_in_language += request.params.constraint.has_value();
  }
  EXPECT_GT(num_answered, std::ssize(requests) * 3 / 4);
  EXPECT_GT(num_in_language, std::ssize(requests) / 6);
  const int64_t page_bytes = kRoomyBytes / roomy.description().num_pages;
  for (const bool prefix_cache : {true, false}) {
    SCOPED_TRACE(prefix_cache);
    Generator scarce = Load(40 * page_bytes, prefix_cache);
    const std::vector<Answer> together = RunTogether(scarce, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_EQ(together[i].status(), alone[i].status()) << "request " << i;
      if (!alone[i].ok()) continue;
      EXPECT_TRUE(SameHypotheses(*together[i], *alone[i])) << "request " << i;
      EXPECT_EQ(together[i]->texts, alone[i]->texts) << "request " << i;
    }
    EXPECT_GT(scarce.Stats().num_preemptions, 0);
    EXPECT_EQ(scarce.Stats().num_cached_tokens > 0, prefix_cache);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GeneratorMixtureTest,
                         ::testing::Values("nllb", "m2m100", "mbart50", "byt5"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace espalier::testing
