// GenerationCalls: runs generating calls. A body becomes requests of the
// engine, one per prompt, which run concurrently; their results become an
// answer or a stream of events.
//
//   body ─ ReadCall ─ prompts as tokens ─ ResolveParams ─ Engine ─ WriteAnswer
//                                                            └──── EventWriter
//
// The connection's thread does all but the engine's part. A worker takes over
// for long bodies, and for answers of many tokens or log-probabilities. A call
// whose constraint is not compiled takes its places in the engine before that,
// and waits in a CompileQueue.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "http/exchange.h"
#include "openai/call.h"
#include "openai/error.h"
#include "serve/compile_queue.h"
#include "serve/held_memory.h"
#include "serve/prompt_requests.h"
#include "serve/prompt_runs.h"
#include "serve/running_calls.h"
#include "serve/served_model.h"
#include "serve/worker_thread.h"

namespace espalier::serve {

// Resources that all calls of a server share. They outlive the calls.
struct CallResources {
  WorkerThread* worker;  // for long bodies and answers
  HeldMemory* memory;
  RunningCalls* running;
  CompileQueue* compiling;  // for calls whose constraint is not compiled
};

// Answers one call, with its results or an error. While its requests run, or
// wait until their constraints are compiled, clients can abort it
// (MakeAbortable). Cancelling it ends its requests. Throws
// boost::system::system_error to cut off a whole answer that fails after a part
// of it was sent (http/exchange.h).
// REQUIRES: `model` and `limits` outlive the threads of resources.worker and
// resources.compiling, which may use them after the call was cancelled.
boost::asio::awaitable<void> AnswerCall(http::Exchange& exchange,
                                        openai::Api api, ServedModel& model,
                                        const openai::Limits& limits,
                                        CallResources resources, Caller caller);

// Answers with the calls of /inference/v1/generate that are equivalent to a
// call (openai/render.h), and runs none of them. Refuses a call for the same
// reasons as AnswerCall does before it runs one, and adds the same warnings.
// REQUIRES: as AnswerCall.
boost::asio::awaitable<void> RenderCall(http::Exchange& exchange,
                                        openai::Api api, ServedModel& model,
                                        const openai::Limits& limits,
                                        CallResources resources, Caller caller);

// The most tokens and log-probabilities that the connection's thread writes by
// itself, in some milliseconds. A worker writes more.
inline constexpr int64_t kMaxScoresOnIoThread = 4096;

// Lets clients abort a call by its id, or by that of its answer, as long as the
// entry lives: then runs->Next returns kAborted.
RunningCalls::Entry MakeAbortable(RunningCalls* running, const Caller& caller,
                                  const std::string& answer_id,
                                  PromptRuns* runs);

// Returns an error as the answer to a call, with `headers` and those that say
// when to retry it.
http::Response ErrorResponse(const openai::Error& error,
                             std::vector<http::Header> headers = {});

}  // namespace espalier::serve
