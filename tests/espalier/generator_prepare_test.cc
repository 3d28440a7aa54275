// Generator's functions for programs that run an engine themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "batcher/engine.h"
#include "espalier/chat.h"
#include "espalier/generator.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<Result> RunOnEngine(Generator& generator, Request request) {
  boost::asio::io_context context;
  absl::StatusOr<Result> result = absl::UnknownError("not answered");
  boost::asio::co_spawn(context, generator.engine().Generate(request),
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
