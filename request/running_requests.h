// RunningRequests: what becomes of requests that have started when the weights
// are replaced. Others wait meanwhile, and start with the new ones.
#pragma once

namespace espalier {

enum class RunningRequests {
  kWait,   // they end first
  kAbort,  // they end at once, with kUnavailable
  kKeep,   // they continue: later tokens are those of the new weights, after
           // keys and values of the old ones
};

}  // namespace espalier
