// ServerState: what the calls of a server share, whatever their routes: its
// options, the model once there is one, and the threads that work for them.
//
// Thread safety: any thread uses any part. ServerCore alone starts and stops
// the threads, and sets what is atomic but num_generating.
#pragma once

#include <atomic>
#include <memory>
#include <stop_token>
#include <utility>

#include "batcher/engine.h"
#include "http/server.h"
#include "openai/server_defaults.h"
#include "serve/compile_queue.h"
#include "serve/generation_calls.h"
#include "serve/held_memory.h"
#include "serve/job_calls.h"
#include "serve/running_calls.h"
#include "serve/served_model.h"
#include "serve/server_options.h"
#include "serve/speech_metrics.h"
#include "serve/worker_thread.h"

namespace espalier::serve {

struct ServerState {
  ServerState(const ServerOptions& given, openai::ServerDefaults read_defaults)
      : options(given),
        defaults(std::move(read_defaults)),
        memory(options.max_held_bytes) {}

  CallResources resources() {
    return {&calls, &memory, &running_calls, &compiling};
  }

  const ServerOptions options;
  const openai::ServerDefaults defaults;
  HeldMemory memory;                          // held by calls
  std::atomic<ServedModel*> model = nullptr;  // once it is ready
  std::atomic<bool> is_draining = false;
  std::atomic<int> num_generating = 0;  // calls that are being answered
  RunningCalls running_calls;
  // Set once it listens.
  std::atomic<const http::Server*> listening = nullptr;
  WorkerThread drawing{"draw traces"};  // runs where traces are kept
  WorkerThread tokenizing{"tokenize long texts"};
  // Long calls and answers; as many may wait as requests of the engine do.
  WorkerThread calls{"read a long call, or write a long answer",
                     /*max_waiting=*/1024};
  WorkerThread building{"build a catalogue of items"};
  WorkerThread updating{"update the weights"};
  WorkerThread transcribing{"transcribe audio", /*max_waiting=*/1024};
  SpeechMetrics speech;
  std::stop_source is_stopping;  // ends transcriptions and updates
  // Constraints, which may take two seconds each.
  CompileQueue compiling{{.compile =
                              [this](ConstraintLanguage* language) {
                                model.load()->generator.engine().Compile(
                                    language);
                              },
                          .is_compiled = Engine::HasCompiled}};
  std::unique_ptr<JobCalls> jobs;  // null: there are none
};

// Counts a call among num_generating while it lives.
class GeneratingCall {
 public:
  explicit GeneratingCall(ServerState* server) : server_(server) {
    ++server_->num_generating;
  }
  ~GeneratingCall() { --server_->num_generating; }
  GeneratingCall(const GeneratingCall&) = delete;
  GeneratingCall& operator=(const GeneratingCall&) = delete;

 private:
  ServerState* const server_;
};

}  // namespace espalier::serve
