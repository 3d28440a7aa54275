// The verify_speculation program on a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "tests/cli/program.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

// Greedy search, beams and coupled samples; of beams, too, drafts are verified.
TEST(VerifySpeculationGpuTest, SpeculationIsShownToChangeNothing) {
  std::string requests;
  for (const char* const params :
       {R"({"speculate": "draft"})", R"({"num_beams": 4, "logprobs": 2})",
        R"({"do_sample": true, "seed": 3, "n": 2, "speculate": "draft"})",
        R"({"num_beams": 3, "speculate": "ngram"})"}) {
    for (const char* const text :
         {"How old are you?", "I want to see you, you want to see me."}) {
      requests +=
          Concat("{\"prompt\": \"", text, "\", \"params\": ", params, "}\n");
    }
  }
  const ProgramRun run =
      RunProgram(ESPALIER_VERIFY_SPECULATION,
                 {"-m", ModelDirectory("en-fr"), "--draft-model",
                  ModelDirectory("en-fr-draft"), "--device", "cuda", "--dtype",
                  "f32", "--rounds", "1", "-"},
                 requests);
  EXPECT_EQ(run.exit_code, 0) << run.err << run.out;
  EXPECT_THAT(run.out, HasSubstr("8 requests, 10 hypotheses: all equal\n"));
  EXPECT_THAT(run.out, HasSubstr("drafts were verified in 8 of 8 requests\n"));
}

}  // namespace
}  // namespace espalier::testing
