// examples/service answers its clients as the espalier program does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

// The text of the best hypothesis of four beams.
std::string Translation(const std::string& sentence) {
  const ProgramRun run =
      RunEspalier({"generate", "-m", ModelDirectory("en-fr"), "--num-beams",
                   "4", "--stop", ",", "--stop", ".", sentence});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const std::string line = SplitLines(run.out).at(1);
  return line.substr(line.find("  ", 4) + 2);  // after the score
}

TEST(ServiceTest, ItsTextsAreTheProgramsAndItsEndIsTold) {
  const ProgramRun run =
      RunProgram(ESPALIER_SERVICE, {ModelDirectory("en-fr")}, "");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::vector<std::string> expected;
  for (const std::string sentence :
       {"It rains.", "Where is the station?", "I am hungry.", "Yes, please."}) {
    expected.push_back(sentence + " -> " + Translation(sentence));
  }
  expected.push_back(Translation("She is waiting for the bus.") + " [OK]");
  expected.push_back("Are you there? -> CANCELLED: the service shuts down");
  EXPECT_EQ(SplitLines(run.out), expected);
}

TEST(ServiceTest, AModelThatIsNotThereIsNamed) {
  for (const char* program : {ESPALIER_SERVICE, ESPALIER_QUICKSTART}) {
    const ProgramRun run = RunProgram(program, {"nowhere"}, "");
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, ::testing::HasSubstr("nowhere"));
  }
}

}  // namespace
}  // namespace espalier::testing
