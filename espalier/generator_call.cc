#include "espalier/generator_call.h"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>

#include "absl/time/time.h"
#include "base/memory.h"
#include "base/status.h"

namespace espalier {

namespace asio = boost::asio;

GeneratorCore::Deadline DeadlineOf(absl::Duration timeout) {
  using Clock = std::chrono::steady_clock;
  // More than any machine is up; the clock's own end is not far beyond.
  if (timeout > absl::Hours(24 * 365 * 100)) return Clock::time_point::max();
  if (timeout < absl::ZeroDuration()) timeout = absl::ZeroDuration();
  return Clock::now() + absl::ToChronoNanoseconds(timeout);
}

absl::Status TimedOut(absl::Duration timeout) {
  return UntilThereIsMemory([&] {
    return MakeError(absl::StatusCode::kDeadlineExceeded,
                     "the request has not ended within its timeout of ",
                     absl::FormatDuration(timeout));
  });
}

absl::Status StoppedByCaller() {
  return UntilThereIsMemory(
      [] { return absl::CancelledError("cancelled by its caller"); });
}

absl::Status OutOfMemory() {
  return UntilThereIsMemory([] {
    return absl::ResourceExhaustedError("not enough memory for the request");
  });
}

absl::Status StatusOf(std::exception_ptr error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const boost::system::system_error& stopped) {
    if (stopped.code() == boost::asio::error::operation_aborted) {
      return StoppedByCaller();
    }
    return Internal(stopped.what());
  } catch (const std::exception& unknown) {
    return Internal(unknown.what());
  } catch (...) {
    return Internal("an exception that is none of the standard library's");
  }
}

Call::Call(std::shared_ptr<GeneratorCore> core, const CallOptions& options,
           const GeneratorCore::Deadline& deadline)
    : core_(std::move(core)), timeout_(options.timeout), deadline_(deadline) {}

std::shared_ptr<Call> Call::Make(std::shared_ptr<GeneratorCore> core,
                                 const CallOptions& options,
                                 const GeneratorCore::Deadline& deadline) {
  auto call = std::make_shared<Call>(std::move(core), options, deadline);
  const std::weak_ptr<Call> weak = call;
  const auto end = [weak] {
    if (const auto self = weak.lock()) self->End(StoppedByCaller());
  };
  // Runs on the thread that requests the stop.
  const auto post_end = [weak, end] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    UntilThereIsMemory([&] { asio::post(self->core_->calls_context(), end); });
  };
  call->on_stop_.emplace(options.stop, post_end);
  return call;
}

void Call::WatchTime() {
  timer_.emplace(core_->calls_context());
  if (deadline_ == GeneratorCore::Deadline::max()) return;
  if (std::chrono::steady_clock::now() >= deadline_) {
    return End(TimedOut(timeout_));
  }
  timer_->expires_at(deadline_);
  timer_->async_wait(
      [weak = weak_from_this()](boost::system::error_code error) {
        const auto self = weak.lock();
        if (!error && self != nullptr) self->End(TimedOut(self->timeout_));
      });
}

void Call::End(absl::Status why) {
  if (!ended_by_.ok()) return;
  ended_by_ = std::move(why);
  if (is_waiting_) signal_.emit(asio::cancellation_type::terminal);
}

}  // namespace espalier
