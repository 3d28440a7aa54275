// Shows that one long request runs, while nothing else is counted.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "examples/cli/output/progress.h"

namespace espalier::cli {

// Ticks once a second, as long as this lives, so that one long request is seen
// to run. Belongs to the context's one thread. For when no more is read: what
// is typed would be overwritten.
class ProgressTicks {
 public:
  ProgressTicks(boost::asio::io_context& context, Progress* progress);
  ~ProgressTicks();

 private:
  struct Shared {  // with the handler, which may come when this is gone
    boost::asio::steady_timer timer;
    Progress* progress = nullptr;  // null: it is over
  };
  static void Wait(std::shared_ptr<Shared> shared);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace espalier::cli
