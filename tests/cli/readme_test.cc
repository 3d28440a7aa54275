// What README.md and docs/cpp_api.md show is what there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(CppApiTest, ItsExampleOfSpeculationIsOneThatRuns) {
  const std::string source =
      ReadText(SourcePath("examples/speculation/speculation.cc"));
  const size_t begin = source.find("  absl::StatusOr<Generator> generator");
  ASSERT_NE(begin, source.npos);
  const std::string body = source.substr(begin, source.rfind('}') - begin);
  EXPECT_THAT(ReadText(SourcePath("docs/cpp_api.md")),
              HasSubstr("```cpp\n" + body + "```"));
  const ProgramRun run =
      RunProgram(ESPALIER_SPECULATION, {SourcePath("models")}, "");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, ContainsRegex("^Où [^\n]+\n[0-9]+ steps; of [1-9][0-9]* "
                                     "drafted tokens [0-9]+ were accepted\n$"));
}

}  // namespace
}  // namespace espalier::testing
