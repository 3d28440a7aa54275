// README.md, docs/cpp_api.md and docs/chat.md against the program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/program.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(ReadmeTest, ItsExampleIsTheQuickstartAndPrintsWhatItSays) {
  const std::string readme = ReadText(SourcePath("README.md"));
  const std::string source =
      ReadText(SourcePath("examples/quickstart/quickstart.cc"));
  EXPECT_THAT(readme, HasSubstr("```cpp\n" + source + "```"));
  const ProgramRun run =
      RunProgram(ESPALIER_QUICKSTART, {ModelDirectory("en-fr")}, "");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(readme, HasSubstr("```\n" + run.out + "```"));
}

TEST(ReadmeTest, ItsTokensAreWhatTokenizePrints) {
  const ProgramRun run = RunEspalier(
      {"tokenize", "-m", ModelDirectory("en-fr"), "--pieces", "It rains."});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(ReadText(SourcePath("README.md")),
              HasSubstr("$ build/release/bin/espalier tokenize -m models/en-fr "
                        "--pieces \"It rains.\"\n" +
                        run.out));
}

TEST(ReadmeTest, ItsScoresAreWhatScorePrints) {
  const ProgramRun run =
      RunEspalier({"score", "-m", ModelDirectory("en-fr"), "--append-eos",
                   "It rains.", "Il pleut.", "Il neige."});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(ReadText(SourcePath("README.md")),
              HasSubstr("espalier score -m models/en-fr --append-eos \"It "
                        "rains.\" \"Il pleut.\" \"Il neige.\"\n" +
                        run.out + "```"));
}

// Returns the body of `program`'s main() from `beginning` on.
std::string BodyOf(const std::string& program, const std::string& beginning) {
  const std::string source = ReadText(SourcePath("examples/" + program));
  const size_t begin = source.find(beginning);
  EXPECT_NE(begin, source.npos);
  return source.substr(begin, source.rfind('}') - begin);
}

TEST(CppApiTest, ItsExampleOfAChatIsOneThatRuns) {
  const std::string body =
      BodyOf("conversation/conversation.cc", "  const std::string directory");
  EXPECT_THAT(ReadText(SourcePath("docs/chat.md")),
              HasSubstr("```cpp\n" + body + "```"));
  const ScratchDirectory model;
  for (const auto& file :
       std::filesystem::directory_iterator(ModelDirectory("en-fr"))) {
    std::filesystem::create_symlink(
        file.path(), model.path(file.path().filename().string()));
  }
  model.Write("chat_template.jinja",
              "{{ bos_token }}<en> {{ messages[-1].content }}<fr>");
  const ProgramRun run = RunProgram(ESPALIER_CONVERSATION, {model.path()}, "");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "Où se trouve la gare ?\n");
}

TEST(CppApiTest, ItsExampleOfSpeculationIsOneThatRuns) {
  const std::string body = BodyOf("speculation/speculation.cc",
                                  "  absl::StatusOr<Generator> generator");
  EXPECT_THAT(ReadText(SourcePath("docs/cpp_api.md")),
              HasSubstr("```cpp\n" + body + "```"));
  const ProgramRun run =
      RunProgram(ESPALIER_SPECULATION, {SourcePath("models")}, "");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, ContainsRegex("^Où [^\n]+\n[0-9]+ steps; of [1-9][0-9]* "
                                     "drafted tokens [0-9]+ were accepted\n$"));
}

// tests/serve/client/example_server_test.py runs it.
TEST(CppApiTest, ItsExampleOfAServerIsOneThatRuns) {
  const std::string body =
      BodyOf("server/server.cc", "  // Before there are threads");
  EXPECT_THAT(ReadText(SourcePath("docs/cpp_api.md")),
              HasSubstr("```cpp\n" + body + "```"));
}

}  // namespace
}  // namespace espalier::testing
