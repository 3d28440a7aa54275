// Generator::UpdateWeights. Tiny models A, B, ... of one shape have different
// weights; a result must be that of a generator of the weights that it names.
#include "espalier/update_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "espalier/generator.h"
#include "tests/batcher/toy_requests.h"
#include "tests/espalier/generator_fixture.h"
#include "tests/executor/mixture_requests.h"
#include "tests/few_cases.h"
#include "tests/model/tiny_model.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Answer = absl::StatusOr<Generation>;

const TinyShape kShape = {.vocab_size = 40, .max_context = 200};

// A model directory, with its tensors at hand.
class TinyDirectory {
 public:
  explicit TinyDirectory(int seed, const TinyShape& shape = kShape)
      : model_(MakeTinyModel(shape, seed)), directory_(FilesOf(model_)) {}

  const std::string& path() const { return directory_.path(); }
  const TinyModel& model() const { return model_; }

  // All tensors, or those of every `step`-th name from `first` on.
  WeightUpdate Tensors(int first = 0, int step = 1) const {
    WeightUpdate update;
    int i = 0;
    for (const auto& [name, tensor] : model_.tensors) {
      if (i++ % step != first) continue;
      update.tensors.push_back(
          {name,
           {"F32", tensor.shape, std::as_bytes(std::span(tensor.values))}});
    }
    return update;
  }

 private:
  const TinyModel model_;
  const TempDirectory directory_;
};

GeneratorOptions Options(const std::string& weights = "stored",
                         const std::string& device = "cpu") {
  return {.device = device,
          .dtype = "f32",
          .weights = weights,
          .num_threads = device == "cpu" ? 2 : 0,
          .kv_cache_bytes = 2 << 20,
          .page_size = 4};
}

Generator Load(const TinyDirectory& directory,
               const GeneratorOptions& options = Options()) {
  auto generator = Generator::Load(directory.path(), options);
  EXPECT_OK(generator);
  return *std::move(generator);
}

std::vector<Request> Requests(const Generator& generator, int count,
                              uint32_t seed) {
  std::vector<Request> requests =
      AnyMixtureRequests(count, seed, generator.description(),
                         {.max_samples = 20,
                          .max_beams = 10,
                          .max_new_tokens = 12,
                          .speculates = true,
                          .scores = true,
                          .constrains = true});
  for (Request& request : requests) {
    request.params.seed = 7;
    request.params.deadline_ms.reset();
  }
  return requests;
}

std::vector<Answer> AnswersOf(Generator& generator,
                              const std::vector<Request>& requests) {
  std::vector<Answer> answers;
  for (const Request& request : requests) {
    answers.push_back(generator.GenerateTokens(request));
  }
  return answers;
}

// A GPU may divide a step otherwise, and round its sums otherwise.
void ExpectClose(const Generation& answer, const Generation& expected) {
  ASSERT_EQ(answer.hypotheses.size(), expected.hypotheses.size());
  for (size_t i = 0; i < answer.hypotheses.size(); ++i) {
    EXPECT_EQ(answer.hypotheses[i].tokens, expected.hypotheses[i].tokens);
    EXPECT_NEAR(answer.hypotheses[i].score, expected.hypotheses[i].score, 1e-4);
  }
}

void ExpectSame(const Answer& answer, const Answer& expected,
                bool is_gpu = false) {
  ASSERT_EQ(answer.status(), expected.status());
  if (!answer.ok()) return;
  if (is_gpu) return ExpectClose(*answer, *expected);
  EXPECT_TRUE(SameHypotheses(*answer, *expected));
}

void ExpectSame(const std::vector<Answer>& answers,
                const std::vector<Answer>& expected, bool is_gpu = false) {
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSame(answers[i], expected[i], is_gpu);
  }
}

