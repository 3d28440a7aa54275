// Interrupt: what Ctrl-C (SIGINT) and SIGTERM do while requests run. The first
// of them ends all requests of a runtime at once, which are answered with
// kCancelled, "interrupted", so that the command can write what had finished
// and return. The second ends the program as if nobody listened, once the
// thread has seen the first: one that comes while an answer is being made
// counts as the same.
//
//   Interrupt interrupt(runtime, output, [&] { reader.Stop(); });
//   co_spawn(runtime.context(), Work(),
//            [&](std::exception_ptr) { interrupt.End(); });
//   runtime.context().run();
//   if (interrupt.signal() != 0) ...
//
// Thread rule: the runtime's one thread.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <functional>

#include "examples/cli/output.h"
#include "examples/cli/runtime.h"

namespace espalier::cli {

class Interrupt {
 public:
  // Listens from now on; a signal that the program was started to ignore, as
  // those behind `nohup` or in the background of a script are, stays ignored.
  // `on_signal` is called once, before requests end. `output` is what is
  // written meanwhile.
  Interrupt(Runtime& runtime, const Output& output,
            std::function<void()> on_signal);

  // Listens no longer, so that the context can run out of work. A signal that
  // has ended a write is on its way, and still awaited.
  void End() {
    if (!output_.interrupted()) signals_.cancel();
  }

  // The signal that came, or 0.
  int signal() const { return signal_; }

 private:
  const Output& output_;
  boost::asio::signal_set signals_;
  int signal_ = 0;
};

}  // namespace espalier::cli
