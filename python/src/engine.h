// The engine of the package: a Generator, and requests of Python for it.
//
// Its threads never take the GIL. Calls that wait release it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "espalier/async_stream.h"
#include "espalier/generator.h"
#include "python/src/ready_queue.h"
#include "request/json/request_json.h"

namespace espalier::python {

// Params of requests, parsed once for all prompts of a call.
struct Params {
  RequestBody body;

  // Parses a line of the request format; its prompt is not used.
  static Params Parse(const std::string& line);
};

// A rendered conversation.
struct ChatPrompt {
  std::vector<TokenId> tokens;
  bool is_continued = false;  // its last message
};

// Memory in MiB.
struct Memory {
  std::optional<int64_t> kv_cache_mib;
  std::optional<int64_t> host_cache_mib;
};
// Returns the options with this memory; unset: the default. Raises
// InvalidArgument naming what is out of range.
GeneratorOptions WithMemory(GeneratorOptions options, const Memory& memory);

//   timeout  seconds; may be infinite
CallOptions CallOf(double timeout, std::stop_token stop);

class Engine {
 public:
  Engine(const std::string& directory, const GeneratorOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The answers in order; errors are exceptions among them. Calls
  // `on_progress` with the number of those that have ended, where it is not
  // None, every tenth of a second.
  nanobind::list Generate(nanobind::list prompts, nanobind::handle params,
                          double timeout, nanobind::object on_progress);
  // For each prompt the list of its continuations' scores, or an exception.
  nanobind::list Score(nanobind::list prompts, nanobind::list continuations,
                       const Params& params, bool append_eos, double timeout);
  ChatPrompt RenderChat(const std::string& inputs);

  // The generator, for as long as the caller runs. Raises if it is closed.
  std::shared_ptr<Generator> generator() const;
  void Close();
  bool is_closed() const;

 protected:
  //   name  that errors have for the class
  Engine(std::string name, std::shared_ptr<Generator> generator);
  bool is_forked() const;
  // kCancelled.
  absl::Status ClosedError() const;

 private:
  const int num_forks_;
  const std::string name_;
  mutable std::mutex mutex_;
  std::shared_ptr<Generator> generator_;  // guarded by mutex_; null: closed
};

// Requests of one thread, such as one event loop, which takes their answers.
//
// Thread safety: one thread at a time, with the GIL; any thread may cancel.
class Requests {
 public:
  Requests();
  // Ends them.
  ~Requests();
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  int fd() const { return queue_->fd(); }
  void Submit(const Engine& engine, int64_t number, nanobind::object prompt,
              const Params& params, double timeout);
  void Stream(const Engine& engine, int64_t number, nanobind::object prompt,
              const Params& params, double timeout);
  // Ends a request, if it is open. It has no answer any more.
  void Cancel(int64_t number);
  // All that has come since the last call: (number, pieces, answer), where the
  // answer is an exception, or None as long as the request runs. Raises after a
  // fork, as Wait does.
  nanobind::list Take();
  // Waits until there is something; false after so many seconds.
  bool Wait(double seconds) const;
  size_t size() const { return open_.size(); }

 private:
  struct Open {
    nanobind::object prompt;
    std::vector<GivenParam> aliases;
    std::stop_source stop = {};
    std::optional<AsyncStream> stream = {};
  };
  // Ends a request without the GIL.
  static void End(Open& open);

  const int num_forks_;
  const std::shared_ptr<ReadyQueue> queue_;
  std::unordered_map<int64_t, Open> open_;
};

}  // namespace espalier::python
