// Text in and out of encoder-decoder models, with their own tokenizers: the
// models of tests/data/families with those of tests/data/text_models, against
// what transformers makes of both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/program.h"
#include "tests/family_models.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

std::string TextModelPath(const std::string& name) {
  return SourcePath("tests/data/text_models/") + name;
}

// Returns the references that have hypotheses.
std::vector<json::value> ReferencesOf(const std::string& name) {
  std::vector<json::value> references =
      ParseLines(ReadText(TextModelPath(name) + "/references.jsonl"));
  std::erase_if(references, [](const json::value& line) {
    return !line.as_object().contains("hypotheses");
  });
  return references;
}

std::string TextOf(const json::value& line, const char* field) {
  return std::string(line.at(field).as_string());
}

// Returns the request of a batch whose hypotheses are the reference's.
json::object RequestOf(const json::value& reference) {
  return {{"prompt", reference.at("text")},
          {"params",
           {{"num_beams", reference.at("num_beams")},
            {"num_return_sequences", reference.at("num_beams")},
            {"max_new_tokens", 12}}}};
}

void ExpectSameHypotheses(const json::value& result,
                          const json::value& reference) {
  const json::array& expected = reference.at("hypotheses").as_array();
  const json::array& found = result.at("hypotheses").as_array();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t k = 0; k < found.size(); ++k) {
    EXPECT_EQ(found[k].at("tokens"), expected[k].at("tokens"));
    EXPECT_EQ(found[k].at("text"), expected[k].at("text"));
  }
}

class TextModelsTest : public ::testing::TestWithParam<const char*> {
 protected:
  TextModelsTest() : references_(ReferencesOf(GetParam())) {
    LinkFiles(FamilyPath(GetParam()), model_);
    LinkFiles(TextModelPath(GetParam()), model_);
  }

  const ScratchDirectory model_;
  const std::vector<json::value> references_;
};

TEST_P(TextModelsTest, BatchesOfTextAreTransformers) {
  std::string requests;
  for (const json::value& line : references_) {
    requests += WriteJson(RequestOf(line)) + "\n";
  }
  const ProgramRun run =
      RunEspalier({"batch", "-m", model_.path(), "--input", "-"}, requests);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const std::vector<json::value> results = ParseLines(run.out);
  ASSERT_EQ(results.size(), references_.size());
  ASSERT_GE(results.size(), 16);
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].at("usage").at("prompt_tokens").as_int64(),
              std::ssize(references_[i].at("prompt").as_array()));
    ExpectSameHypotheses(results[i], references_[i]);
  }
}

TEST_P(TextModelsTest, GenerateAndTokenizeAndInspectKnowTheText) {
  const json::value& reference = references_.front();
  const std::string text = TextOf(reference, "text");
  const std::string best = TextOf(reference.at("hypotheses").at(0), "text");
  const std::string num_beams = WriteJson(reference.at("num_beams"));
  ProgramRun run =
      RunEspalier({"generate", "-m", model_.path(), "--num-beams", num_beams,
                   "--max-new-tokens", "12", "--logprobs", "2", text});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr(best));
  run = RunEspalier({"generate", "-m", model_.path(), "--num-beams", num_beams,
                     "--max-new-tokens", "12", "--stream", text});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr(best));
  run = RunEspalier({"tokenize", "-m", model_.path(), "--pieces"},
                    WriteJson(json::object{{"text", text}}) + "\n");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const json::value line = ParseLines(run.out).at(0);
  EXPECT_EQ(line.at("tokens").as_array().size(),
            line.at("pieces").as_array().size());
  run = RunEspalier({"inspect", model_.path()});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("the text, then </s>\n"));
}

