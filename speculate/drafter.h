// Drafter: predicts the next tokens of a sequence from its own text, for the
// model to verify (docs/speculation.md, "Drafts from history"). A draft is a
// function of the text alone.
//
//   std::unique_ptr<Drafter> drafter = MakeDrafter(params);
//   drafter->Append(prompt);
//   drafter->Draft(max_tokens, &draft);   // verified by the next step
//   drafter->Append(accepted);            // with the model's own token
//
// The text consists of appended tokens only; drafts are not part of it. No
// method does I/O or waits.
//
// Thread safety: forks share memory and belong to one strand.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "request/speculation_params.h"

namespace espalier {

class Drafter {
 public:
  virtual ~Drafter() = default;

  // Appends tokens to the text: prompt tokens or accepted ones. Amortised O(1)
  // per token. If it throws std::bad_alloc, the drafter must be discarded.
  virtual void Append(std::span<const TokenId> tokens) = 0;

  // Sets `*draft` to the predicted continuation, at most `max_tokens` tokens;
  // empty if the text has no match.
  // REQUIRES: max_tokens >= 0.
  virtual void Draft(int max_tokens, std::vector<TokenId>* draft) const = 0;

  // Returns a drafter with the same text, for a child of the sequence. It
  // shares the memory and copies only pointers (cow_array.h).
  virtual std::unique_ptr<Drafter> Fork() const = 0;
};

// Returns the drafter of a method that drafts from history, otherwise null.
std::unique_ptr<Drafter> MakeDrafter(const SpeculationParams& params);

}  // namespace espalier
