// DraftChoice: a group's choice of drafts for a step, given the room for them:
// whether to request drafts of the draft model, the length for each sequence,
// and the available drafts to feed. It changes nothing; the group plans its
// choice (beam/group_speculation.h).
//
// A view that lives for one call. Belongs to the group's strand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "beam/drafts/drafts_in_flight.h"
#include "beam/drafts/group_drafts.h"
#include "beam/drafts/path_rows.h"
#include "beam/pages/group_pages.h"
#include "beam/strategy/decode_strategy.h"
#include "request/request.h"

namespace espalier {

class DraftChoice {
 public:
  // All arguments belong to one group and outlive the view.
  DraftChoice(const Request& request,
              std::span<const TokenId> finishing_token_ids,
              const DecodeStrategy& strategy, const GroupPages& pages,
              const GroupDrafts& drafts, const DraftRoom& room)
      : request_(request),
        finishing_token_ids_(finishing_token_ids),
        strategy_(strategy),
        pages_(pages),
        drafts_(drafts),
        room_(room) {}

  // True if the draft model can feed none of the sequences any more, because
  // all are too long.
  bool IsTooLong() const;
  // True if the next plan requests drafts of the draft model.
  bool HasToAsk() const;
  // True if the requesting step itself feeds and verifies the drafts.
  bool DraftsBeforeStep() const;
  // Returns the number of tokens to draft for each sequence, by rank, for which
  // there are pages to verify them.
  std::vector<int> NumTokensToAsk() const;
  // Returns the pages needed to verify `counts` drafted tokens beyond one token
  // of each sequence. For beams, whose paths are truncated to the available
  // pages, one drafted token counts.
  int64_t NumPagesToVerify(std::span<const int> counts) const;
  // Returns the number of tokens to draft for each sample in the step after the
  // running one, ahead of its result; 0 if there is no room in length, tokens
  // or pages.
  int NumAhead(const DraftsInFlight& in_flight) const;

  // Return the drafts that the next step verifies: tokens of samples, by rank,
  // or paths of beams. Empty if there are none, or no room for them.
  std::vector<std::vector<TokenId>> Tokens() const;
  PathRows Paths() const;

 private:
  bool is_beam_search() const { return IsBeamSearch(request_.params); }
  int num_sequences() const { return pages_.num_sequences(); }
  // Returns a sequence's length, including the prompt.
  int64_t NumTokensOf(int rank) const;
  // Returns the tokens that a draft model can draft for a sequence; may be
  // below 1.
  int MaxTokensToAsk(int rank) const;
  // True if a constraint forces the next token of each sample that a draft
  // model can draft for: then none is needed.
  bool AreAllForced() const;

  const Request& request_;
  const std::span<const TokenId> finishing_token_ids_;
  const DecodeStrategy& strategy_;
  const GroupPages& pages_;
  const GroupDrafts& drafts_;
  const DraftRoom room_;
};

}  // namespace espalier