// Bad words and stop strings match the text of the output.
TEST_P(TextModelsTest, StopsAndBadWordsAreTextsOfTheOutput) {
  const std::string model = GetParam();
  const std::string word = model == "marian" ? "Th"
                           : model == "t5"   ? "do"
                                             : "W";
  const auto first_is_word = [&](const json::value& hypothesis) {
    return std::string_view(hypothesis.at("text").as_string())
        .starts_with(word);
  };
  std::string banned, stopped;
  int num_with_word = 0;
  for (const json::value& line : references_) {
    json::object request = RequestOf(line);
    json::object& params = request["params"].as_object();
    params["bad_words"] = json::array{word};
    banned += WriteJson(request) + "\n";
    params.erase("bad_words");
    params["stop"] = json::array{word};
    stopped += WriteJson(request) + "\n";
    num_with_word +=
        std::ranges::count_if(line.at("hypotheses").as_array(), first_is_word);
  }
  EXPECT_GT(num_with_word, 0);
  // A ban is of the pieces that a Marian model should write, which its random
  // weights do not keep to.
  if (model == "marian") banned.clear();
  for (const std::string& requests : {banned, stopped}) {
    if (requests.empty()) continue;
    const ProgramRun run =
        RunEspalier({"batch", "-m", model_.path(), "--input", "-"}, requests);
    ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
    for (const json::value& result : ParseLines(run.out)) {
      EXPECT_EQ(std::ranges::count_if(result.at("hypotheses").as_array(),
                                      first_is_word),
                0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TextModelsTest,
                         ::testing::Values("marian", "t5", "bart"),
                         [](const auto& test) { return test.param; });

// Multilingual translators, whose models are beside their tokenizers.
class TranslatorTextsTest : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string model_ = TextModelPath(GetParam());
  const std::vector<json::value> references_ = ReferencesOf(GetParam());
};

TEST_P(TranslatorTextsTest, BatchesOfSeveralDirectionsAreTransformers) {
  std::string requests;
  for (const json::value& line : references_) {
    json::object request = RequestOf(line);
    const bool has_source = line.as_object().contains("from");
    request["template"] = has_source
                              ? TextOf(line, "from") + "-" + TextOf(line, "to")
                              : TextOf(line, "to");
    request["split_sentences"] = false;
    requests += WriteJson(request) + "\n";
  }
  const ProgramRun run =
      RunEspalier({"batch", "-m", model_, "--input", "-"}, requests);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const std::vector<json::value> results = ParseLines(run.out);
  ASSERT_EQ(results.size(), references_.size());
  ASSERT_EQ(results.size(), 16);
  for (size_t i = 0; i < results.size(); ++i) {
    ExpectSameHypotheses(results[i], references_[i]);
  }
}

// Translators whose directions have a source.
class SourceAndTargetTest : public TranslatorTextsTest {};

TEST_P(SourceAndTargetTest, FromAndToTakeCodesAndNames) {
  const auto reference = std::ranges::find_if(references_, [](const auto& r) {
    return TextOf(r, "from").starts_with("en") &&
           !TextOf(r.at("hypotheses").at(0), "text").empty();
  });
  ASSERT_NE(reference, references_.end());
  const std::string best = TextOf(reference->at("hypotheses").at(0), "text");
  const std::string text = TextOf(*reference, "text");
  const auto generate = [&](const std::string& from, const std::string& to) {
    return RunEspalier({"generate", "-m", model_, "--num-beams",
                        WriteJson(reference->at("num_beams")),
                        "--max-new-tokens", "12", "--from", from, "--to", to,
                        text});
  };
  const ProgramRun run =
      generate(TextOf(*reference, "from"), TextOf(*reference, "to"));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr(best));
  EXPECT_EQ(generate("English", "French").out, run.out);
  EXPECT_EQ(generate("en", "fr").out, run.out);
  // A language of texts begins after the token.
  const ProgramRun chosen =
      RunEspalier({"generate", "-m", model_, "--from", "en", "--to", "fr",
                   "--choice", "Tom", "--choice", "We", text});
  EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_THAT(chosen.out, ::testing::ContainsRegex("(Tom|We)\n"));
  const ProgramRun unknown = generate("English", "Frenhc");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("--from and --to: no language \"Frenhc\"; the model "
                        "has " +
                        TextOf(*reference, "to") + " (French), "));
  EXPECT_THAT(RunEspalier({"inspect", model_}).out,
              HasSubstr("\n  languages      "));
}

