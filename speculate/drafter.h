// Drafter: offers tokens that a sequence may go on with, from its own text, for
// the model to verify (docs/speculation.md, "Drafts from history"). What it
// drafts is a function of the text alone.
//
//   std::unique_ptr<Drafter> drafter = MakeDrafter(params);
//   drafter->Append(prompt);
//   drafter->Draft(max_tokens, &draft);   // for the next step to verify
//   drafter->Append(accepted);            // and what the model added itself
//
// A drafter has only what was appended: a draft, and what was rejected of it,
// is no part of its text. Forks share memory; they belong to one strand, and
// none does I/O or waits.
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

  // Takes the tokens that follow those it has: of the prompt, or accepted.
  // Amortised O(1) a token. Throws std::bad_alloc, and must be dropped then.
  virtual void Append(std::span<const TokenId> tokens) = 0;

  // Sets `*draft` to at most `max_tokens` tokens, likeliest first to follow;
  // to none where the text gives no hint. REQUIRES: max_tokens >= 0.
  virtual void Draft(int max_tokens, std::vector<TokenId>* draft) const = 0;

  // One with the same text, for a child of the sequence. Costs some bytes a
  // token of the text in pointers (cow_array.h), not its memory.
  virtual std::unique_ptr<Drafter> Fork() const = 0;
};

// The drafter of a method that drafts from history; null for the others.
std::unique_ptr<Drafter> MakeDrafter(const SpeculationParams& params);

}  // namespace espalier
