// Generator's functions for programs that run an engine themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "batcher/engine.h"
#include "beam/constraint_cache.h"
#include "espalier/chat.h"
#include "espalier/generator.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

template <typename Given>
absl::StatusOr<Result> RunOnEngine(Generator& generator, Given request) {
  boost::asio::io_context context;
  absl::StatusOr<Result> result = absl::UnknownError("not answered");
  boost::asio::co_spawn(context,
                        generator.engine().Generate(std::move(request)),
                        [&](std::exception_ptr, absl::StatusOr<Result> got) {
                          result = std::move(got);
                        });
  context.run();
  return result;
}

TEST(GeneratorPrepareTest, WhatItsEngineGivesFinishesAsGenerateDoes) {
  ASSERT_OK_AND_ASSIGN(Generator generator, Generator::Load(EnFrDir()));
  GenerationRequest request{"How old are you?"};
  request.params.num_beams = 4;
  request.params.num_return_sequences = 2;
  request.params.stop = {" vous"};
  ASSERT_OK_AND_ASSIGN(const EngineRequest prepared,
                       generator.Prepare(request));
  ASSERT_OK_AND_ASSIGN(
      const Generation finished,
      prepared.finish(RunOnEngine(generator, prepared.request)));
  ASSERT_OK_AND_ASSIGN(const Generation whole, generator.Generate(request));
  EXPECT_EQ(finished.texts, whole.texts);
  EXPECT_EQ(finished.hypotheses[1].score, whole.hypotheses[1].score);
}

TEST(GeneratorPrepareTest, ErrorsOfItsEngineSayWhatToDo) {
  ASSERT_OK_AND_ASSIGN(
      Generator generator,
      Generator::Load(EnFrDir(), {.kv_cache_bytes = int64_t{1} << 20}));
  GenerationRequest request{"How old are you?"};
  request.params.num_beams = 64;
  request.params.max_new_tokens = 200;
  ASSERT_OK_AND_ASSIGN(const EngineRequest prepared,
                       generator.Prepare(request));
  EXPECT_THAT(prepared.finish(RunOnEngine(generator, prepared.request)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("raise kv_cache_bytes")));
}

TEST(GeneratorPrepareTest, AConstraintIsLeftForLater) {
  ASSERT_OK_AND_ASSIGN(
      Generator generator,
      Generator::Load(EnFrDir(), {.max_running = 1, .max_waiting = 1}));
  const Engine& engine = generator.engine();
  const auto prepare = [&](std::string regex, bool compiles = false) {
    GenerationRequest request{"It is raining."};
    request.params.constraint = {.regex = std::move(regex)};
    request.params.deadline_ms = 1'000'000;
    return engine.Prepare(generator.Prepare(std::move(request))->request,
                          {.compiles = compiles});
  };
  // By each of those that compile it.
  for (int way = 0; way < 3; ++way) {
    const std::string regex(way + 1, 'a');
    const auto before = std::chrono::steady_clock::now();
    ASSERT_OK_AND_ASSIGN(Engine::Prepared prepared, prepare(regex));
    const auto language = prepared.uncompiled();
    ASSERT_NE(language, nullptr);
    EXPECT_FALSE(language->is_compiled());
    EXPECT_EQ(prepared.params().constraint->regex, regex);
    if (way == 0) engine.Compile(language.get());
    if (way < 2) {
      EXPECT_OK(engine.Complete(&prepared));
      EXPECT_EQ(prepared.uncompiled(), nullptr);
    }
    const absl::Duration left = absl::FromChrono(*prepared.deadline() - before);
    EXPECT_GE(left, absl::Milliseconds(1'000'000));
    EXPECT_LT(left, absl::Milliseconds(1'060'000));
    ASSERT_OK_AND_ASSIGN(const Result result,
                         RunOnEngine(generator, std::move(prepared)));
    EXPECT_EQ(result.hypotheses[0].finish_reason, FinishReason::kStop);
    EXPECT_TRUE(language->is_compiled());
    ASSERT_OK_AND_ASSIGN(const Engine::Prepared again, prepare(regex));
    EXPECT_EQ(again.uncompiled(), nullptr);
  }
  ASSERT_OK_AND_ASSIGN(const Engine::Prepared now, prepare("b", true));
  EXPECT_EQ(now.uncompiled(), nullptr);
  ASSERT_OK_AND_ASSIGN(Engine::Prepared wrong, prepare("("));
  EXPECT_THAT(engine.Complete(&wrong),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("constraint.regex: ")));
}

TEST(GeneratorPrepareTest, APlaceIsTakenAheadAndOnce) {
  ASSERT_OK_AND_ASSIGN(
      Generator generator,
      Generator::Load(EnFrDir(), {.max_running = 1, .max_waiting = 1}));
  const Engine& engine = generator.engine();
  const auto prepare = [&] {
    GenerationRequest request{"It is raining."};
    request.params.constraint = {.regex = "Il pleut"};
    return engine
        .Prepare(generator.Prepare(std::move(request))->request,
                 {.compiles = false})
        .value();
  };
  Engine::Prepared first = prepare();
  Engine::Prepared third = prepare();
  EXPECT_OK(engine.TakePlace(&first));
  EXPECT_OK(engine.TakePlace(&first));
  {
    Engine::Prepared second = prepare();
    EXPECT_OK(engine.TakePlace(&second));
    EXPECT_THAT(engine.TakePlace(&third),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         HasSubstr("too many requests are open")));
  }
  EXPECT_OK(engine.TakePlace(&third));
  EXPECT_OK(RunOnEngine(generator, std::move(first)));
  EXPECT_OK(RunOnEngine(generator, std::move(third)));
}

TEST(GeneratorPrepareTest, ConversationsNeedAChatTemplate) {
  ASSERT_OK_AND_ASSIGN(Generator plain, Generator::Load(EnFrDir()));
  EXPECT_THAT(plain.chat_prompts(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("chat_template.jinja")));
  const ScratchDirectory with_chat;
  for (const auto& file : std::filesystem::directory_iterator(EnFrDir())) {
    std::filesystem::create_symlink(
        file.path(), with_chat.path(file.path().filename().string()));
  }
  with_chat.Write("chat_template.jinja",
                  "{{ bos_token }}{{ messages[0].content }}");
  ASSERT_OK_AND_ASSIGN(Generator chat, Generator::Load(with_chat.path()));
  ASSERT_OK_AND_ASSIGN(const ChatPrompts* prompts, chat.chat_prompts());
  ChatInputs inputs;
  inputs.messages = {{{"role", "user"}, {"content", "It rains."}}};
  ASSERT_OK_AND_ASSIGN(const std::vector<TokenId> tokens,
                       prompts->Make(inputs, 100));
  ASSERT_OK_AND_ASSIGN(std::vector<TokenId> expected,
                       EnFrTokenizer().Encode("It rains."));
  expected.insert(expected.begin(), *EnFrTokenizer().bos_id());
  EXPECT_EQ(tokens, expected);
}

}  // namespace
}  // namespace espalier::testing
