// Default speculation of requests that set none, and draft models that do not
// fit.
//
// Drafts are used if the measured step times make them profitable, so tests
// that need drafts force them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "espalier/backend.h"
#include "espalier/generator.h"
#include "tests/batcher/toy_requests.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/test_tokenizer.h"
#include "tests/toy_model.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr SpeculationParams kOff = {};

std::shared_ptr<Model> Repeating(bool shares = true) {
  ToyModelOptions options;
  options.num_tokens_read = 2;
  options.num_pages = 1000;
  options.has_shareable_pages = shares;
  return std::make_shared<ToyModel>(options);
}

absl::StatusOr<Generator> MakeGenerator(GeneratorOptions options,
                                        bool shares = true) {
  options.num_threads = 1;
  return Generator::Create(Repeating(shares), nullptr, options);
}

GenerationRequest Repetitive(
    std::optional<SpeculationParams> speculate = std::nullopt) {
  GenerationRequest request{std::vector<TokenId>{1, 2, 3, 1, 2, 3, 1, 2}};
  request.params.max_new_tokens = 40;
  request.params.ignore_eos = true;
  request.params.speculate = speculate;
  return request;
}

TEST(SpeculationDefaultTest, RequestsThatDoNotSaySpeculateAsTheEngineDoes) {
  ASSERT_OK_AND_ASSIGN(Generator plain, MakeGenerator({}));
  ASSERT_OK_AND_ASSIGN(Generator drafting,
                       MakeGenerator({.speculate = SpeculationParams{
                                          .method = SpeculationMethod::kSuffix,
                                          .always_drafts = true}}));
  for (const int num_beams : {1, 3}) {
    GenerationRequest request = Repetitive();
    request.params.num_beams = num_beams;
    ASSERT_OK_AND_ASSIGN(const Generation without, plain.Generate(request));
    ASSERT_OK_AND_ASSIGN(const Generation with, drafting.Generate(request));
    EXPECT_TRUE(SameHypotheses(without, with));
    EXPECT_EQ(without.usage.num_drafted_tokens, 0);
    EXPECT_GT(with.usage.num_drafted_tokens, 0);
    request.params.speculate = kOff;
    ASSERT_OK_AND_ASSIGN(const Generation off, drafting.Generate(request));
    EXPECT_EQ(off.usage.num_drafted_tokens, 0);
    EXPECT_TRUE(SameHypotheses(without, off));
  }
  // The request's own params win: one drafted token per step.
  ASSERT_OK_AND_ASSIGN(const Generation one,
                       drafting.Generate(Repetitive(SpeculationParams{
                           SpeculationMethod::kNgram, /*num_tokens=*/1})));
  EXPECT_LT(one.usage.num_drafted_tokens, one.usage.num_steps);
}

TEST(SpeculationDefaultTest, RequestsThatCannotSpeculateRunAllTheSame) {
  ASSERT_OK_AND_ASSIGN(
      Generator drafting,
      MakeGenerator({.speculate = SpeculationParams{
                         .method = SpeculationMethod::kNgram}}));
  for (const auto change : {+[](GenerationParams* p) { p->do_sample = true; },
                            +[](GenerationParams* p) { p->stochastic = true; },
                            +[](GenerationParams* p) {
                              p->num_beam_groups = 2;
                              p->diversity_penalty = 1;
                            }}) {
    GenerationRequest request = Repetitive();
    request.params.num_beams = 4;
    request.params.seed = 1;
    change(&request.params);
    EXPECT_OK(drafting.Generate(request));
    request.params.speculate = SpeculationParams{SpeculationMethod::kNgram};
    EXPECT_THAT(
        drafting.Generate(request),
        StatusIs(kInvalid,
                 "speculate.method must be \"off\" with do_sample, stochastic "
                 "or num_beam_groups beside num_beams, got \"ngram\""));
  }
}

// 4 beams have 8 candidates; with drafts they would have five times as many
// more.
TEST(SpeculationDefaultTest, NoRequestIsRefusedForItsDrafts) {
  ASSERT_OK_AND_ASSIGN(
      Generator drafting,
      MakeGenerator({.max_candidates = 20,
                     .speculate = SpeculationParams{
                         .method = SpeculationMethod::kNgram}}));
  GenerationRequest request = Repetitive();
  request.params.num_beams = 4;
  ASSERT_OK_AND_ASSIGN(const Generation answer, drafting.Generate(request));
  request.params.speculate = SpeculationParams{
      .method = SpeculationMethod::kNgram, .always_drafts = true};
  ASSERT_OK_AND_ASSIGN(const Generation asked, drafting.Generate(request));
  EXPECT_EQ(asked.texts, answer.texts);
  EXPECT_GT(asked.usage.num_drafted_tokens, 0);
}

