// Memory of the executor on the device: allocations at the first use, their
// failures, and changes that are larger than the transfer buffer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "base/cuda_device_scope.h"
#include "tests/executor/cuda/cuda_executor_fixture.h"
#include "tests/few_cases.h"
#include "tests/status_matchers.h"

namespace espalier::testing {
namespace {

using ::testing::HasSubstr;

class CudaExecutorMemoryTest : public CudaExecutorTest {
 protected:
  static int64_t BytesOf(const CudaExecutor& steps, const std::string& name) {
    int64_t bytes = 0;
    for (const CudaMemoryPart& part : steps.figures().memory) {
      if (part.name == name) bytes += part.bytes;
    }
    return bytes;
  }
  static Request Beams(bool stochastic) {
    Request request{{5, 6, 7}, {}};
    request.params.num_beams = 3;
    request.params.num_return_sequences = 3;
    request.params.max_new_tokens = 4;
    request.params.stochastic = stochastic;
    if (stochastic) request.params.seed = 1;
    EXPECT_OK(ValidateRequest(host_->description(), &request));
    return request;
  }
};

TEST_F(CudaExecutorMemoryTest, DrawnBeamsTakeTheirsWhenTheyFirstCome) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  const int64_t logits = BytesOf(*device.steps, "logits");
  EXPECT_EQ(logits,
            int64_t{512} * host_->description().vocab_size * int64_t{4});
  EXPECT_GT(BytesOf(*device.steps, "weights"), 0);
  EXPECT_GT(BytesOf(*device.steps, "page tables"), 0);
  Drive(*device.steps, {Beams(false)}, {.num_in_flight = 2});
  EXPECT_EQ(BytesOf(*device.steps, "drawn beams"), 0);
  const std::vector<Request> requests = {Beams(false), Beams(true)};
  ExpectSame(OnHost(requests),
             Drive(*device.steps, requests, {.num_in_flight = 2}), "drawn");
  const int64_t drawn = BytesOf(*device.steps, "drawn beams");
  EXPECT_GT(drawn, logits);
  Drive(*device.steps, requests, {.num_in_flight = 2});
  EXPECT_EQ(BytesOf(*device.steps, "drawn beams"), drawn);
}

// Leaves about so much device memory free, as long as it lives.
//   ordinal  of the device
std::vector<DeviceBuffer<std::byte>> FillDevice(int ordinal, size_t left) {
  const auto scope = CudaDeviceScope::EnterIfPossible(ordinal);
  std::vector<DeviceBuffer<std::byte>> buffers;
  for (;;) {
    size_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    if (free_bytes <= left + (size_t{2} << 20)) return buffers;
    auto buffer = DeviceBuffer<std::byte>::Create(free_bytes - left);
    if (!buffer.ok()) return buffers;
    buffers.push_back(*std::move(buffer));
  }
}

TEST_F(CudaExecutorMemoryTest, DrawnBeamsWithoutMemoryEndAlone) {
  if (FewCases()) GTEST_SKIP() << "others may share the device";
  CudaTransformerOptions options = Float32();
  options.max_tokens = 8192;
  options.max_logits = 8192;
  const OnDevice device = Load(options);
  ASSERT_NE(device.steps, nullptr);
  const std::vector<Request> requests = {Beams(false), Beams(true),
                                         Beams(false)};
  const Answers expected = OnHost(requests);
  Answers actual;
  {
    // Drawn beams take 200 MB and more.
    const auto filled = FillDevice(device_->ordinal, size_t{120} << 20);
    actual = Drive(*device.steps, requests, {.num_in_flight = 2});
  }
  EXPECT_THAT(actual[1], StatusIs(absl::StatusCode::kResourceExhausted,
                                  HasSubstr("bytes of device memory")));
  EXPECT_THAT(actual[1].status().message(), HasSubstr("stochastic"));
  actual[1] = expected[1];
  ExpectSame(expected, actual, "beside one without memory");
  ExpectSame(expected, Drive(*device.steps, requests, {.num_in_flight = 2}),
             "with memory again");
}

// 24,000 words for each request that joins, of 524,288 in a piece.
TEST_F(CudaExecutorMemoryTest, LargeChangesGoInPieces) {
  const OnDevice device = Load(Float32());
  ASSERT_NE(device.steps, nullptr);
  std::vector<Request> requests;
  for (int i = 0; i < Cases(60, 24); ++i) {
    Request& request = requests.emplace_back(Beams(false));
    for (int token = 30 + i; token < host_->description().vocab_size; ++token) {
      request.params.suppress_tokens.push_back(token);
    }
  }
  const Answers expected = OnHost(requests);
  for (const int num_in_flight : {1, 2}) {
    ExpectSame(expected,
               Drive(*device.steps, requests, {.num_in_flight = num_in_flight}),
               "large changes");
  }
}

}  // namespace
}  // namespace espalier::testing
