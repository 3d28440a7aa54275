// ConstraintDrafter: drafts the tokens that the constraint of a request forces
// (constrain/constraint.h). A single legal token is drafted as it is. Several
// legal tokens may spell the same forced bytes, as after {"na of
//
//   {"name": "..."}     me": , or m e ": , or m e " : ...
//
// Then the draft is the tokenizer's spelling of these bytes behind the text so
// far, because the model has learnt that spelling. The draft ends before a
// token in whose place a longer one may follow that also begins the text behind
// the forced bytes.
//
//   {"name": "Ada"}     the draft ends before "  because  "A  may follow
//
// Another drafter, if there is one, drafts if nothing is forced. If its draft
// begins with the forced tokens, it is taken whole.
//
// Thread safety: forks belong to one strand.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "constrain/constraint.h"
#include "speculate/drafter.h"
#include "text/tokenizer/tokenizer.h"

namespace espalier {

class ConstraintDrafter final : public Drafter {
 public:
  // The first tokens of the output are appended next.
  //   constraint  not null
  //   tokenizer   spells forced bytes; null: only single tokens are forced
  //   other       has the prompt; null: nothing else is drafted
  ConstraintDrafter(std::shared_ptr<const Constraint> constraint,
                    std::shared_ptr<const Tokenizer> tokenizer,
                    int32_t max_new_tokens, std::unique_ptr<Drafter> other);

  void Append(std::span<const TokenId> tokens) override;
  void Draft(int max_tokens, std::vector<TokenId>* draft) const override;
  std::unique_ptr<Drafter> Fork() const override;

 private:
  // A place in a text of the language.
  struct Place {
    Constraint::State state = 0;
    int32_t room = 0;
    std::string text = {};  // the last bytes before it, a few
  };
  // Forced bytes behind a place, with the tokens that spell a beginning of
  // them.
  struct Spelling {
    size_t num_bytes = 0;
    std::vector<TokenId> tokens;  // the first one last
  };

  // Moves behind a token that may follow.
  void Follow(TokenId token, Place* place) const;
  void DraftForced(size_t max_tokens, std::vector<TokenId>* draft) const;
  // Returns the forced token at a place; -1 if there is none.
  //   spelling  in: that of the bytes forced there, or empty; out: the rest
  //             behind the token
  TokenId ForcedAt(const Place& place, size_t max_bytes,
                   Spelling* spelling) const;
  // Returns the forced bytes at a place. Near the end of the room they are
  // those of its `legal` tokens, if these all begin alike.
  std::string BytesAt(const Place& place, std::span<const TokenId> legal,
                      size_t max_bytes) const;
  Spelling SpellAt(const Place& place, std::span<const TokenId> legal,
                   size_t max_bytes) const;

  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Place place_;
  std::unique_ptr<Drafter> other_;
};

}  // namespace espalier