TEST(SpeculationDefaultTest, ItIsCheckedOnceAtTheStart) {
  using enum SpeculationMethod;
  const auto status = [](SpeculationParams speculate, bool shares = true) {
    return MakeGenerator({.speculate = speculate}, shares).status();
  };
  EXPECT_OK(status(kOff));
  EXPECT_THAT(
      status({kNgram, 0}),
      StatusIs(kInvalid, "speculate.num_tokens must be in [1, 32], got 0"));
  EXPECT_THAT(
      status({kNgram, 33}),
      StatusIs(kInvalid, "speculate.num_tokens must be in [1, 32], got 33"));
  EXPECT_THAT(
      status({kDraft}),
      StatusIs(
          kInvalid,
          "speculate.method must be \"ngram\", \"suffix\", \"constraint\" or "
          "\"off\" without draft_model, got \"draft\""));
  EXPECT_THAT(status({kNgram}, /*shares=*/false),
              StatusIs(kInvalid, HasSubstr("more of a sequence than pages")));
  EXPECT_OK(status(kOff, /*shares=*/false));
}

std::string DraftDirectory() { return SourcePath("models/en-fr-draft"); }

// A copy of the draft model, to be changed.
std::string CopyDraft(const ScratchDirectory& scratch) {
  const std::string copy = scratch.path("draft");
  std::filesystem::copy(DraftDirectory(), copy);
  return copy;
}

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Replace(const ScratchDirectory& scratch, const std::string& file,
             const std::string& from, const std::string& to) {
  std::string bytes = ReadBytes(scratch.path(file));
  const size_t at = bytes.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  bytes.replace(at, from.size(), to);
  scratch.Write(file, bytes);
}

TEST(DraftVocabularyTest, TheFirstTokenThatDiffersIsNamed) {
  EXPECT_OK(CheckSameVocabulary(EnFrDir(), DraftDirectory()));
  EXPECT_OK(CheckSameVocabulary(EnFrDir(), EnFrDir()));
  TokenId token = 4000;
  while (!absl::ascii_islower(EnFrTokenizer().Piece(token).back())) ++token;
  const std::string piece = EnFrTokenizer().Piece(token);
  const ScratchDirectory scratch;
  const std::string draft = CopyDraft(scratch);
  // A piece of the same length that no other one is.
  std::string other = piece;
  other.back() = '~';
  Replace(scratch, "draft/tokenizer.model",
          std::string(1, static_cast<char>(piece.size())) + piece,
          std::string(1, static_cast<char>(piece.size())) + other);
  EXPECT_THAT(
      CheckSameVocabulary(EnFrDir(), draft),
      StatusIs(kInvalid,
               AllOf(HasSubstr("draft_model: " + draft +
                               " must have the vocabulary of " + EnFrDir()),
                     HasSubstr(Concat("token ", token, " is \"") + other +
                               "\" instead of \"" + piece + "\""))));
  EXPECT_THAT(
      Generator::Load(EnFrDir(), {.num_threads = 1, .draft_model = draft}),
      StatusIs(kInvalid, HasSubstr(Concat("but token ", token, " is"))));
}

TEST(DraftVocabularyTest, WithoutATokenizerTheModelsHaveToAgree) {
  const ScratchDirectory scratch;
  const std::string draft = CopyDraft(scratch);
  std::filesystem::remove(draft + "/tokenizer.model");
  EXPECT_OK(CheckSameVocabulary(EnFrDir(), draft));
  EXPECT_OK(
      Generator::Load(EnFrDir(), {.num_threads = 1, .draft_model = draft}));
}

