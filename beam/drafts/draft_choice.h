// DraftChoice: what a group drafts in a step, given the room for it: whether it
// asks the draft model, for how many tokens of each sequence, and which of the
// drafts that there are it feeds. It decides and changes nothing; the group
// plans what it says (beam/beam_group_drafts.cc).
//
// A view for the time of a call. Belongs to the group's strand.
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
  // All of one group; they outlive it.
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

  // Whether the draft model can never feed any of the sequences again: they
  // only grow.
  bool IsTooLong() const;
  // Whether a draft model drafts for the next step, which is planned then.
  bool HasToAsk() const;
  // Whether that step is this one: it feeds and verifies what is drafted.
  bool DraftsBeforeStep() const;
  // Tokens to draft for each sequence, by rank: as many as there are pages to
  // verify.
  std::vector<int> NumTokensToAsk() const;
  // Pages that it takes to verify so many of each beside a token of each. Of
  // beams, whose paths are cut to what there are pages for, one token.
  int64_t NumPagesToVerify(std::span<const int> counts) const;
  // Tokens to draft for each sample in the step after the one that runs, ahead
  // of its answer; 0 if there is no room, in length, tokens or pages.
  int NumAhead(const DraftsInFlight& in_flight) const;

  // What the next step verifies: of samples, by rank; of beams. Empty: nothing,
  // or there is no room for it.
  std::vector<std::vector<TokenId>> Tokens() const;
  PathRows Paths() const;

 private:
  bool is_beam_search() const { return IsBeamSearch(request_.params); }
  int num_sequences() const { return pages_.num_sequences(); }
  // Of a sequence, its prompt included.
  int64_t NumTokensOf(int rank) const;
  // Tokens that a draft model can draft for a sequence; may be below 1.
  int MaxTokensToAsk(int rank) const;

  const Request& request_;
  const std::span<const TokenId> finishing_token_ids_;
  const DecodeStrategy& strategy_;
  const GroupPages& pages_;
  const GroupDrafts& drafts_;
  const DraftRoom room_;
};

}  // namespace espalier
