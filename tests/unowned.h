// A shared_ptr to an object that the test owns, for calls that take shared
// ownership. The test must keep the object alive; programs do not need this.
//
//   ToyModel model(options);
//   const auto steps = MakeExecutor(&model, 1, {.run_ahead = true});
#pragma once

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "executor/host/model_executor.h"

namespace espalier::testing {

template <typename T>
std::shared_ptr<T> Unowned(T* object) {
  return std::shared_ptr<T>(std::shared_ptr<void>(), object);
}

inline std::shared_ptr<ThreadPool> MakePool(int num_threads) {
  absl::StatusOr<std::shared_ptr<ThreadPool>> pool =
      ThreadPool::Create(num_threads);
  CHECK(pool.ok()) << pool.status().ToString();
  return *std::move(pool);
}

inline std::shared_ptr<ModelExecutor> MakeExecutor(
    Model* model, std::shared_ptr<ThreadPool> pool,
    const ModelExecutorOptions& options = {}) {
  absl::StatusOr<std::shared_ptr<ModelExecutor>> steps =
      ModelExecutor::Create(Unowned(model), std::move(pool), options);
  CHECK(steps.ok()) << steps.status().ToString();
  return *std::move(steps);
}
inline std::shared_ptr<ModelExecutor> MakeExecutor(
    Model* model, int num_threads = 1,
    const ModelExecutorOptions& options = {}) {
  return MakeExecutor(model, MakePool(num_threads), options);
}

}  // namespace espalier::testing
