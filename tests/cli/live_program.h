// LiveProgram: the espalier program while it runs, at the end of pipes or of a
// terminal, for tests that talk with it or interrupt it.
//
//   LiveProgram program({"batch", "-m", model}, LiveProgram::Ends::kPipes);
//   program.Write("{...}\n");
//   EXPECT_THAT(program.ReadLine(), HasSubstr("hypotheses"));
//   program.Send(SIGINT);
//   EXPECT_EQ(program.Wait().exit_code, 130);
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/cli/program.h"

namespace espalier::testing {

class LiveProgram {
 public:
  // kTerminal: one of 80 columns is stdin, stdout and stderr; or of 40.
  enum class Ends { kPipes, kTerminal, kNarrowTerminal };

  LiveProgram(const std::vector<std::string>& args, Ends ends);
  ~LiveProgram();
  LiveProgram(const LiveProgram&) = delete;
  LiveProgram& operator=(const LiveProgram&) = delete;

  // To its stdin. A terminal repeats it in the output.
  void Write(const std::string& text);
  // Closes the pipe. For a terminal, write "\x04".
  void CloseInput();

  // Waits for the next line of its stdout, and returns it without its end; at
  // the end, the rest.
  std::string ReadLine();

  // Waits until its stdout holds `text`, and later `then`, which stay unread;
  // false where it ends without, or says nothing for a minute.
  bool WaitFor(std::string_view text, std::string_view then = "");

  // Bytes of its stdout that wait in the pipe.
  int NumUnread() const;

  // Leaves, as a reader that has seen enough.
  void CloseOutput();

  void Send(int signal);

  // Reads until it has ended. A terminal's `out` has all of its output, with
  // the terminal's "\r\n". What ReadLine has returned is left out.
  ProgramRun Wait();

 private:
  // False at the end.
  bool ReadMore();

  const ScratchDirectory scratch_;
  pid_t pid_ = -1;  // -1 once it was waited for
  int in_ = -1;     // both -1 once closed
  int out_ = -1;
  std::string read_;  // and not returned yet
};

}  // namespace espalier::testing