TEST(UpdateWeightsTest, ResultsAreThoseOfTheNewWeights) {
  const TinyDirectory a(1), b(2);
  for (const auto& [format, device] :
       {std::pair("stored", "cpu"), std::pair("int8", "cpu"),
        std::pair("int4", "cpu"), std::pair("stored", "auto")}) {
    SCOPED_TRACE(Concat(format, " on ", device));
    const bool is_gpu = std::string_view(device) == "auto";
    Generator generator = Load(a, Options(format, device));
    Generator of_b = Load(b, Options(format, device));
    const auto requests = Requests(generator, Cases(40, 10), 3);
    const auto by_a = AnswersOf(generator, requests);
    const auto by_b = AnswersOf(of_b, requests);
    WeightUpdate directory;
    directory.directory = b.path();
    EXPECT_EQ(generator.UpdateWeights(directory, {}).value_or(-1), 1);
    ExpectSame(AnswersOf(generator, requests), by_b, is_gpu);
    EXPECT_EQ(generator.UpdateWeights(a.Tensors(), {.version = 7}).value_or(-1),
              7);
    ExpectSame(AnswersOf(generator, requests), by_a, is_gpu);
    // In parts, of which each leaves the others as they are.
    EXPECT_EQ(generator.UpdateWeights(b.Tensors(0, 3), {}).value_or(-1), 8);
    EXPECT_OK(generator.UpdateWeights(b.Tensors(2, 3), {}));
    EXPECT_OK(generator.UpdateWeights(b.Tensors(1, 3), {}));
    EXPECT_EQ(generator.weights_version(), 10);
    const auto again = AnswersOf(generator, requests);
    ExpectSame(again, by_b, is_gpu);
    for (const Answer& answer : again) {
      if (answer.ok()) {
        EXPECT_EQ(answer->weights_version, 10);
      }
    }
    EXPECT_EQ(generator.weights(), nullptr);
  }
}

TEST(UpdateWeightsTest, TheFilesOfAnUpdateMayBeReplacedAfterwards) {
  const TinyDirectory a(1), b(2);
  Generator generator = Load(a);
  Generator of_b = Load(b);
  const auto requests = Requests(generator, 10, 3);
  {
    const TinyDirectory same_as_b(2);
    WeightUpdate update;
    update.directory = same_as_b.path();
    ASSERT_OK(generator.UpdateWeights(update, {}));
  }
  ExpectSame(AnswersOf(generator, requests), AnswersOf(of_b, requests));
}

TEST(UpdateWeightsTest, ATiedHeadFollowsTheEmbedding) {
  TinyShape shape = kShape;
  shape.tied = true;
  const TinyDirectory a(1, shape), b(2, shape);
  Generator generator = Load(a);
  Generator of_b = Load(b);
  const auto requests = Requests(generator, 10, 3);
  ASSERT_OK(generator.UpdateWeights(b.Tensors(), {}));
  ExpectSame(AnswersOf(generator, requests), AnswersOf(of_b, requests));
}

// Threads send requests while the weights change, in every way.
TEST(UpdateWeightsTest, EachResultIsOfTheWeightsThatItNames) {
  constexpr int kNumModels = 3;
  constexpr int kNumThreads = 4;
  std::vector<std::unique_ptr<TinyDirectory>> models;
  std::vector<std::vector<Answer>> expected;
  GeneratorOptions options = Options();
  options.kv_cache_bytes = 300 << 10;  // few pages: requests are preempted
  options.host_cache_bytes = 100 << 10;
  std::vector<Request> requests;
  for (int i = 0; i < kNumModels; ++i) {
    models.push_back(std::make_unique<TinyDirectory>(i + 1));
    Generator alone = Load(*models.back(), options);
    if (i == 0) requests = Requests(alone, Cases(60, 15), 5);
    expected.push_back(AnswersOf(alone, requests));
  }
  for (const RunningRequests running :
       {RunningRequests::kWait, RunningRequests::kAbort,
        RunningRequests::kKeep}) {
    Generator generator = Load(*models[0], options);
    std::atomic<bool> is_over = false;
    std::atomic<int> num_checked = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < kNumThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        while (!is_over) {
          const size_t i = random() % requests.size();
          const Answer answer = generator.GenerateTokens(requests[i]);
          if (running == RunningRequests::kAbort &&
              absl::IsUnavailable(answer.status())) {
            continue;
          }
          if (!answer.ok()) {
            EXPECT_EQ(answer.status(), expected[0][i].status());
            continue;
          }
          // A request that was kept has tokens of several.
          if (running == RunningRequests::kKeep) continue;
          const int model = answer->weights_version % kNumModels;
          EXPECT_TRUE(SameHypotheses(*answer, *expected[model][i]))
              << i << " of version " << answer->weights_version;
          ++num_checked;
        }
      });
    }
    const int num_updates = Cases(60, 10);
    for (int version = 1; version <= num_updates; ++version) {
      const TinyDirectory& next = *models[version % kNumModels];
      WeightUpdate update = next.Tensors();
      if (version % 2 == 0) update = {.directory = next.path()};
      EXPECT_EQ(
          generator.UpdateWeights(update, {.running = running}).value_or(-1),
          version);
      std::this_thread::sleep_for(std::chrono::milliseconds(version % 7));
    }
    is_over = true;
    for (std::thread& thread : threads) thread.join();
    // No page of older weights is shared, whatever was kept.
    ExpectSame(AnswersOf(generator, requests),
               expected[num_updates % kNumModels]);
    if (running != RunningRequests::kKeep) {
      EXPECT_GT(num_checked, 0);
    }
    EXPECT_EQ(generator.Stats().num_running, 0);
  }
}

