#include "tests/cli/live_program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "base/check.h"

namespace espalier::testing {
namespace {

// In the child; does not return. Whatever the tests run under ignores, the
// program starts as a shell at a terminal starts it.
void Become(const std::vector<std::string>& args) {
  for (const int sent : {SIGINT, SIGTERM, SIGHUP, SIGPIPE})
    signal(sent, SIG_DFL);
  std::vector<char*> argv = {const_cast<char*>(ESPALIER_PROGRAM)};
  for (const std::string& arg : args) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace

LiveProgram::LiveProgram(const std::vector<std::string>& args, Ends ends) {
  if (ends != Ends::kPipes) {
    const bool is_narrow = ends == Ends::kNarrowTerminal;
    const winsize size = {24, static_cast<uint16_t>(is_narrow ? 12 : 80), 0, 0};
    pid_ = forkpty(&out_, nullptr, nullptr, &size);
    CHECK_GE(pid_, 0);
    if (pid_ == 0) Become(args);
    return;
  }
  int in[2], out[2];
  CHECK_EQ(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
  const std::string err = scratch_.path("err");
  pid_ = fork();
  CHECK_GE(pid_, 0);
  if (pid_ == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(open(err.c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
    Become(args);
  }
  close(in[0]);
  close(out[1]);
  in_ = in[1];
  out_ = out[0];
}

LiveProgram::~LiveProgram() {
  CloseInput();
  if (out_ >= 0) CloseOutput();
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void LiveProgram::Write(const std::string& text) {
  const int fd = in_ >= 0 ? in_ : out_;  // a terminal is both
  CHECK_EQ(write(fd, text.data(), text.size()), ssize_t(text.size()));
}

void LiveProgram::CloseInput() {
  if (in_ >= 0) close(std::exchange(in_, -1));
}

void LiveProgram::CloseOutput() { close(std::exchange(out_, -1)); }

bool LiveProgram::ReadMore() {
  char buffer[4096];
  const ssize_t num_bytes = read(out_, buffer, sizeof(buffer));
  if (num_bytes <= 0) return false;  // a terminal's end is an error, EIO
  read_.append(buffer, num_bytes);
  return true;
}

std::string LiveProgram::ReadLine() {
  while (read_.find('\n') == std::string::npos && ReadMore()) {
  }
  const size_t end = read_.find('\n');
  const std::string line = read_.substr(0, end);
  read_.erase(0, end == std::string::npos ? end : end + 1);
  return line;
}

bool LiveProgram::WaitFor(std::string_view text, std::string_view then) {
  constexpr int kMaxSilenceMs = 60'000;
  while (true) {
    const size_t at = read_.find(text);
    if (at != std::string::npos &&
        read_.find(then, at + text.size()) != std::string::npos) {
      return true;
    }
    pollfd ready = {.fd = out_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kMaxSilenceMs) != 1 || !ReadMore()) return false;
  }
}

int LiveProgram::NumUnread() const {
  int num_bytes = 0;
  CHECK_EQ(ioctl(out_, FIONREAD, &num_bytes), 0);
  return num_bytes;
}

void LiveProgram::Send(int signal) { CHECK_EQ(kill(pid_, signal), 0); }

ProgramRun LiveProgram::Wait() {
  while (ReadMore()) {
  }
  int status = 0;
  CHECK_EQ(waitpid(std::exchange(pid_, -1), &status, 0) > 0, true);
  return {ExitCode(status), std::exchange(read_, {}),
          ReadText(scratch_.path("err"))};
}

}  // namespace espalier::testing
