#include "examples/cli/runtime/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <exception>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace espalier::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// A signal that comes within this time of the first counts as the same one: a
// terminal's Ctrl-C, or a signal that a program sent.
constexpr int64_t kSamePressNanoseconds = 100'000'000;
constexpr int64_t kSameSendingNanoseconds = 2'000'000'000;

// State of the handler. The descriptor is never closed: a handler may be about
// to write to it.
std::atomic<int> caught_signal{0};
std::atomic<int64_t> caught_at{0};  // nanoseconds of CLOCK_MONOTONIC
std::atomic<int> caught_fd{-1};     // an eventfd, readable once a signal came

static_assert(std::atomic<int64_t>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Calls nothing but what signal-safety(7) lists.
extern "C" void OnSignal(int signal, siginfo_t* info, void*) {
  const int error = errno;
  const int64_t now = Now();
  const bool is_sent = info->si_code <= 0;
  int64_t first = 0;
  if (caught_at.compare_exchange_strong(first, now)) {
    caught_signal = signal;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written =
        write(caught_fd, &one, sizeof(one));
  } else if (now - first >
             (is_sent ? kSameSendingNanoseconds : kSamePressNanoseconds)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // once this has returned
  }
  errno = error;
}

absl::Status NoRoom(std::string_view why) {
  return ResourceExhausted("cannot listen for signals: ", why);
}

// Opens `caught_fd`, if it is not open yet, and resets the caught signal.
// REQUIRES: the handler is not installed.
absl::Status PrepareToCatch() {
  if (caught_fd < 0) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return NoRoom(std::strerror(errno));
    caught_fd = fd;
  }
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t num_read =
      read(caught_fd, &count, sizeof(count));
  caught_signal = 0;
  caught_at = 0;
  return absl::OkStatus();
}

}  // namespace

struct Interrupt::State {
  explicit State(boost::asio::io_context& context) : descriptor(context) {}

  boost::asio::posix::stream_descriptor descriptor;
  bool listens = false;
  struct sigaction before[std::size(kSignals)] = {};
};

absl::StatusOr<std::unique_ptr<Interrupt>> Interrupt::Listen(
    boost::asio::io_context& context, Output& output,
    std::function<void()> on_signal) {
  RETURN_IF_ERROR(PrepareToCatch());
  std::unique_ptr<Interrupt> interrupt;
  try {
    interrupt.reset(new Interrupt(std::make_unique<State>(context)));
    interrupt->state_->descriptor.assign(caught_fd);
    interrupt->Install();
  } catch (const std::exception& error) {  // the context has no room for more
    return NoRoom(error.what());
  }
  output.set_interrupt_fd(caught_fd);
  interrupt->state_->descriptor.async_wait(
      boost::asio::posix::descriptor_base::wait_read,
      [on_signal = std::move(on_signal)](boost::system::error_code error) {
        if (!error) on_signal();
      });
  return interrupt;
}

Interrupt::Interrupt(std::unique_ptr<State> state) : state_(std::move(state)) {}

Interrupt::~Interrupt() { End(); }

void Interrupt::Install() {
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction& before = state_->before[i];
    sigaction(kSignals[i], nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_sigaction = OnSignal;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);
    sigaction(kSignals[i], &action, nullptr);
  }
  state_->listens = true;
}

void Interrupt::End() {
  if (!std::exchange(state_->listens, false)) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &state_->before[i], nullptr);
  }
  state_->descriptor.release();  // which ends the wait
}

int Interrupt::signal() const { return caught_signal; }

}  // namespace espalier::cli