TEST(DraftModelTest, WhatItsDirectoryLacksIsNamed) {
  const auto load = [](const std::string& draft) {
    return Generator::Load(EnFrDir(), {.num_threads = 1, .draft_model = draft})
        .status();
  };
  EXPECT_THAT(load("/no/such"),
              StatusIs(absl::StatusCode::kNotFound,
                       "draft_model: no such directory: /no/such"));
  for (const std::string file : {"config.json", "model.safetensors"}) {
    const ScratchDirectory scratch;
    const std::string draft = CopyDraft(scratch);
    std::filesystem::remove(draft + "/" + file);
    EXPECT_THAT(Message(load(draft)),
                ::testing::AllOf(::testing::StartsWith("draft_model: "),
                                 HasSubstr(file)));
  }
  const ScratchDirectory scratch;
  const std::string draft = CopyDraft(scratch);
  scratch.Write("draft/tokenizer.model", "none");
  EXPECT_THAT(Message(load(draft)),
              ::testing::AllOf(::testing::StartsWith("draft_model: "),
                               HasSubstr("tokenizer.model")));
}

TEST(DraftModelTest, ItDraftsForRequestsThatDoNotSay) {
  const auto drafted = [](std::optional<SpeculationParams> of_generator,
                          std::optional<SpeculationParams> of_request) {
    auto generator =
        Generator::Load(EnFrDir(), {.num_threads = 1,
                                    .draft_model = DraftDirectory(),
                                    .speculate = of_generator});
    EXPECT_OK(generator);
    GenerationRequest request{"It rains a lot in the city where I live."};
    request.params.speculate = of_request;
    const auto answer = generator->Generate(request);
    EXPECT_OK(answer);
    return answer->usage.num_drafted_tokens > 0;
  };
  EXPECT_TRUE(drafted(std::nullopt, std::nullopt));
  EXPECT_FALSE(drafted(kOff, std::nullopt));
  EXPECT_FALSE(drafted(std::nullopt, kOff));
}

// The first token of each comes with the prompt.
TEST(DraftModelTest, AnswersHaveWhatTheirStepsGave) {
  int64_t num_ends_in_drafts = 0;
  for (const auto mode :
       {SpeculationMode::kCoupled, SpeculationMode::kRejection}) {
    ASSERT_OK_AND_ASSIGN(
        Generator generator,
        Generator::Load(EnFrDir(), {.num_threads = 1,
                                    .draft_model = DraftDirectory(),
                                    .speculate = SpeculationParams{
                                        .method = SpeculationMethod::kDraft,
                                        .mode = mode,
                                        .always_drafts = true}}));
    SpeculationFigures before;
    for (const int num_samples : {0, 1, 3}) {  // 0: greedy
      for (const auto& stop : {"", " la ", "e", "vi"}) {
        SCOPED_TRACE(Concat(num_samples, " samples, stop \"", stop, "\""));
        GenerationRequest request{"It rains a lot in the city where I live."};
        if (*stop != 0) request.params.stop = {stop};
        if (num_samples > 0) {
          request.params.do_sample = true;
          request.params.seed = 3;
          request.params.num_return_sequences = num_samples;
        }
        ASSERT_OK_AND_ASSIGN(const Generation answer,
                             generator.Generate(request));
        const SpeculationFigures now = generator.Stats().speculation;
        SpeculationFigures figures = now;
        figures.Subtract(before);
        before = now;
        EXPECT_EQ(answer.usage.num_generated_tokens,
                  std::ssize(answer.hypotheses) + figures.num_tokens);
        EXPECT_EQ(answer.usage.num_accepted_tokens,
                  figures.num_accepted_tokens);
        num_ends_in_drafts += figures.num_accepted_tokens +
                              figures.num_target_steps - figures.num_tokens;
      }
    }
  }
  EXPECT_GT(num_ends_in_drafts, 3);
}

// Its context is too short for the prompt, so it is never used.
TEST(DraftModelTest, AShortContextCostsNothing) {
  const ScratchDirectory scratch;
  const std::string draft = CopyDraft(scratch);
  Replace(scratch, "draft/config.json", "\"max_position_embeddings\": 1024",
          "\"max_position_embeddings\": 4");
  ASSERT_OK_AND_ASSIGN(
      Generator generator,
      Generator::Load(EnFrDir(), {.num_threads = 1,
                                  .draft_model = draft,
                                  .speculate = SpeculationParams{
                                      SpeculationMethod::kDraft}}));
  ASSERT_OK_AND_ASSIGN(const Generation answer,
                       generator.Generate({"It rains."}));
  EXPECT_EQ(answer.usage.num_drafted_tokens, 0);
  const GeneratorStats stats = generator.Stats();
  EXPECT_EQ(stats.num_draft_steps, 0);
  EXPECT_EQ(stats.num_steps, answer.usage.num_generated_tokens);
}

}  // namespace
}  // namespace espalier::testing