// Returns a long request of the toy's.
Request LongRequest() {
  Request request;
  request.prompt_tokens = {3, 4, 5, 6, 7, 8, 9, 10, 11};
  request.params.max_new_tokens = 150;
  request.params.ignore_eos = true;
  return request;
}

TEST(UpdateWeightsTest, RequestsThatWaitStartWithTheNewWeights) {
  const TinyDirectory a(1), b(2);
  Generator generator = Load(a);
  Generator of_a = Load(a);
  Generator of_b = Load(b);
  for (const RunningRequests running :
       {RunningRequests::kWait, RunningRequests::kKeep}) {
    ASSERT_OK(generator.UpdateWeights(a.Tensors(), {.version = 1}));
    std::atomic<int> num_tokens = 0;
    Answer streamed;
    GenerationRequest request{Prompt(std::vector<TokenId>(9, 3))};
    request.params = LongRequest().params;
    std::thread thread([&] {
      streamed = generator.Stream(request, [&](const StreamEvent&) {
        ++num_tokens;
        return true;
      });
    });
    while (num_tokens == 0) std::this_thread::yield();
    ASSERT_OK(generator.UpdateWeights(b.Tensors(),
                                      {.running = running, .version = 2}));
    const bool has_ended = num_tokens >= 150;
    const Answer after = generator.GenerateTokens(LongRequest());
    thread.join();
    ASSERT_OK(streamed);
    EXPECT_EQ(streamed->weights_version, 1);
    ASSERT_OK(after);
    EXPECT_EQ(after->weights_version, 2);
    ExpectSame(after, of_b.GenerateTokens(LongRequest()));
    if (running == RunningRequests::kWait) {
      EXPECT_TRUE(has_ended || num_tokens > 0);
      ExpectSame(streamed, of_a.Generate(request));
    }
  }
}

TEST(UpdateWeightsTest, ATimeoutLeavesTheWeightsAndTheRequests) {
  const TinyDirectory a(1), b(2);
  Generator generator = Load(a);
  Generator of_a = Load(a);
  std::atomic<bool> may_end = false;
  std::atomic<int> num_events = 0;
  Answer streamed;
  GenerationRequest request{Prompt(std::vector<TokenId>(9, 3))};
  request.params = LongRequest().params;
  request.params.max_new_tokens = 190;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 300; ++i) {
    answers.push_back(generator.GenerateAsync(request));
  }
  const auto updated = generator.UpdateWeights(
      b.Tensors(), {}, {.timeout = absl::Milliseconds(20)});
  EXPECT_EQ(updated.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(generator.weights_version(), 0);
  const Answer expected = of_a.Generate(request);
  for (std::future<Answer>& answer : answers)
    ExpectSame(answer.get(), expected);
  ASSERT_OK(generator.UpdateWeights(b.Tensors(), {}));
}

TEST(UpdateWeightsTest, TheEndOfAGeneratorEndsAnUpdate) {
  const TinyDirectory a(1), b(2);
  for (int i = 0; i < Cases(40, 8); ++i) {
    auto generator = std::make_unique<Generator>(Load(a));
    GenerationRequest request{Prompt(std::vector<TokenId>(9, 3))};
    request.params = LongRequest().params;
    auto answer = generator->GenerateAsync(request);
    std::promise<void> begun;
    std::thread thread([&, &generator = *generator] {
      begun.set_value();
      const auto updated = generator.UpdateWeights(
          b.Tensors(), {.running = static_cast<RunningRequests>(i % 3)});
      EXPECT_TRUE(updated.ok() || absl::IsCancelled(updated.status()))
          << updated.status();
    });
    begun.get_future().wait();
    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
    generator->Shutdown();
    thread.join();
    answer.get().IgnoreError();
  }
}

