// ScoreCalls: answers /generative_scoring. A body becomes requests of the
// engine that only score: one of the query, with the items as continuations; or
// one of each item, with the labels.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "http/exchange.h"
#include "openai/limits.h"
#include "serve/prompt_requests.h"
#include "serve/served_model.h"
#include "serve/worker_thread.h"

namespace espalier::serve {

// Answers one call, with an error if need be; long texts become tokens on
// `tokenizing`. When it is cancelled all that runs for it ends.
boost::asio::awaitable<void> AnswerScoreCall(http::Exchange& exchange,
                                             ServedModel& model,
                                             const openai::Limits& limits,
                                             WorkerThread& tokenizing,
                                             Caller caller);

}  // namespace espalier::serve
