// TimestampRule: how Whisper's decoder may alternate text and times. Tokens
// from `first_time` on are times. With s the generated tokens of a row:
//
//   a. <|notimestamps|> is banned.
//   b. If s is empty, the first token is a time, and at most `last_first_time`.
//      Not after a prefix.
//   c. After a time that begins a segment, which is the first token or follows
//      a time, all times are banned.
//   d. After a time that follows text, all tokens below `end` are banned: a
//      time or the end follows.
//   e. Times do not fall: those below the last one are banned, and this one
//      too, except in d.
//   f. Of the tokens that are still allowed: if all times together are likelier
//      than the likeliest other token, all others are banned.
//
// The rule acts on logits, after all edits (score_processors.h) and before the
// softmax, so that what is left is normalised.
//
// Source: openai/whisper, whisper/decoding.py (ApplyTimestampRules).
#pragma once

#include <cstdint>
#include <span>

#include "base/host_device.h"
#include "base/ids.h"

namespace espalier {

struct TimestampRule {
  TokenId first_time = 0;       // above the others
  TokenId end = 0;              // text has the tokens below it
  TokenId no_timestamps = 0;    // <|notimestamps|>
  TokenId last_first_time = 0;  // >= first_time; the vocabulary or more: any
  int after_prefix = 0;         // 1: b is off

  friend bool operator==(const TimestampRule&, const TimestampRule&) = default;
};

// All that the rule needs of a row's generated tokens.
struct TimestampState {
  enum Last : int32_t {
    kNone,      // nothing is generated
    kText,      // no time
    kEndTime,   // a time after text
    kBeginTime  // a time that is the first token, or follows a time
  };
  Last last = kNone;
  TokenId last_time = -1;  // the last of the times; -1: there is none

  // Returns the state after one more token.
  ESPALIER_HOST_DEVICE TimestampState After(const TimestampRule& rule,
                                            TokenId token) const {
    if (token < rule.first_time) return {kText, last_time};
    return {last == kText ? kEndTime : kBeginTime, token};
  }
  friend bool operator==(const TimestampState&,
                         const TimestampState&) = default;
};

// Returns the state after `generated`.
TimestampState TimestampStateOf(const TimestampRule& rule,
                                std::span<const TokenId> generated);

// Tokens that a to e allow: those of [first_other, first_time) without
// <|notimestamps|>, and the times of [first_time, last_time].
struct TimestampTokens {
  TokenId first_other = 0;
  TokenId first_time = 0;
  TokenId last_time = 0;  // below first_time: no time

  ESPALIER_HOST_DEVICE static TimestampTokens In(const TimestampState& state,
                                                 const TimestampRule& rule) {
    constexpr TokenId kAny = 0x7fffffff;
    const TokenId time = rule.first_time;
    switch (state.last) {
      case TimestampState::kNone:
        if (rule.after_prefix != 0) return {0, time, kAny};
        return {time, time, rule.last_first_time};
      case TimestampState::kBeginTime:
        return {0, time, -1};
      case TimestampState::kEndTime:
        return {rule.end, state.last_time, kAny};
      default:
        return {0, state.last_time < 0 ? time : state.last_time + 1, kAny};
    }
  }
};

// Applies the rule to a row of edited logits: banned ones become -inf. NaN
// counts as -inf in f, and a +inf among the times outweighs only what is
// finite.
//   scores  [vocab_size]  f32
// REQUIRES: all tokens of `rule` but last_first_time in [0, vocab_size).
void ApplyTimestampRule(const TimestampRule& rule, const TimestampState& state,
                        std::span<float> scores);

}  // namespace espalier
