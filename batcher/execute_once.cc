#include "batcher/execute_once.h"

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "base/memory.h"
#include "base/status.h"

namespace espalier {
namespace {

// Calls `done` once, for all copies of the executor's callback.
class OneAnswer {
 public:
  explicit OneAnswer(StepExecutor::Done done) : done_(std::move(done)) {}
  ~OneAnswer() {
    if (given_) return;
    GiveError(absl::StatusCode::kInternal,
              "the step executor dropped a step without an answer");
  }
  OneAnswer(const OneAnswer&) = delete;
  OneAnswer& operator=(const OneAnswer&) = delete;

  void Give(absl::StatusOr<StepResult> result) {
    if (given_.exchange(true)) return;
    std::exchange(done_, nullptr)(std::move(result));
  }
  void GiveError(absl::StatusCode code, std::string_view what,
                 std::string_view details = "") {
    UntilThereIsMemory([&] { Give(MakeError(code, what, details)); });
  }

 private:
  std::atomic<bool> given_ = false;
  StepExecutor::Done done_;
};

}  // namespace

bool ExecuteOnce(StepExecutor* steps, StepPlan plan, StepExecutor::Done done) {
  const auto answer = UntilThereIsMemory(
      [&] { return std::make_shared<OneAnswer>(std::move(done)); });
  StepExecutor::Done report = UntilThereIsMemory([&] {
    return StepExecutor::Done([answer](absl::StatusOr<StepResult> result) {
      answer->Give(std::move(result));
    });
  });
  try {
    steps->Execute(std::move(plan), std::move(report));
    return true;
  } catch (const std::bad_alloc&) {
    answer->GiveError(absl::StatusCode::kResourceExhausted,
                      "not enough memory to start a step");
  } catch (const std::exception& error) {
    answer->GiveError(absl::StatusCode::kInternal,
                      "the step executor threw: ", error.what());
  } catch (...) {
    answer->GiveError(absl::StatusCode::kInternal, "the step executor threw");
  }
  return false;
}

}  // namespace espalier
