// espalier inspect: the contents of a model directory, and its requirements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/program.h"
#include "tests/family_models.h"

namespace espalier::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The translator's files, of which a test changes some.
class InspectTest : public ::testing::Test {
 protected:
  InspectTest() { LinkFiles(ModelDirectory("en-fr"), model_); }

  ProgramRun Inspect() const { return RunEspalier({"inspect", model_.path()}); }

  const ScratchDirectory model_;
};

TEST_F(InspectTest, AModelThatRunsIsDescribed) {
  const ProgramRun run = Inspect();
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_EQ(run.err, "");
  for (const char* part :
       {"family         Llama: ", "parameters in ",
        "vocabulary     6000 tokens",
        "tokenizer.model, SentencePiece, 6000 entries",
        "prompt_template.json, default en-fr", "chat template  no",
        "of keys and values, a token: ", "CPU            runs"}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
}

TEST_F(InspectTest, JsonHasTheSameForPrograms) {
  const ProgramRun run =
      RunEspalier({"inspect", "--json", model_.path(), "/nowhere"});
  EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
  const auto lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 2);
  const json::object& model = lines[0].as_object();
  EXPECT_EQ(model.at("model").as_string(), model_.path());
  EXPECT_EQ(model.at("runs"), true);
  EXPECT_TRUE(model.at("errors").as_array().empty());
  EXPECT_EQ(model.at("family"), "Llama");
  EXPECT_EQ(model.at("vocab_size"), 6000);
  EXPECT_EQ(model.at("tokenizer").at("file"), "tokenizer.model");
  EXPECT_EQ(model.at("prompt_template"), "en-fr");
  EXPECT_EQ(model.at("weights").at("cuda_bytes"),
            model.at("weights").at("parameters").as_int64() * 2);
  EXPECT_EQ(model.at("devices").at("cpu").at("runs"), true);
  EXPECT_EQ(lines[1].at("runs"), false);
  EXPECT_THAT(
      std::string(lines[1].at("errors").at(0).at("message").as_string()),
      HasSubstr("/nowhere"));
}

TEST_F(InspectTest, JsonHasEveryError) {
  std::filesystem::remove(model_.path("tokenizer.model"));
  model_.Write("tokenizer.model", "?");
  std::filesystem::remove(model_.path("generation_config.json"));
  model_.Write("generation_config.json", R"({"num_beams": -1})");
  model_.Write("chat_template.jinja", "{% if %}");
  const ProgramRun run = RunEspalier({"inspect", "--json", model_.path()});
  EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
  const auto lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 1);
  const json::array& errors = lines[0].at("errors").as_array();
  ASSERT_EQ(errors.size(), 3) << run.out;
  EXPECT_EQ(errors[0].at("part"), "tokenizer");
  EXPECT_EQ(errors[1].at("part"), "chat template");
  EXPECT_EQ(errors[2].at("part"), "defaults");
  EXPECT_THAT(std::string(errors[2].at("message").as_string()),
              HasSubstr("num_beams"));
}

TEST_F(InspectTest, JsonHasTheErrorOfADirectoryThatIsNotThere) {
  const ProgramRun run = RunEspalier({"inspect", "--json", "/nowhere"});
  EXPECT_EQ(run.exit_code, 2);
  const auto lines = ParseLines(run.out);
  ASSERT_EQ(lines.size(), 1) << run.err;
  EXPECT_EQ(lines[0].at("errors").at(0).at("part"), "directory");
}

TEST_F(InspectTest, DefaultsInJsonAreValuesAndNoTexts) {
  std::filesystem::remove(model_.path("generation_config.json"));
  model_.Write("generation_config.json",
               R"({"num_beams": 4, "sequence_bias": [[[5, 6], 1.0]]})");
  const auto lines =
      ParseLines(RunEspalier({"inspect", "--json", model_.path()}).out);
  ASSERT_EQ(lines.size(), 1);
  const json::value& defaults = lines[0].at("defaults");
  EXPECT_EQ(defaults.at("num_beams"), 4);
  EXPECT_EQ(defaults.at("sequence_bias").at(0).at(0).at(1), 6);
}

