// GenerationCalls: runs generating calls. A body becomes requests of the
// engine, one per prompt, which run concurrently; their results become an
// answer or a stream of events.
//
//   body ─ ReadCall ─ prompts as tokens ─ ResolveParams ─ Engine ─ WriteAnswer
//                                                            └──── EventWriter
//
// Everything but the engine's part runs on the connection's thread, except that
// a worker reads long bodies and writes answers of many tokens or
// log-probabilities.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "http/exchange.h"
#include "openai/call.h"
#include "openai/error.h"
#include "serve/held_memory.h"
#include "serve/prompt_requests.h"
#include "serve/prompt_runs.h"
#include "serve/running_calls.h"
#include "serve/served_model.h"
#include "serve/worker_thread.h"

namespace espalier::serve {

// A server has them for all calls, which they outlive.
struct CallResources {
  WorkerThread* worker;  // for what takes long
  HeldMemory* memory;
  RunningCalls* running;
};

// Answers one call, with an error if need be; meanwhile it is one of those
// that run, by its id and by that of its answer. When it is cancelled all that
// runs for it ends.
boost::asio::awaitable<void> AnswerCall(http::Exchange& exchange,
                                        openai::Api api, ServedModel& model,
                                        const openai::Limits& limits,
                                        CallResources resources, Caller caller);

// Answers with the calls of token ids that a call comes to (openai/render.h),
// which is made ready as AnswerCall does: it is refused for the same, and has
// the same warnings.
boost::asio::awaitable<void> RenderCall(http::Exchange& exchange,
                                        openai::Api api, ServedModel& model,
                                        const openai::Limits& limits,
                                        CallResources resources, Caller caller);

// Tokens and log-probabilities that are written where connections wait for it:
// some milliseconds of it.
inline constexpr int64_t kMaxScoresOnIoThread = 4096;

// While it lives, clients that abort the call by its id, or by that of its
// answer, end `runs`.
RunningCalls::Entry MakeAbortable(RunningCalls* running, const Caller& caller,
                                  const std::string& answer_id,
                                  PromptRuns* runs);

// An error as the answer to a call.
http::Response ErrorResponse(const openai::Error& error,
                             std::vector<http::Header> headers = {});

}  // namespace espalier::serve
