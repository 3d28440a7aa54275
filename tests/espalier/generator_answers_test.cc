// A generator answers as the engine does when the request is alone: however it
// is called, from however many threads, whatever happens to others.
#include <atomic>
#include <random>
#include <semaphore>

#include "base/field_error.h"
#include "espalier/async_stream.h"
#include "tests/espalier/generator_fixture.h"
#include "tests/few_cases.h"

namespace espalier::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Ways to run a request.
enum class Way { kGenerate, kFuture, kCallback, kAll, kStream, kStreamAsync };
constexpr int kNumWays = 6;

class GeneratorAnswersTest : public GeneratorFixture {
 protected:
  GeneratorAnswersTest() : GeneratorFixture(TextModel()) {
    Make({.num_threads = 2}, SharedEnFrTokenizer());
  }

  absl::StatusOr<Generation> Run(Way way, const Request& request,
                                 const CallOptions& call) {
    const GenerationRequest from = FrontDoorRequest(request);
    switch (way) {
      case Way::kGenerate:
        return generator_->Generate(from, call);
      case Way::kFuture:
        return generator_->GenerateAsync(from, call).get();
      case Way::kCallback: {
        std::promise<absl::StatusOr<Generation>> promise;
        generator_->GenerateAsync(
            from,
            [&](absl::StatusOr<Generation> answer) {
              promise.set_value(std::move(answer));
            },
            call);
        return promise.get_future().get();
      }
      case Way::kAll:
        return RunAll(from, call);
      case Way::kStreamAsync:
        return RunStreamAsync(request, call);
      case Way::kStream:
        break;
    }
    StreamLog log;
    absl::StatusOr<Generation> answer = generator_->Stream(
        from,
        [&](const StreamEvent& event) {
          log.Take(event);
          return true;
        },
        call);
    if (!answer.ok()) return answer;
    log.Take(static_cast<const Result&>(*answer));
    ExpectTellsTheResult(request, log);
    return answer;
  }

  // Among others, which it says the ends of.
  absl::StatusOr<Generation> RunAll(const GenerationRequest& from,
                                    const CallOptions& call) {
    std::atomic<int> num_ended = 0;
    const auto answers =
        generator_->GenerateAll({from, from}, call, [&] { ++num_ended; });
    EXPECT_EQ(num_ended, 2);
    return answers.at(num_taken_ % 2);
  }

  // Takes some of the events late, so that some are merged.
  absl::StatusOr<Generation> RunStreamAsync(const Request& request,
                                            const CallOptions& call) {
    std::counting_semaphore<> ready(0);
    absl::StatusOr<AsyncStream> stream = generator_->StreamAsync(
        FrontDoorRequest(request), [&] { ready.release(); }, call);
    if (!stream.ok()) return stream.status();
    StreamLog log;
    while (true) {
      ready.acquire();
      if (++num_taken_ % 3 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      for (const StreamEvent& event : stream->TakeEvents()) log.Take(event);
      std::optional<absl::StatusOr<Generation>> answer = stream->TakeResult();
      if (!answer.has_value()) continue;
      EXPECT_EQ(stream->TakeResult(), std::nullopt);
      if (!answer->ok()) return *std::move(answer);
      log.Take(static_cast<const Result&>(**answer));
      ExpectTellsTheResult(request, log);
      return *std::move(answer);
    }
  }

  void ExpectAsAlone(const Request& request,
                     const absl::StatusOr<Generation>& answer) {
    const absl::StatusOr<Result> alone =
        RunAlone(model_options_, request, SharedEnFrTokenizer());
    ASSERT_EQ(answer.status(), alone.status());
    if (!answer.ok()) return;
    ++num_results_;
    EXPECT_TRUE(SameResult(*answer, *alone));
    std::vector<std::string> texts;
    for (const Hypothesis& hypothesis : alone->hypotheses) {
      texts.push_back(TextFor(request, hypothesis.tokens));
    }
    EXPECT_THAT(answer->texts, ElementsAreArray(texts));
  }

  // Answers that were no errors, as alone.
  std::atomic<int> num_results_ = 0;
  std::atomic<int> num_taken_ = 0;  // batches of StreamAsync
};

TEST_F(GeneratorAnswersTest, EveryWayToCallAnswersAsAlone) {
  const auto requests =
      RandomStreamRequests(Cases(60, 10), 1, generator_->description());
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectAsAlone(requests[i], Run(Way(i % kNumWays), requests[i], {}));
    ASSERT_FALSE(HasFailure()) << "request " << i;
  }
  EXPECT_GT(num_results_, requests.size() / 2);
  ExpectNothingHeld();
}

