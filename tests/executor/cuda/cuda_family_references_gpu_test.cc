// Greedy and beam search of the small models of each family on a device against
// `generate` of transformers, token for token.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/cuda/cuda_executor.h"
#include "model/cuda/cuda_transformer.h"
#include "tests/executor/drive.h"
#include "tests/family_models.h"
#include "tests/family_references.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

class CudaFamilyReferencesTest : public ::testing::TestWithParam<std::string> {
};
INSTANTIATE_TEST_SUITE_P(Models, CudaFamilyReferencesTest,
                         ::testing::ValuesIn(CudaDecoderFamilyModels()),
                         [](const auto& model) { return model.param; });

TEST_P(CudaFamilyReferencesTest, HypothesesAreThoseOfTransformers) {
  const auto references = ReadFamilyReferences(GetParam());
  ASSERT_GE(references.size(), 10u);
  const auto device = CudaDevice::Open(0);
  ASSERT_OK(device);
  for (const int page_size :
       Cases(std::vector<int>{16, 3}, std::vector<int>{16})) {
    SCOPED_TRACE(page_size);
    auto model = CudaTransformer::Load(FamilyPath(GetParam()),
                                       {.page_size = page_size,
                                        .kv_cache_bytes = 64 << 20,
                                        .dtype = DType::kFloat32,
                                        .max_tokens = 256},
                                       *device);
    ASSERT_OK(model);
    auto steps = CudaExecutor::Create(*std::move(model));
    ASSERT_OK(steps);
    std::vector<Request> requests = RequestsOf(references);
    for (Request& request : requests) {
      ASSERT_OK(ValidateRequest((*steps)->description(), &request));
    }
    const Answers answers =
        Drive(**steps, requests,
              {.num_in_flight = 2,
               .scheduler = {.max_step_tokens = 60, .validate_steps = true}});
    for (size_t i = 0; i < references.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_OK(answers[i]);
      ExpectFamilyHypotheses(answers[i]->hypotheses, references[i]);
    }
  }
}

}  // namespace
}  // namespace espalier::testing
