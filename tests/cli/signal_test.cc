// Signals where they meet a write that waits, and where nothing waits any more:
// moments that no running program can be stopped at.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <string>
#include <thread>

#include "examples/cli/output/output.h"
#include "examples/cli/runtime/interrupt.h"
#include "tests/status_matchers.h"

namespace espalier::cli {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

// Both write a pipe that is stdout.
class SignalTest : public ::testing::Test {
 protected:
  SignalTest() {
    EXPECT_EQ(pipe(pipe_), 0);
    stdout_ = dup(STDOUT_FILENO);
    dup2(pipe_[1], STDOUT_FILENO);
    output_ = Output::Open("-").value();
  }
  ~SignalTest() override {
    dup2(stdout_, STDOUT_FILENO);
    for (const int fd : {pipe_[0], pipe_[1], stdout_}) close(fd);
  }

  std::unique_ptr<Interrupt> Listen() {
    return Interrupt::Listen(context_, *output_, [this] { ++num_seen_; })
        .value();
  }

  // Longer than signals that a program sends count as one.
  static void PassTime() { usleep(2'100'000); }

  int pipe_[2];
  int stdout_;
  boost::asio::io_context context_;
  std::unique_ptr<Output> output_;
  int num_seen_ = 0;
};

const std::string kMoreThanAPipeTakes(1 << 20, 'x');

TEST_F(SignalTest, AWriteDoesNotBeginToWaitAfterASignal) {
  const int signalled = eventfd(1, 0);
  output_->set_interrupt_fd(signalled);
  output_->Write(kMoreThanAPipeTakes);
  output_->Flush();
  EXPECT_TRUE(output_->interrupted());
  close(signalled);
}

TEST_F(SignalTest, AReaderWhoKeepsUpGetsAllAfterASignal) {
  const int signalled = eventfd(1, 0);
  output_->set_interrupt_fd(signalled);
  size_t num_read = 0;
  std::thread reader([&] {
    char buffer[4096];
    while (num_read < kMoreThanAPipeTakes.size()) {
      num_read += read(pipe_[0], buffer, sizeof(buffer));
    }
  });
  output_->Write(kMoreThanAPipeTakes);
  EXPECT_OK(output_->Close());
  reader.join();
  EXPECT_EQ(num_read, kMoreThanAPipeTakes.size());
  close(signalled);
}

TEST_F(SignalTest, OneSignalEndsAWriteThatWaits) {
  const auto interrupt = Listen();
  const pid_t self = getpid();
  std::thread sender([&] {
    usleep(50'000);
    kill(self, SIGTERM);
  });
  output_->Write(kMoreThanAPipeTakes);
  output_->Flush();
  sender.join();
  EXPECT_TRUE(output_->interrupted());
  EXPECT_EQ(interrupt->signal(), SIGTERM);
  context_.run();
  EXPECT_EQ(num_seen_, 1);
}

TEST_F(SignalTest, SignalsTogetherAreOneAndTheFirstIsTold) {
  const auto interrupt = Listen();
  raise(SIGINT);
  raise(SIGTERM);
  usleep(300'000);  // as long as `timeout` may take on a busy machine
  raise(SIGINT);
  context_.run();
  EXPECT_EQ(interrupt->signal(), SIGINT);
  EXPECT_EQ(num_seen_, 1);
}

TEST_F(SignalTest, ASecondSignalEndsTheProgramWhateverItDoes) {
  EXPECT_EXIT(
      {
        const auto interrupt = Listen();
        raise(SIGINT);
        PassTime();  // and the context does not run
        raise(SIGTERM);
        exit(0);
      },
      KilledBySignal(SIGTERM), "");
}

// Sooner than where a program sends both.
TEST_F(SignalTest, ASecondCtrlCEndsTheProgramSoon) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGINT, SIG_DFL);  // a shell ignores it for a job in background
    const auto interrupt = Listen();
    EXPECT_EQ(write(STDERR_FILENO, "x", 1), 1);
    for (int i = 0; i < 300; ++i) usleep(100'000);  // signals end a sleep
    _exit(0);
  }
  char ready = 0;
  EXPECT_EQ(read(terminal, &ready, 1), 1);
  for (int press = 0; press < 2; ++press) {
    EXPECT_EQ(write(terminal, "\x03", 1), 1);
    usleep(300'000);
  }
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 100 && ended == 0; ++i) {  // ten seconds
    usleep(100'000);
    ended = waitpid(child, &status, WNOHANG);
  }
  EXPECT_EQ(ended, child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  close(terminal);
}

TEST_F(SignalTest, ASignalAfterTheEndEndsTheProgram) {
  EXPECT_EXIT(
      {
        const auto interrupt = Listen();
        interrupt->End();
        context_.run();  // and has nothing to wait for
        raise(SIGTERM);
        exit(0);
      },
      KilledBySignal(SIGTERM), "");
}

TEST_F(SignalTest, AnIgnoredSignalStaysIgnored) {
  EXPECT_EXIT(
      {
        signal(SIGINT, SIG_IGN);
        const auto interrupt = Listen();
        raise(SIGINT);
        exit(interrupt->signal());
      },
      ExitedWithCode(0), "");
}

}  // namespace
}  // namespace espalier::cli