TEST(UpdateWeightsTest, WhatDoesNotFitIsRefusedByName) {
  const TinyDirectory a(1), b(2);
  Generator generator = Load(a);
  const auto requests = Requests(generator, 5, 3);
  const auto expected = AnswersOf(generator, requests);
  const auto error = [&](const WeightUpdate& update,
                         const UpdateOptions& options = {}) {
    const auto updated = generator.UpdateWeights(update, options);
    EXPECT_FALSE(updated.ok());
    return std::string(updated.status().message());
  };
  EXPECT_EQ(error({}),
            "an update of weights must have a directory or tensors, got "
            "neither");
  WeightUpdate both = b.Tensors();
  both.directory = b.path();
  EXPECT_THAT(error(both), HasSubstr("got both"));
  WeightUpdate twice = b.Tensors();
  twice.tensors.push_back(twice.tensors.front());
  EXPECT_THAT(error(twice), HasSubstr("is given twice"));
  WeightUpdate unknown = b.Tensors();
  unknown.tensors[0].name = "model.unknown.weight";
  EXPECT_THAT(error(unknown), HasSubstr("model.unknown.weight"));
  for (const auto& [dtype, part] :
       {std::pair("F64", "dtype"), std::pair("BF16", "bytes"),
        std::pair("I32", "must have dtype"), std::pair("X", "unknown dtype")}) {
    WeightUpdate wrong = b.Tensors();
    wrong.tensors[1].tensor.dtype = dtype;
    EXPECT_THAT(error(wrong),
                AllOf(HasSubstr(wrong.tensors[1].name),
                      ::testing::AnyOf(HasSubstr(part), HasSubstr("bytes"))));
  }
  WeightUpdate shape = b.Tensors();
  for (NamedTensor& tensor : shape.tensors) {
    if (tensor.tensor.shape.size() != 2) continue;
    std::swap(tensor.tensor.shape[0], tensor.tensor.shape[1]);
    if (tensor.tensor.shape[0] == tensor.tensor.shape[1]) continue;
    EXPECT_THAT(error(shape), HasSubstr("must have shape"));
    break;
  }
  WeightUpdate negative = b.Tensors();
  negative.tensors[0].tensor.shape = {-1, -24};
  EXPECT_THAT(error(negative), HasSubstr(negative.tensors[0].name));
  EXPECT_EQ(error(b.Tensors(), {.version = 0}),
            "version must be at least 1, got 0");
  WeightUpdate missing;
  missing.directory = a.path() + "/nothing";
  EXPECT_THAT(error(missing), HasSubstr("nothing"));
  TinyShape other = kShape;
  other.num_layers = 3;
  const TinyDirectory deeper(2, other);
  WeightUpdate deep;
  deep.directory = deeper.path();
  EXPECT_THAT(error(deep), AllOf(HasSubstr("num_hidden_layers must be 2"),
                                 HasSubstr("got 3")));
  EXPECT_EQ(generator.weights_version(), 0);
  ExpectSame(AnswersOf(generator, requests), expected);
}

TEST(UpdateWeightsTest, AModelOfYourOwnHasNone) {
  auto generator =
      Generator::Create(std::make_shared<ToyModel>(ToyModelOptions()));
  ASSERT_OK(generator);
  WeightUpdate update;
  update.directory = "/";
  EXPECT_EQ(generator->UpdateWeights(update, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(UpdateWeightsTest, ASecondUpdateIsRefusedWhileOneRuns) {
  const TinyDirectory a(1), b(2);
  Generator generator = Load(a);
  std::atomic<int> num_updated = 0, num_refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        const auto updated = generator.UpdateWeights(b.Tensors(), {});
        EXPECT_TRUE(updated.ok() || updated.status().message() ==
                                        "another update of the weights runs")
            << updated.status();
        ++(updated.ok() ? num_updated : num_refused);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(generator.weights_version(), num_updated);
}

}  // namespace
}  // namespace espalier::testing