// Each thread runs all requests, some with a timeout or a stop at a random
// time, which give the usual result or that error.
TEST_F(GeneratorAnswersTest, ManyThreadsGetWhatEachWouldAlone) {
  std::atomic<int> num_ended_early = 0;
  const auto client = [&](int seed) {
    std::mt19937 random(seed);
    for (const Request& request :
         RandomStreamRequests(Cases(24, 6), seed, generator_->description())) {
      CallOptions call;
      std::stop_source stop;
      std::jthread stopper;
      const int fate = random() % 4;
      if (fate == 0) call.timeout = absl::Microseconds(random() % 3000);
      if (fate == 1) {
        call.stop = stop.get_token();
        const auto delay = std::chrono::microseconds(random() % 3000);
        stopper = std::jthread([&stop, delay] {
          std::this_thread::sleep_for(delay);
          stop.request_stop();
        });
      }
      const auto answer = Run(Way(random() % kNumWays), request, call);
      const bool is_ended_early = absl::IsDeadlineExceeded(answer.status()) ||
                                  absl::IsCancelled(answer.status());
      num_ended_early += is_ended_early;
      if (!is_ended_early) ExpectAsAlone(request, answer);
      const auto end = fate == 0 ? absl::StatusCode::kDeadlineExceeded
                                 : absl::StatusCode::kCancelled;
      if (is_ended_early) {
        EXPECT_LT(fate, 2);
        EXPECT_EQ(answer.status().code(), end);
      }
    }
  };
  {
    std::vector<std::jthread> clients;
    for (int seed = 0; seed < 8; ++seed) clients.emplace_back(client, seed);
  }
  EXPECT_GT(num_ended_early, 0);
  EXPECT_GT(num_results_, 0);
  ExpectNothingHeld();
}

TEST_F(GeneratorAnswersTest, AllAreAnsweredInOrder) {
  const auto requests =
      RandomStreamRequests(Cases(40, 10), 5, generator_->description());
  std::vector<GenerationRequest> all;
  for (const Request& request : requests) {
    all.push_back(FrontDoorRequest(request));
  }
  all.insert(all.begin() + 3, GenerationRequest{std::vector<TokenId>{}});
  auto answers = generator_->GenerateAll(all);
  ASSERT_THAT(answers, SizeIs(all.size()));
  EXPECT_THAT(answers[3], StatusIs(kInvalid, HasSubstr("prompt")));
  answers.erase(answers.begin() + 3);
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectAsAlone(requests[i], answers[i]);
  }
  EXPECT_GT(num_results_, requests.size() / 2);
}

TEST_F(GeneratorAnswersTest, TextIsBosAndItsPiecesOrThePiecesAlone) {
  const std::vector<TokenId> pieces = *EnFrTokenizer().Encode("It rains.");
  std::vector<TokenId> with_bos = {*EnFrTokenizer().bos_id()};
  with_bos.insert(with_bos.end(), pieces.begin(), pieces.end());
  EXPECT_EQ(generator_->Prepare({"It rains."})->request.prompt_tokens,
            with_bos);
  EXPECT_EQ(*generator_->MakePrompt("It rains."), with_bos);
  EXPECT_EQ(
      generator_->Prepare({Prompt::Raw("It rains.")})->request.prompt_tokens,
      pieces);
  EXPECT_THAT(generator_->Generate({" "}), StatusIs(kInvalid, HasSubstr("")));
  EXPECT_THAT(generator_->Generate({"\xff"}),
              StatusIs(kInvalid, HasSubstr("not UTF-8")));
  EXPECT_THAT(generator_->Generate({Prompt::Templated("It rains.", "en-fr")}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"en-fr\"")));
}

TEST_F(GeneratorAnswersTest, WrongParametersAreNamedHoweverItIsCalled) {
  Request request;
  request.prompt_tokens = {1};
  request.params.num_beams = 0;
  for (int way = 0; way < kNumWays; ++way) {
    // ToString() would print the parts of the error.
    EXPECT_EQ(Run(Way(way), request, {}).status().ToString(),
              "INVALID_ARGUMENT: num_beams must be at least 1, got 0");
    const std::optional<FieldError> parts = FieldErrorOf(
        Run(Way(way), request, {.keeps_error_parts = true}).status());
    ASSERT_TRUE(parts.has_value()) << way;
    EXPECT_EQ(parts->field, "num_beams");
    EXPECT_EQ(parts->value, "0");
  }
  ExpectNothingHeld();
}

class WithoutTextTest : public GeneratorFixture {};

TEST_F(WithoutTextTest, TextIsRefusedAndTokensHaveNone) {
  Make();
  EXPECT_THAT(generator_->Generate({"It rains."}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no tokenizer")));
  const auto answer = generator_->Generate(Simple());
  ASSERT_OK(answer);
  EXPECT_THAT(answer->texts, SizeIs(0));
}

}  // namespace
}  // namespace espalier::testing
