#include "text/text_stream.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "base/check.h"

namespace espalier {
namespace {

// `stop` with marks in place of the names of special tokens, the longest at
// each place; empty if it has none.
std::string MarkedForm(std::string_view stop, const PieceMatcher& names) {
  std::string marked;
  bool has_mark = false;
  for (size_t i = 0; i < stop.size();) {
    const auto name = names.At(stop, i);
    if (name) {
      marked += SpecialTokenMark(name->token);
      has_mark = true;
    } else {
      marked += stop[i];
    }
    i += name ? name->size : 1;
  }
  return has_mark ? marked : std::string();
}

}  // namespace

StopStrings MakeStops(std::vector<std::string> stops,
                      const Tokenizer& tokenizer) {
  std::vector<StopStrings::MarkedStop> marked;
  for (size_t i = 0; i < stops.size(); ++i) {
    std::string form = MarkedForm(stops[i], tokenizer.special_names());
    if (!form.empty()) marked.emplace_back(i, std::move(form));
  }
  absl::StatusOr<StopStrings> made =
      StopStrings::Create(std::move(stops), std::move(marked));
  CHECK(made.ok()) << made.status().ToString();
  return *std::move(made);
}

// Special tokens that are shown are text.
TextStream::TextStream(const IncrementalDetokenizer& begin,
                       const StopStrings& stops, const TextOptions& options)
    : detokenizer_(begin),
      matcher_(stops, options.include_stop),
      num_unmatched_tokens_(
          static_cast<int>(std::min<int64_t>(options.min_new_tokens, INT_MAX))),
      marks_special_(stops.has_marks() && !begin.shows_special()) {}

TextPiece TextStream::Feed(TokenId token) {
  if (stopped()) return {};
  std::string text;
  detokenizer_.Feed(token, &text);
  if (marks_special_ && detokenizer_.tokenizer().is_special(token)) {
    text += SpecialTokenMark(token);
  }
  TextPiece piece = Match(text);
  if (num_unmatched_tokens_ > 0) --num_unmatched_tokens_;
  return piece;
}

TextPiece TextStream::Finish() {
  if (stopped()) return {};
  std::string rest;
  detokenizer_.Finish(&rest);
  TextPiece piece = Match(rest);
  piece.text += matcher_.Finish();
  return piece;
}

TextPiece TextStream::Match(std::string_view text) {
  return num_unmatched_tokens_ > 0 ? matcher_.FeedUnmatched(text)
                                   : matcher_.Feed(text);
}

std::string TextOf(std::span<const TokenId> tokens,
                   const IncrementalDetokenizer& begin,
                   const StopStrings& stops, const TextOptions& options) {
  TextStream stream(begin, stops, options);
  std::string text;
  for (const TokenId token : tokens) {
    text += stream.Feed(token).text;
    if (stream.stopped()) break;
  }
  return text + stream.Finish().text;
}

}  // namespace espalier
