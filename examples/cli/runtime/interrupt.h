// Interrupt: what Ctrl-C (SIGINT), SIGTERM and SIGHUP, of a terminal that is
// closed, do while requests run. The first of them lets the command end its
// requests at once, write what had finished and return. A second one ends the
// program there and then, whatever it does.
//
//   ASSIGN_OR_RETURN(const auto interrupt,
//                    Interrupt::Listen(context, output, [&] {
//                      runtime.EndRequests(kInterrupted);
//                    }));
//   co_spawn(context, Work(), [&](std::exception_ptr) { interrupt->End(); });
//   context.run();
//   if (interrupt->signal() != 0) ...
//
// Signals that follow the first within 0.1 s, or within 2 s if a program sent
// them, count as the same: `timeout` sends its signal to the program, and then
// to the group that the program is in, which on a busy machine may take a
// while.
//
// The handler makes a descriptor readable. The context waits for that, and so
// does a write that waits for its reader: there is no moment in which a signal
// is missed.
//
// Thread safety: the context's one thread; one Interrupt at a time.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "examples/cli/output/output.h"

namespace boost::asio {
class io_context;
}  // namespace boost::asio

namespace espalier::cli {

// Why requests end then.
inline constexpr char kInterrupted[] = "interrupted";

class Interrupt {
 public:
  // Listens from now on; a signal that the program was started to ignore, as
  // those under `nohup` or in the background of a script are, stays ignored.
  // The context calls `on_signal`, once. A wait of `output` for its reader ends
  // soon after a signal.
  // Errors: kResourceExhausted with the system's reason, if it has no room for
  // what listening needs.
  static absl::StatusOr<std::unique_ptr<Interrupt>> Listen(
      boost::asio::io_context& context, Output& output,
      std::function<void()> on_signal);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Listens no longer, so that the context can run out of work; the next signal
  // ends the program.
  void End();

  // The first signal that came before the end, or 0.
  int signal() const;

 private:
  struct State;
  explicit Interrupt(std::unique_ptr<State> state);

  void Install();

  const std::unique_ptr<State> state_;
};

}  // namespace espalier::cli