TEST(MadladTextsTest, ToAloneTakesCodesAndNames) {
  const std::string model = TextModelPath("madlad");
  const auto run = [&](const std::vector<std::string>& options,
                       const std::string& text = "Tom is here.") {
    std::vector<std::string> arguments = {
        "generate",         "-m", model, "--num-beams", "2",
        "--max-new-tokens", "12", text};
    arguments.insert(arguments.end() - 1, options.begin(), options.end());
    return RunEspalier(arguments);
  };
  // The lines after the text.
  const auto hypotheses = [](const ProgramRun& one) {
    EXPECT_EQ(one.exit_code, 0) << one.err;
    return one.out.substr(one.out.find('\n'));
  };
  const std::string french = hypotheses(run({}, "<2fr> Tom is here."));
  EXPECT_NE(french, hypotheses(run({})));
  for (const std::string name : {"fr", "French", "fra"}) {
    EXPECT_EQ(hypotheses(run({"--to", name})), french) << name;
    EXPECT_EQ(hypotheses(run({"--template", name})), french) << name;
  }
  const ProgramRun pair = run({"--from", "en", "--to", "fr"});
  EXPECT_EQ(pair.exit_code, 2);
  EXPECT_THAT(pair.err,
              HasSubstr("--from and --to: the model takes no source language, "
                        "got \"en\"; give the target alone, fr\n"));
  EXPECT_THAT(run({"--from", "zh"}).err,
              HasSubstr("--from needs --to beside it"));
  EXPECT_THAT(run({"--to", "Frenhc"}).err,
              HasSubstr("--to: no language \"Frenhc\"; the model has "
                        "fr (French), "));
  EXPECT_THAT(RunEspalier({"inspect", model}).out,
              HasSubstr("\n  languages      ace_Arab, fr, fr_CA, ms_Arab_BN, "
                        "zh, zh_Hant, mass\n"));
}

TEST(TextModelsFilesTest, InspectNamesTheFilesOfATokenizer) {
  const auto file = [](const std::string& name) {
    const std::string out = RunEspalier({"inspect", TextModelPath(name)}).out;
    const size_t begin = out.find("\n  tokenizer ");
    return out.substr(begin, out.find('\n', begin + 1) - begin);
  };
  EXPECT_THAT(file("m2m100"),
              HasSubstr("sentencepiece.bpe.model and vocab.json, Sentence"));
  EXPECT_THAT(file("mbart50"), HasSubstr("sentencepiece.bpe.model, Sentence"));
  const ScratchDirectory model;
  LinkFiles(FamilyPath("t5"), model);
  LinkFiles(TextModelPath("byt5"), model);
  EXPECT_THAT(RunEspalier({"inspect", model.path()}).out,
              HasSubstr("\n  tokenizer      none: bytes, as ByT5's, 384 "));
}

INSTANTIATE_TEST_SUITE_P(All, TranslatorTextsTest,
                         ::testing::Values("nllb", "m2m100", "mbart50",
                                           "madlad"),
                         [](const auto& test) { return test.param; });
INSTANTIATE_TEST_SUITE_P(All, SourceAndTargetTest,
                         ::testing::Values("nllb", "m2m100", "mbart50"),
                         [](const auto& test) { return test.param; });

TEST(TextModelsFitTest, PromptsWithTokensThatTheModelLacksAreRefused) {
  const ScratchDirectory model;
  for (const std::string& folder :
       {FamilyPath("marian"), TextModelPath("marian_bytes")}) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      std::filesystem::create_symlink(
          file.path(), model.path(file.path().filename().string()));
    }
  }
  const ProgramRun run = RunEspalier({"generate", "-m", model.path(), "a"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("prompt: the text has"));
  EXPECT_THAT(run.err, HasSubstr("which the model lacks: its vocabulary has 64 "
                                 "tokens"));
  const ProgramRun inspection = RunEspalier({"inspect", model.path()});
  EXPECT_EQ(inspection.exit_code, 0) << inspection.out;
  EXPECT_THAT(inspection.out, HasSubstr("the model lacks the last 537: prompts "
                                        "with them are refused"));
}

}  // namespace
}  // namespace espalier::testing
