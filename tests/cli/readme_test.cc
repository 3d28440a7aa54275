// What README.md shows is what there is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/program.h"
#include "tests/source_tree.h"

namespace espalier::testing {
namespace {

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

}  // namespace
}  // namespace espalier::testing
