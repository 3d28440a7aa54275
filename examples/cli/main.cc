// espalier: beam search at a terminal.
#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "examples/cli/command_line.h"
#include "examples/cli/output/exit_code.h"

namespace espalier::cli {
namespace {

// A program may be started with closed standard streams. The next file that it
// opens would take their place and get the output. Opens each with the wrong
// mode instead, so that using it as that stream fails.
void HoldStandardStreams() {
  for (const auto& [fd, mode] :
       {std::pair(STDIN_FILENO, O_WRONLY), std::pair(STDOUT_FILENO, O_RDONLY),
        std::pair(STDERR_FILENO, O_RDWR)}) {
    if (fcntl(fd, F_GETFD) == -1) open("/dev/null", mode);
  }
}

// Threads have heaps of their own. Where the address space is limited (ulimit
// -v) and has no room for another, a thread without one gets each allocation in
// pages from the system, and nothing of what others have given back. So there
// all have one heap.
void ShareHeapWhereMemoryIsLimited() {
#ifdef __GLIBC__
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0) return;
  if (limit.rlim_cur != RLIM_INFINITY) mallopt(M_ARENA_MAX, 1);
#endif
}

}  // namespace
}  // namespace espalier::cli

int main(int argc, char** argv) {
  espalier::cli::HoldStandardStreams();
  // A write beyond the limit on the size of files fails, and ends no program.
  std::signal(SIGXFSZ, SIG_IGN);
  espalier::cli::ShareHeapWhereMemoryIsLimited();
  const int exit_code = espalier::cli::RunCommandLine(argc, argv);
  // A shell ends its loop, too, if it sees that a signal ended the program.
  if (exit_code > espalier::cli::ExitCodeOf(0)) {
    std::raise(exit_code - espalier::cli::ExitCodeOf(0));
  }
  return exit_code;
}
