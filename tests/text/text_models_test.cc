// Tokenizers of encoder-decoder models against tests/data/text_models: what
// transformers makes of texts and of tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/value_to.hpp>
#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "base/json.h"
#include "tests/scratch_directory.h"
#include "tests/source_tree.h"
#include "tests/status_matchers.h"
#include "tests/text/vocab_and_merges_files.h"
#include "text/prompt_template.h"
#include "text/tokenizer/incremental_detokenizer.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;

class TextModelsTest : public ::testing::TestWithParam<const char*> {
 protected:
  TextModelsTest()
      : directory_(TokenizerDirectory()),
        tokenizer_(Tokenizer::LoadDirectory(directory_).value()) {
    std::istringstream lines(
        ReadFile(directory_ + "/references.jsonl", size_t{1} << 24).value());
    for (std::string line; std::getline(lines, line);) {
      references_.push_back(ParseJson(line).value().get_object());
    }
  }

  // "t5_pieces" is T5's without its tokenizer.json; "bart_merges" is BART's,
  // its vocabulary and merges in files of their own.
  std::string TokenizerDirectory() const {
    const std::string name = GetParam();
    const std::string models = SourcePath("tests/data/text_models/");
    const auto copy = [&](const std::string& model, const char* file) {
      std::filesystem::copy_file(models + model + file, scratch_.path(file));
    };
    if (name == "t5_pieces") {
      copy("t5/", "spiece.model");
      copy("t5/", "tokenizer_config.json");
      copy("t5/", "references.jsonl");
    } else if (name == "bart_merges") {
      copy("bart/", "tokenizer_config.json");
      copy("bart/", "references.jsonl");
      WriteVocabAndMerges(models + "bart/tokenizer.json", scratch_);
    } else {
      return models + name;
    }
    return scratch_.path();
  }

  static std::vector<TokenId> Tokens(const json::object& line,
                                     const char* field) {
    return json::value_to<std::vector<TokenId>>(line.at(field));
  }

  const ScratchDirectory scratch_;
  const std::string directory_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  std::vector<json::object> references_;
};

TEST_P(TextModelsTest, TokensOfTextsAreTransformers) {
  int num_texts = 0;
  for (const json::object& line : references_) {
    if (!line.contains("prompt")) continue;
    const std::string text(line.at("text").as_string());
    ++num_texts;
    if (line.contains("plain")) {
      const std::vector<TokenId> plain = Tokens(line, "plain");
      EXPECT_EQ(tokenizer_->Encode(text).value(), plain) << text;
      EXPECT_EQ(tokenizer_->Encode(text, {.max_tokens = 10'000}).value(), plain)
          << text;
    }
    EXPECT_EQ(
        tokenizer_
            ->Encode(text, {.add_special_tokens = true, .parse_special = true})
            .value(),
        Tokens(line, "prompt"))
        << text;
    if (line.contains("output")) {
      EXPECT_EQ(tokenizer_->EncodeOutput(text).value(), Tokens(line, "output"))
          << text;
    }
  }
  EXPECT_GE(num_texts, 72);
}

TEST_P(TextModelsTest, TextsOfTokensAreTransformers) {
  int num_texts = 0;
  for (const json::object& line : references_) {
    if (!line.contains("decoded")) continue;
    const std::string text(line.at("decoded").as_string());
    const std::vector<TokenId> tokens = Tokens(line, "tokens");
    ++num_texts;
    EXPECT_EQ(tokenizer_->Decode(tokens).value(), text);
    IncrementalDetokenizer detokenizer(*tokenizer_);
    std::string grown;
    for (const TokenId token : tokens) {
      detokenizer.Feed(token, &grown);
      EXPECT_TRUE(text.starts_with(grown)) << text << "; " << grown;
    }
    detokenizer.Finish(&grown);
    EXPECT_EQ(grown, text);
    // A detokenizer that starts after the first tokens completes their text.
    const auto first = std::span(tokens).first(tokens.size() / 2);
    IncrementalDetokenizer before(*tokenizer_);
    std::string joined;
    for (const TokenId token : first) before.Feed(token, &joined);
    auto rest = IncrementalDetokenizer::After(*tokenizer_, first);
    for (const TokenId token : std::span(tokens).subspan(first.size())) {
      rest.Feed(token, &joined);
    }
    rest.Finish(&joined);
    EXPECT_EQ(joined, text);
  }
  EXPECT_GE(num_texts, 72);
}

// A request's prompt is the text inside the format of the model's training.
TEST_P(TextModelsTest, PromptsOfTheModelAreTransformers) {
  ASSERT_OK_AND_ASSIGN(const auto templates,
                       PromptTemplates::Load(directory_, *tokenizer_));
  for (const json::object& line : references_) {
    if (!line.contains("hypotheses") || line.contains("to")) continue;
    EXPECT_EQ(templates.default_template()
                  .Apply(std::string(line.at("text").as_string()), *tokenizer_)
                  .value(),
              Tokens(line, "prompt"));
    for (const json::value& hypothesis : line.at("hypotheses").as_array()) {
      EXPECT_EQ(
          tokenizer_->Decode(Tokens(hypothesis.as_object(), "tokens")).value(),
          std::string(hypothesis.at("text").as_string()));
    }
  }
}

// Or into one, where the model takes no source language.
TEST_P(TextModelsTest, PromptsBetweenLanguagesAreTransformers) {
  ASSERT_OK_AND_ASSIGN(const auto templates,
                       PromptTemplates::Load(directory_, *tokenizer_));
  int num_directions = 0;
  for (const json::object& line : references_) {
    if (!line.contains("to")) continue;
    ++num_directions;
    const bool has_source = line.contains("from");
    const std::string from(has_source ? line.at("from").as_string() : "");
    const std::string to(line.at("to").as_string());
    ASSERT_OK_AND_ASSIGN(const auto* direction, templates.Find(from, to));
    const std::string text(line.at("text").as_string());
    EXPECT_EQ(direction->Apply(text, *tokenizer_).value(),
              Tokens(line, "source"))
        << text;
    EXPECT_EQ(direction->first_output,
              has_source ? std::optional(line.at("forced").as_int64())
                         : std::nullopt);
    EXPECT_EQ(templates.Find(has_source ? from + "-" + to : to).value(),
              direction);
  }
  EXPECT_EQ(num_directions > 0, !tokenizer_->languages().empty());
}

INSTANTIATE_TEST_SUITE_P(All, TextModelsTest,
                         ::testing::Values("marian", "marian_bytes", "t5",
                                           "t5_pieces", "bart", "bart_merges",
                                           "nllb", "nllb_legacy", "m2m100",
                                           "mbart50", "mbart50_json",
                                           "mbart_cc25", "madlad", "byt5"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace espalier