TEST_F(InspectTest, FamiliesAndTheirFeaturesAreNamed) {
  const auto inspect = [](const std::string& model) {
    return RunEspalier({"inspect", FamilyPath(model)});
  };
  ProgramRun run = inspect("gemma3");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  for (const char* part :
       {"family         Gemma 3: 6 layers, hidden 40",
        "features       rotary positions, linear, others in layers with a "
        "window; RMSNorm; gated GELU (tanh); a window of 5 tokens in 4 of 6 "
        "layers; norms of queries and keys; norms after each part; scores over "
        "the root of 20; scaled embeddings; tied embeddings\n",
        "CPU            runs"}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
  run = inspect("gpt2");
  EXPECT_THAT(run.out,
              HasSubstr("features       learned positions; LayerNorm; GELU "
                        "(tanh); biases of q, k, v, the attention's output and "
                        "feed-forward; tied embeddings\n"));
  run = inspect("qwen3");
  EXPECT_THAT(run.out, HasSubstr("family         Qwen3: "));
}

TEST_F(InspectTest, ACTranslate2DirectoryIsNamed) {
  const std::string model = FamilyPath("ctranslate2_mbart");
  const ProgramRun run = RunEspalier({"inspect", model});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  for (const char* part :
       {"family         mBART: 2 layers, hidden 16, feed-forward 20",
        "format         CTranslate2's model.bin, TransformerSpec of revision 7"
        "\n",
        " parameters in int8 and f16, ",
        "tokenizer      none: prompts and results are token ids\n",
        "CPU            runs"}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
  const auto lines = ParseLines(RunEspalier({"inspect", "--json", model}).out);
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines[0].at("format"), "ctranslate2");
}

// Two layers of 32 numbers each for keys and for values, in the decoder three:
// 768 bytes a token, of a source of 64 too; half of it on a GPU.
TEST_F(InspectTest, OfAnEncoderItSaysWhatASourceTakes) {
  const ProgramRun run =
      RunEspalier({"inspect", FamilyPath("marian"), "--num-beams", "4"});
  EXPECT_EQ(run.exit_code, 0) << run.out;
  for (const char* part :
       {"of keys and values, a token: 0.8 KiB on the CPU, 0.4 KiB on a GPU\n",
        "of a source of 64 tokens, which beams share: 48.0 KiB on the CPU, "
        "24.0 KiB on a GPU\n",
        "where its beams share nothing, with such a source:\n"
        "     context  beams          CPU          GPU\n"
        "          64      1     96.0 KiB     48.0 KiB\n"
        "          64      4    240.0 KiB    120.0 KiB\n"}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
}

TEST_F(InspectTest, AFileThatADecoderDoesNotBeginAsIsRefused) {
  const ScratchDirectory model;
  for (const auto& file :
       std::filesystem::directory_iterator(FamilyPath("marian"))) {
    std::filesystem::create_symlink(
        file.path(), model.path(file.path().filename().string()));
  }
  const std::string given =
      model.Write("given.json", R"({"decoder_start_token_id": 7})");
  const ProgramRun run =
      RunEspalier({"batch", "-m", model.path(), "--generation-config", given},
                  R"({"prompt_tokens": [7, 2]})"
                  "\n");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err,
              HasSubstr(given + ": decoder_start_token_id must be what the "
                                "model's decoder begins with, 3, got 7"));
  // The model's own file sets the decoder's start token.
  std::filesystem::remove(model.path("generation_config.json"));
  model.Write("generation_config.json", R"({"decoder_start_token_id": 7})");
  EXPECT_EQ(RunEspalier({"inspect", model.path()}).exit_code, 0);
}

TEST_F(InspectTest, WithoutTemplatesItSaysWhatStandsAroundAText) {
  std::filesystem::remove(model_.path("prompt_template.json"));
  EXPECT_THAT(Inspect().out,
              HasSubstr("prompts        no templates: <s>, then the text\n"));
}

// A build for the CPU alone finds no GPU wherever it looks.
TEST_F(InspectTest, ABuildWithoutCudaSaysSo) {
  EXPECT_THAT(
      Inspect().out,
      AnyOf(HasSubstr("GPU            does not run in this build, which is for "
                      "the CPU alone; preset cuda builds for GPUs too\n"),
            HasSubstr("GPU            does not run here: there is no GPU that "
                      "it can use\n"),
            HasSubstr("GPU            runs with --device cuda")));
}

TEST_F(InspectTest, AChatTemplateIsNamedOrItsFault) {
  model_.Write("chat_template.jinja", "{{ messages }}");
  EXPECT_THAT(Inspect().out, HasSubstr("chat template  " + model_.path() +
                                       "/chat_template.jinja"));
  model_.Write("chat_template.jinja", "{{ messages");
  const ProgramRun run = Inspect();
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.out, HasSubstr("cannot be used: "));
  EXPECT_THAT(run.out, HasSubstr("line 1, column 1"));
}

