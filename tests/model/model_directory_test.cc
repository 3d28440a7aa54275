// Errors for directories and files that are given as models but are something
// else: they name the kind of file, and a remedy.
#include "model/model_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"

namespace espalier {
namespace {

using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;

// Checks a directory of empty files with these names.
absl::Status CheckFiles(const std::vector<std::string>& files) {
  const ScratchDirectory directory;
  for (const std::string& file : files) directory.Write(file, "");
  return CheckModelDirectory(directory.path());
}

TEST(ModelDirectoryTest, WhatMayBeAModelPasses) {
  EXPECT_OK(CheckFiles({"config.json", "model.safetensors"}));
  EXPECT_OK(CheckFiles({"config.json", "model.safetensors.index.json"}));
  // CTranslate2's.
  EXPECT_OK(CheckFiles({"config.json", "model.bin", "shared_vocabulary.json"}));
  // Reading says that there are no weights.
  EXPECT_OK(CheckFiles({"config.json"}));
  // Other formats beside those that are read.
  EXPECT_OK(CheckFiles({"config.json", "model.safetensors", "model.gguf",
                        "pytorch_model.bin", "tf_model.h5", "model.bin",
                        "vocabulary.json"}));
}

TEST(ModelDirectoryTest, OtherFormatsAreNamed) {
  struct Case {
    std::vector<std::string> files;
    absl::StatusCode code;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{}, kNotFound, " has no config.json; a model is a directory with"},
      {{"tokenizer.json", "model.safetensors"}, kNotFound, "no config.json"},
      {{"config.json", "pytorch_model.bin"},
       kWrong,
       " has its weights in pytorch_model.bin, which is not read; transformers "
       "converts it: "},
      {{"config.json", "pytorch_model.bin.index.json"},
       kWrong,
       " has its weights in pytorch_model.bin.index.json, "},
      {{"config.json", "tf_model.h5"}, kWrong, "weights in tf_model.h5, which"},
      {{"config.json", "flax_model.msgpack"}, kWrong, "flax_model.msgpack"},
      {{"a.Q4_K_M.gguf"}, kWrong, "/a.Q4_K_M.gguf is a GGUF file, which is"},
      {{"config.json", "b.gguf"}, kWrong, "/b.gguf is a GGUF file"},
      {{"adapter_config.json", "adapter_model.safetensors"},
       kWrong,
       " is an adapter, adapter_config.json, without its model: merge it"},
      {{"config.json", "model.safetensors", "adapter_config.json"},
       kWrong,
       " has an adapter, adapter_config.json, beside the model, and adapters "
       "are not applied: merge it"},
      {{"config.json", "model.safetensors", "adapter_model.safetensors"},
       kWrong,
       " has an adapter, adapter_model.safetensors, beside the model"},
      {{"config.json", "model.safetensors", "adapter_model.bin"},
       kWrong,
       " has an adapter, adapter_model.bin, "},
      {{"model.bin", "shared_vocabulary.json"}, kNotFound, "no config.json"},
  };
  for (const Case& wrong : cases) {
    EXPECT_THAT(CheckFiles(wrong.files),
                StatusIs(wrong.code, HasSubstr(wrong.message)))
        << wrong.message;
  }
}

TEST(ModelDirectoryTest, FilesAreNamed) {
  const ScratchDirectory directory;
  const std::string gguf = directory.Write("model.bin", "GGUF\3more");
  EXPECT_THAT(CheckModelDirectory(gguf),
              StatusIs(kWrong, HasSubstr(gguf + " is a GGUF file")));
  for (const char* text : {"", "GGU", "{}"}) {
    const std::string path = directory.Write("config.json", text);
    EXPECT_THAT(CheckModelDirectory(path),
                StatusIs(kWrong, HasSubstr(path + " is a file; a model is")));
  }
  EXPECT_THAT(CheckModelDirectory("/dev/zero"),
              StatusIs(kWrong, HasSubstr("/dev/zero is a file")));
}

TEST(ModelDirectoryTest, ACacheOfSnapshotsSaysWhereTheModelIs) {
  const ScratchDirectory directory;
  std::filesystem::create_directory(directory.path("snapshots"));
  EXPECT_THAT(CheckModelDirectory(directory.path()),
              StatusIs(kNotFound, HasSubstr("give one of the directories in " +
                                            directory.path("snapshots"))));
}

TEST(ModelDirectoryTest, NamesOfAHubAreToldFromPaths) {
  EXPECT_THAT(
      CheckModelDirectory("some-owner/some-model.v2"),
      StatusIs(kNotFound,
               AllOf(HasSubstr("no such directory: some-owner/some-model.v2; "),
                     HasSubstr("nothing is downloaded here: `hf download "
                               "some-owner/some-model.v2 --local-dir DIR`"))));
  const ScratchDirectory directory;
  for (const std::string& path :
       {std::string(""), std::string("nothing-here"), std::string("/nowhere"),
        std::string("./nothing"), std::string("../nothing"),
        std::string("~/nothing"), std::string("a/b/c"), std::string("a/"),
        directory.path("x")}) {
    EXPECT_THAT(CheckModelDirectory(path),
                StatusIs(kNotFound, AllOf(HasSubstr("no such directory: "),
                                          Not(HasSubstr("download")))))
        << path;
  }
}

}  // namespace
}  // namespace espalier
