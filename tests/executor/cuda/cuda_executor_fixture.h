// Fixture of the tests of the executor on a device: the embedded model on the
// host and on the device, requests run under a scheduler, and comparison of
// answers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "executor/cuda/cuda_executor.h"
#include "model/cuda/cuda_transformer.h"
#include "model/transformer_model.h"
#include "request/request.h"
#include "tests/executor/drive.h"

namespace espalier::testing {

// Equal to 1e-4 of themselves, or of 0.5: scores of two devices in float32.
bool Close(double a, double b);

// Number of hypotheses, and of ranks with other tokens but equal scores.
struct Comparison {
  int num_hypotheses = 0;
  int num_swapped = 0;
  int num_with_swaps = 0;  // calls of Add() that found some
  int num_different = 0;

  void Add(const std::vector<Hypothesis>& expected,
           const std::vector<Hypothesis>& actual, const std::string& what);
  void Print(const char* name) const;
};

// On device 0; or on that of ESPALIER_TEST_DEVICE=N in the environment, while 0
// stays the current one of the test's thread, so that what forgets to say which
// device it means fails.
class CudaExecutorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();

  // A model on the device with its executor.
  struct OnDevice {
    std::shared_ptr<CudaTransformer> model;
    std::unique_ptr<CudaExecutor> steps;
  };
  static CudaTransformerOptions Float32();
  // Null where it failed; that is a failure of the test.
  static OnDevice Load(const CudaTransformerOptions& options,
                       const CudaDevice& device = *device_,
                       CudaExecutorOptions executor = {});

  static Answers OnHost(const std::vector<Request>& requests);

  // Makes requests of any width, with and without score processors.
  static Request AnyRequest(std::mt19937& random);
  static std::vector<Request> AnyRequests(int count, uint32_t seed);
  // Makes diverse, sampled and stochastic beams, and requests restricted to
  // sequences, in turn; some report log-probabilities.
  static std::vector<Request> RequestsOfAllStrategies(int count, uint32_t seed);

  // At most one hypothesis in a hundred has others' tokens at its rank.
  static void ExpectSame(const Answers& expected, const Answers& actual,
                         const char* name);
  // All tokens and scores, to the bit.
  static void ExpectEqual(const Answers& expected, const Answers& actual);
  static void PrintFigures(const CudaExecutor& steps);

  static CudaDevice* device_;
  static std::shared_ptr<ThreadPool>* pool_;
  static TransformerModel* host_;
};

}  // namespace espalier::testing
