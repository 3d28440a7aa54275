#include "speculate/constraint_drafter.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "base/status.h"

namespace espalier {
namespace {

// The tokens of bytes depend on few bytes before them.
constexpr size_t kMaxTextBytes = 32;
// More bytes than most tokens have.
constexpr size_t kBytesPerToken = 8;

// So few tokens are compared, to see if they spell the same.
constexpr size_t kFewTokens = 64;

// Limits making a list of legal tokens to a part of a millisecond.
constexpr int64_t kMaxEffort = 1 << 16;

constexpr TokenId kNoToken = -1;

// No UTF-8 has these bytes: they stand for special tokens.
bool IsMark(char byte) { return static_cast<uint8_t>(byte) >= 0xF8; }

// Returns the end of `bytes` that is text.
std::string_view TextAtEnd(std::string_view bytes) {
  const auto mark = std::ranges::find_if(bytes.rbegin(), bytes.rend(), IsMark);
  bytes.remove_prefix(bytes.rend() - mark);
  const auto is_inside = [](char byte) {
    return (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
  };
  while (!bytes.empty() && is_inside(bytes.front())) bytes.remove_prefix(1);
  return bytes;
}

// Returns the beginning of `bytes` that is text behind `before`.
std::string_view TextAtBegin(std::string_view before, std::string_view bytes) {
  bytes = bytes.substr(0, std::ranges::find_if(bytes, IsMark) - bytes.begin());
  constexpr int kMaxBytesOfCharacter = 4;
  for (int i = 0; i < kMaxBytesOfCharacter && !bytes.empty(); ++i) {
    if (IsUtf8(Concat(before, bytes))) return bytes;
    bytes.remove_suffix(1);
  }
  return {};
}

}  // namespace

ConstraintDrafter::ConstraintDrafter(
    std::shared_ptr<const Constraint> constraint,
    std::shared_ptr<const Tokenizer> tokenizer, int32_t max_new_tokens,
    std::unique_ptr<Drafter> other)
    : constraint_(std::move(constraint)),
      tokenizer_(std::move(tokenizer)),
      place_{.state = constraint_->start(), .room = max_new_tokens},
      other_(std::move(other)) {}

void ConstraintDrafter::Append(std::span<const TokenId> tokens) {
  if (other_ != nullptr) other_->Append(tokens);
  for (const TokenId token : tokens) Follow(token, &place_);
}

std::unique_ptr<Drafter> ConstraintDrafter::Fork() const {
  auto fork = std::make_unique<ConstraintDrafter>(
      constraint_, tokenizer_, place_.room,
      other_ != nullptr ? other_->Fork() : nullptr);
  fork->place_ = place_;
  return fork;
}

void ConstraintDrafter::Follow(TokenId token, Place* place) const {
  place->text += constraint_->BytesOf(place->state, token);
  if (place->text.size() > kMaxTextBytes) {
    place->text.erase(0, place->text.size() - kMaxTextBytes);
  }
  place->state = constraint_->Advance(place->state, token);
  --place->room;
}

void ConstraintDrafter::Draft(int max_tokens,
                              std::vector<TokenId>* draft) const {
  draft->clear();
  DraftForced(max_tokens, draft);
  if (other_ == nullptr) return;
  std::vector<TokenId> others;
  other_->Draft(max_tokens, &others);
  if (others.size() <= draft->size()) return;
  if (std::ranges::equal(*draft, std::span(others).first(draft->size()))) {
    *draft = std::move(others);
  }
}

void ConstraintDrafter::DraftForced(size_t max_tokens,
                                    std::vector<TokenId>* draft) const {
  const size_t max_bytes = kBytesPerToken * (max_tokens + 1);
  Place place = place_;
  Spelling spelling;
  while (draft->size() < max_tokens &&
         !constraint_->ends(place.state, place.room) &&
         constraint_->TryList(place.state, place.room, kMaxEffort)) {
    const TokenId token = ForcedAt(place, max_bytes, &spelling);
    if (token == kNoToken) return;
    draft->push_back(token);
    Follow(token, &place);
  }
}

TokenId ConstraintDrafter::ForcedAt(const Place& place, size_t max_bytes,
                                    Spelling* spelling) const {
  const std::span<const TokenId> legal =
      constraint_->LegalTokens(place.state, place.room).tokens;
  if (legal.empty()) return kNoToken;
  if (spelling->num_bytes == 0) *spelling = SpellAt(place, legal, max_bytes);
  const auto num_bytes_of = [&](TokenId token) {
    return constraint_->BytesOf(place.state, token).size();
  };
  TokenId token = legal.front();
  if (legal.size() > 1) {
    if (spelling->num_bytes == 0) return kNoToken;
    const TokenId longest = *std::ranges::max_element(legal, {}, num_bytes_of);
    if (num_bytes_of(longest) > spelling->num_bytes) return kNoToken;
    token = spelling->tokens.empty() ? kNoToken : spelling->tokens.back();
    // Its spelling is not known, or it has no room.
    if (!std::ranges::binary_search(legal, token)) token = longest;
  }
  const bool is_spelt =
      !spelling->tokens.empty() && spelling->tokens.back() == token;
  const size_t num_left =
      spelling->num_bytes - std::min(spelling->num_bytes, num_bytes_of(token));
  if (is_spelt && num_left > 0) {
    spelling->tokens.pop_back();
    spelling->num_bytes = num_left;
  } else {
    *spelling = {};
  }
  return token;
}

std::string ConstraintDrafter::BytesAt(const Place& place,
                                       std::span<const TokenId> legal,
                                       size_t max_bytes) const {
  std::string bytes;
  constraint_->AppendForcedBytes(place.state, max_bytes, &bytes);
  if (!bytes.empty() || legal.size() > kFewTokens) return bytes;
  std::string_view longest;
  for (const TokenId token : legal) {
    const std::string_view other = constraint_->BytesOf(place.state, token);
    const size_t size = std::min(longest.size(), other.size());
    const bool agree = longest.substr(0, size) == other.substr(0, size);
    if (other.empty() || !agree) return "";  // an empty one ends the text
    if (other.size() > longest.size()) longest = other;
  }
  return std::string(longest);
}

ConstraintDrafter::Spelling ConstraintDrafter::SpellAt(
    const Place& place, std::span<const TokenId> legal,
    size_t max_bytes) const {
  Spelling spelling;
  if (tokenizer_ == nullptr) return spelling;
  const std::string bytes = BytesAt(place, legal, max_bytes);
  spelling.num_bytes = bytes.size();
  const std::string_view text = TextAtEnd(place.text);
  const std::string_view forced = TextAtBegin(text, bytes);
  if (forced.empty()) return spelling;
  const absl::StatusOr<std::vector<TokenId>> tokens =
      tokenizer_->EncodeOutput(Concat(text, forced));
  if (!tokens.ok()) return spelling;
  // With a text before it they are the last tokens, unless one of them begins
  // within the text.
  size_t num_bytes = 0;
  for (auto token = tokens->rbegin(); token != tokens->rend(); ++token) {
    if (!text.empty() && num_bytes >= forced.size()) break;
    spelling.tokens.push_back(*token);
    num_bytes += constraint_->BytesOf(place.state, *token).size();
  }
  if (!text.empty() && num_bytes != forced.size()) spelling.tokens.clear();
  return spelling;
}

}  // namespace espalier
