#include "openai/logprobs.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "openai/answer_parts.h"

namespace espalier::openai {
namespace {

constexpr float kNoChance = -9999.0f;

void AppendLogProb(float log_prob, std::string* out) {
  AppendJson(std::isinf(log_prob) ? kNoChance : log_prob, out);
}

// The tokens that are reported at a place: the best, and the one that stands
// there, in front if it is none of them.
std::vector<TokenScore> WithToken(const TokenLogProb& place) {
  std::vector<TokenScore> scores = place.best;
  const bool is_best = std::ranges::find(scores, place.token,
                                         &TokenScore::token) != scores.end();
  if (!is_best) scores.insert(scores.begin(), {place.token, place.log_prob});
  return scores;
}

// Returns the rank of one of a position's reported tokens: 1 + the number of
// likelier ones.
int RankOf(const TokenScore& score, const TokenLogProb& place) {
  if (score.token == place.token) return place.rank;
  return 1 + static_cast<int>(std::ranges::count_if(
                 place.best, [&](const TokenScore& other) {
                   return other.log_prob > score.log_prob;
                 }));
}

// Appends {"name": log_prob, ...}; of tokens with equal names the likeliest.
void AppendTopMap(const TokenLogProb& place, const TokenNames& names,
                  std::string* out) {
  std::vector<std::string> written;
  *out += '{';
  for (const TokenScore& score : WithToken(place)) {
    std::string name = names.NameOf(score.token);
    if (std::ranges::find(written, name) != written.end()) continue;
    if (!written.empty()) *out += ',';
    AppendJson(std::string_view(name), out);
    *out += ':';
    AppendLogProb(score.log_prob, out);
    written.push_back(std::move(name));
  }
  *out += '}';
}

void AppendOffset(const PlacedLogProb& token, const TokenNames&,
                  std::string* out) {
  AppendJson(static_cast<int64_t>(token.text_offset), out);
}

void AppendOwnLogProb(const PlacedLogProb& token, const TokenNames&,
                      std::string* out) {
  if (token.log_prob == nullptr) {
    *out += "null";
  } else {
    AppendLogProb(token.log_prob->log_prob, out);
  }
}

void AppendName(const PlacedLogProb& token, const TokenNames& names,
                std::string* out) {
  AppendJson(std::string_view(names.NameOf(token.token)), out);
}

void AppendTop(const PlacedLogProb& token, const TokenNames& names,
               std::string* out) {
  if (token.log_prob == nullptr) {
    *out += "null";
  } else {
    AppendTopMap(*token.log_prob, names, out);
  }
}

// "token", "logprob", "bytes", the opening brace included.
void AppendNamed(const TokenScore& score, const TokenNames& names,
                 std::string* out) {
  const std::string bytes = names.BytesOf(score.token);
  AppendField(R"({"token":)", std::string_view(names.NameOf(score.token)), out);
  *out += R"(,"logprob":)";
  AppendLogProb(score.log_prob, out);
  *out += R"(,"bytes":)";
  AppendList(
      bytes,
      [&](char byte) {
        AppendJson(int64_t{static_cast<unsigned char>(byte)}, out);
      },
      out);
}

// "token_id", "logprob", "rank", the opening brace included.
void AppendNumbered(const TokenScore& score, const TokenLogProb& place,
                    std::string* out) {
  AppendField(R"({"token_id":)", int64_t{score.token}, out);
  *out += R"(,"logprob":)";
  AppendLogProb(score.log_prob, out);
  AppendField(R"(,"rank":)", int64_t{RankOf(score, place)}, out);
}

template <typename Append>
void AppendItem(const PlacedLogProb& token, const Append& append,
                std::string* out) {
  const TokenLogProb& place = *token.log_prob;
  append({place.token, place.log_prob});
  *out += R"(,"top_logprobs":)";
  AppendList(
      place.best,
      [&](const TokenScore& score) {
        append(score);
        *out += '}';
      },
      out);
  *out += '}';
}

void AppendNamedItem(const PlacedLogProb& token, const TokenNames& names,
                     std::string* out) {
  AppendItem(
      token, [&](const TokenScore& score) { AppendNamed(score, names, out); },
      out);
}

void AppendNumberedItem(const PlacedLogProb& token, const TokenNames&,
                        std::string* out) {
  AppendItem(
      token,
      [&](const TokenScore& score) {
        AppendNumbered(score, *token.log_prob, out);
      },
      out);
}

constexpr LogProbList kColumns[] = {{R"({"text_offset":)", AppendOffset},
                                    {R"(,"token_logprobs":)", AppendOwnLogProb},
                                    {R"(,"tokens":)", AppendName},
                                    {R"(,"top_logprobs":)", AppendTop}};
constexpr LogProbList kNamed[] = {{R"({"content":)", AppendNamedItem}};
constexpr LogProbList kNumbered[] = {{R"({"content":)", AppendNumberedItem}};

}  // namespace

std::vector<size_t> TextOffsets(std::span<const TokenId> tokens,
                                std::string_view text, size_t base,
                                std::optional<IncrementalDetokenizer> begin) {
  std::vector<size_t> offsets(tokens.size(), base);
  if (!begin) return offsets;
  const size_t end = CountCharacters(text);
  size_t at = 0;
  std::string piece;
  for (size_t i = 0; i < tokens.size(); ++i) {
    offsets[i] = base + std::min(at, end);
    piece.clear();
    begin->Feed(tokens[i], &piece);
    at += CountCharacters(piece);
  }
  return offsets;
}

std::span<const LogProbList> LogProbListsOf(const Call& call) {
  if (call.api == Api::kCompletions) return kColumns;
  return call.shows_text ? std::span<const LogProbList>(kNamed) : kNumbered;
}

void AppendLogProbs(const Call& call, std::span<const PlacedLogProb> tokens,
                    const TokenNames& names, std::string* out) {
  for (const LogProbList& list : LogProbListsOf(call)) {
    *out += list.begin;
    AppendList(
        tokens,
        [&](const PlacedLogProb& token) { list.append(token, names, out); },
        out);
  }
  *out += '}';
}

void AppendPromptLogProb(const TokenLogProb& place, const TokenNames& names,
                         std::string* out) {
  char before = '{';
  for (const TokenScore& score : WithToken(place)) {
    *out += before;
    before = ',';
    *out += Concat('"', score.token, R"(":{"logprob":)");
    AppendLogProb(score.log_prob, out);
    AppendField(R"(,"rank":)", int64_t{RankOf(score, place)}, out);
    AppendField(R"(,"decoded_token":)",
                std::string_view(names.NameOf(score.token)), out);
    *out += '}';
  }
  *out += '}';
}

void AppendPromptLogProbs(std::span<const TokenLogProb> log_probs,
                          int64_t num_prompt_tokens, const TokenNames& names,
                          std::string* out) {
  *out += "[null";
  const int64_t first = num_prompt_tokens - std::ssize(log_probs);
  for (int64_t i = 1; i < first; ++i) *out += ",null";
  for (const TokenLogProb& place : log_probs) {
    *out += ',';
    AppendPromptLogProb(place, names, out);
  }
  *out += ']';
}

}  // namespace espalier::openai
