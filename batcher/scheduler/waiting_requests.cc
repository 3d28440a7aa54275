#include "batcher/scheduler/waiting_requests.h"

#include <iterator>
#include <new>
#include <utility>

namespace espalier {
namespace {

// Returns the tokens that a request begins with: its source and prompt.
int64_t NumInputTokens(const PreparedRequest& prepared) {
  return prepared.source_length() + std::ssize(prepared.request.prompt_tokens);
}

// Returns the largest number of tokens of a request: those that it begins with,
// and all generated or scored tokens.
int64_t NumTokens(const PreparedRequest& prepared) {
  const Request& request = prepared.request;
  const GenerationParams& params = request.params;
  if (OnlyScores(request)) {
    return NumInputTokens(prepared) + NumContinuationTokens(request);
  }
  return NumInputTokens(prepared) +
         NumSequences(params) * params.max_new_tokens.value_or(1);
}

}  // namespace

void WaitingRequests::Push(WaitingRequest request) {
  const Turn turn = request.turn;
  turns_.emplace(turn.id, turn);
  try {
    const auto at = requests_.emplace(turn, std::move(request)).first;
    const PreparedRequest& pushed = at->second.prepared;
    order_.Push(turn, pushed.request.params.priority,
                pushed.request.params.tenant, NumTokens(pushed));
    Count(at->second, 1);
  } catch (const std::bad_alloc&) {
    requests_.erase(turn);
    turns_.erase(turn.id);
    throw;
  }
}

WaitingRequest WaitingRequests::TakeFront() {
  const Turn turn = order_.NextRequest();
  const Turn runs_at = order_.next_turn();
  order_.Take();
  WaitingRequest request = TakeOut(turn);
  request.runs_at = runs_at;
  return request;
}

WaitingRequest WaitingRequests::TakeOut(const Turn& turn) {
  const auto found = requests_.find(turn);
  Count(found->second, -1);
  WaitingRequest request = std::move(found->second);
  turns_.erase(turn.id);
  requests_.erase(found);
  return request;
}

std::optional<WaitingRequest> WaitingRequests::Take(RequestId id) {
  const auto turn = turns_.find(id);
  if (turn == turns_.end()) return std::nullopt;
  order_.Remove(turn->second);
  return TakeOut(Turn(turn->second));
}

std::vector<WaitingRequest> WaitingRequests::TakeAll() {
  std::vector<WaitingRequest> all;
  all.reserve(requests_.size());
  turns_.clear();
  for (auto& [turn, request] : requests_) all.push_back(std::move(request));
  requests_.clear();
  num_sequences_ = 0;
  num_prompt_tokens_ = 0;
  order_.Clear();
  return all;
}

void WaitingRequests::Count(const WaitingRequest& request, int sign) {
  num_sequences_ += sign * request.needs.num_sequences;
  num_prompt_tokens_ += sign * NumInputTokens(request.prepared);
}

}  // namespace espalier
