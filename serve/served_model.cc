#include "serve/served_model.h"

#include "base/json.h"
#include "base/status.h"
#include "batcher/engine.h"
#include "openai/error.h"

namespace espalier::serve {

boost::asio::awaitable<std::shared_ptr<const EngineStats>> LatestStats::Read(
    absl::Duration age) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (SteadyNow() - read_at_ <= age) co_return stats_;
  }
  EngineStats read = co_await engine_->Stats();
  const auto stats = std::make_shared<const EngineStats>(std::move(read));
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_ = stats;
  read_at_ = SteadyNow();
  co_return stats;
}

absl::Status CheckServed(const ServedModel& model, const std::string& named) {
  if (named.empty() || named == model.name || named == model.root) {
    return absl::OkStatus();
  }
  return openai::ModelNotFound(Concat(
      "the model ", IsUtf8(named) ? ShownInQuotes(named) : "of that name",
      " is not served here; \"", model.name, "\" is"));
}

}  // namespace espalier::serve
