// Moves arrays of tests to the device and back; a failure fails the test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/cuda.h"

namespace espalier::testing {

template <typename T>
DeviceBuffer<T> Upload(const std::vector<T>& host) {
  auto buffer = DeviceBuffer<T>::Create(std::max<size_t>(host.size(), 1));
  EXPECT_TRUE(buffer.ok());
  EXPECT_EQ(cudaMemcpy(buffer->data(), host.data(), host.size() * sizeof(T),
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  // The copy may still be under way, and our streams do not wait for it.
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  return *std::move(buffer);
}

template <typename T>
std::vector<T> Download(const DeviceBuffer<T>& buffer) {
  std::vector<T> host(buffer.size());
  EXPECT_EQ(cudaMemcpy(host.data(), buffer.data(), buffer.size_bytes(),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  return host;
}

}  // namespace espalier::testing
