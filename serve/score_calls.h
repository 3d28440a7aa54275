// ScoreCalls: answers /generative_scoring. A body becomes requests of the
// engine that only score: one of the query, with the items as continuations; or
// one of each item, with the labels.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "http/exchange.h"
#include "openai/limits.h"
#include "serve/generation_calls.h"
#include "serve/served_model.h"

namespace espalier::serve {

// Answers one call, with an error if need be; what takes long of it is done on
// the worker. Meanwhile it is one of those that run, as by AnswerCall. When it
// is cancelled all that runs for it ends.
boost::asio::awaitable<void> AnswerScoreCall(http::Exchange& exchange,
                                             ServedModel& model,
                                             const openai::Limits& limits,
                                             CallResources resources,
                                             Caller caller);

}  // namespace espalier::serve