TEST_F(InspectTest, TemplatesAreListedByTheirNames) {
  EXPECT_THAT(Inspect().out,
              HasSubstr("prompts        prompt_template.json, default en-fr "
                        "of: en-fr (en to fr), fr-en (fr to en)\n"));
  model_.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "a"},)"
               R"({"name": "tool_use", "template": "b"}]})");
  EXPECT_THAT(Inspect().out, HasSubstr("tokenizer_config.json, default of: "
                                       "default, tool_use\n"));
  model_.Write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "a"},)"
               R"({"name": "default", "template": "b"}]})");
  EXPECT_THAT(Inspect().out,
              HasSubstr("chat_template[1].name must not be \"default\" "
                        "again\n"));
  model_.Write("tokenizer_config.json", R"({"chat_template": "a"})");
  EXPECT_THAT(Inspect().out, HasSubstr("tokenizer_config.json\n"));
}

TEST_F(InspectTest, WithoutATokenizerItRunsOnTokens) {
  std::filesystem::remove(model_.path("tokenizer.model"));
  const ProgramRun run = Inspect();
  EXPECT_EQ(run.exit_code, 0) << run.out;
  EXPECT_THAT(run.out, HasSubstr("none: prompts and results are token ids"));
}

TEST_F(InspectTest, WhatDoesNotRunSaysWhy) {
  model_.Write("model.safetensors", "none");
  ProgramRun run = Inspect();
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.out, HasSubstr("does not run   " + model_.path() +
                                 "/model.safetensors"));
  EXPECT_THAT(run.out, Not(HasSubstr("CPU   ")));
  std::filesystem::remove(model_.path("config.json"));
  model_.Write("config.json", "{\"model_type\": \"mamba\"}");
  run = Inspect();
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.out, HasSubstr("mamba"));
}

TEST_F(InspectTest, SeveralModelsAreToldOfOneByOne) {
  const std::string one = Inspect().out;
  const std::string other =
      RunEspalier({"inspect", ModelDirectory("en-fr-draft")}).out;
  ProgramRun run =
      RunEspalier({"inspect", model_.path(), ModelDirectory("en-fr-draft")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, one + "\n" + other);
  EXPECT_EQ(RunEspalier({"inspect", "-m", model_.path(), "-m",
                         ModelDirectory("en-fr-draft")})
                .out,
            run.out);
  // One of them does not run.
  model_.Write("model.safetensors", "none");
  run = RunEspalier({"inspect", model_.path(), ModelDirectory("en-fr-draft")});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, AllOf(HasSubstr("does not run"), HasSubstr(other)));
  // One of them is none.
  run = RunEspalier({"inspect", "/nowhere", ModelDirectory("en-fr-draft")});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, AllOf(HasSubstr("no such directory: /nowhere"),
                             HasSubstr(other)));
  EXPECT_EQ(RunEspalier({"inspect", "/nowhere", "/nor/here"}).exit_code, 2);
  EXPECT_THAT(RunEspalier({"inspect", model_.path(), ""}).err,
              HasSubstr("inspect: --model must not be empty\n"));
}

TEST_F(InspectTest, WhatIsNoModelIsAnError) {
  for (const char* path : {"/nowhere", "/etc/passwd"}) {
    const ProgramRun run = RunEspalier({"inspect", path});
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(path));
  }
  EXPECT_THAT(RunEspalier({"inspect"}).err, HasSubstr("model"));
}

}  // namespace
}  // namespace espalier::testing
