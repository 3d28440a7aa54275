#include "examples/cli/interrupt.h"

#include <csignal>
#include <utility>

namespace espalier::cli {
namespace {

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}

}  // namespace

Interrupt::Interrupt(Runtime& runtime, const Output& output,
                     std::function<void()> on_signal)
    : output_(output), signals_(runtime.context()) {
  for (const int signal : {SIGINT, SIGTERM}) {
    if (!IsIgnored(signal)) signals_.add(signal);
  }
  signals_.async_wait([this, &runtime, on_signal = std::move(on_signal)](
                          boost::system::error_code error, int signal) {
    if (error) return;
    signal_ = signal;
    signals_.clear();  // the next one ends the program
    on_signal();
    runtime.EndRequests("interrupted");
  });
}

}  // namespace espalier::cli
