#include "batcher/stream_writer.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "beam/strategy/request_text.h"
#include "beam/strategy/stable_prefix.h"
#include "beam/strategy/token_logprobs.h"
#include "request/generation_params.h"
#include "text/text_stream.h"

namespace espalier {
namespace {

// Returns an empty text stream; nullopt if the request has no text.
std::optional<TextStream> Begin(const RequestText* text) {
  if (text == nullptr) return std::nullopt;
  return text->Begin();
}

std::string Feed(std::span<const TokenId> tokens,
                 std::optional<TextStream>* text) {
  std::string fed;
  if (!text->has_value()) return fed;
  for (const TokenId token : tokens) fed += (*text)->Feed(token).text;
  return fed;
}

std::string Finish(std::optional<TextStream>* text) {
  return text->has_value() ? (*text)->Finish().text : std::string();
}

// Writes the new tokens of each sample.
class SampleWriter : public SearchWatcher {
 public:
  SampleWriter(const PreparedRequest& prepared,
               std::shared_ptr<EventQueue> queue)
      : request_text_(prepared.text), queue_(std::move(queue)) {
    for (int i = NumSequences(prepared.request.params); i > 0; --i) {
      samples_.push_back({.text = Begin(request_text_.get())});
    }
  }

  void OnStep(const DecodeStrategy& strategy,
              const TokenLogProbs* logprobs) override {
    const std::vector<SequenceState> states = strategy.States();
    for (size_t i = 0; i < states.size(); ++i) {
      if (samples_[i].ended) continue;
      Extend(static_cast<int>(i), states[i], strategy.tree(), logprobs);
    }
    queue_->Flush();
  }
  void OnFinishEarly(const DecodeStrategy& strategy) override {
    OnStep(strategy, /*logprobs=*/nullptr);
  }

 private:
  struct Sample {
    TokenTree::Node node = TokenTree::kRoot;  // last written node
    bool ended = false;
    std::optional<TextStream> text;
  };

  void Extend(int sample_idx, const SequenceState& state, const TokenTree& tree,
              const TokenLogProbs* logprobs) {
    Sample& sample = samples_[sample_idx];
    SampleEvent event = {.sample = sample_idx,
                         .finish_reason = state.finish_reason};
    for (auto node = state.node; node != sample.node;
         node = tree.parent(node)) {
      event.tokens.push_back(tree.token(node));
      if (logprobs != nullptr) event.logprobs.push_back(logprobs->At(node));
    }
    std::ranges::reverse(event.tokens);
    std::ranges::reverse(event.logprobs);
    event.text = Feed(event.tokens, &sample.text);
    if (state.finish_reason.has_value()) event.text += Finish(&sample.text);
    sample.node = state.node;
    sample.ended = state.finish_reason.has_value();
    queue_->Extend(std::move(event));
  }

  const std::shared_ptr<const RequestText> request_text_;  // may be null
  const std::shared_ptr<EventQueue> queue_;
  std::vector<Sample> samples_;
};

// Writes the stable prefix, and the beams if the stream options have them.
class BeamWriter : public SearchWatcher {
 public:
  BeamWriter(const PreparedRequest& prepared, const StreamOptions& options,
             std::shared_ptr<EventQueue> queue)
      : request_text_(prepared.text),
        writes_beams_(options.beams),
        queue_(std::move(queue)),
        text_(Begin(request_text_.get())) {}

  void OnStep(const DecodeStrategy& strategy, const TokenLogProbs*) override {
    ++num_steps_;
    const std::vector<SequenceState> states = strategy.States();
    ExtendPrefix(strategy, states);
    if (writes_beams_) WriteBeams(strategy.tree(), states);
    queue_->Flush();
  }
  // The beams are those of the last step.
  void OnFinishEarly(const DecodeStrategy& strategy) override {
    ExtendPrefix(strategy, strategy.States());
    queue_->Flush();
  }

 private:
  void ExtendPrefix(const DecodeStrategy& strategy,
                    std::span<const SequenceState> states) {
    std::vector<TokenTree::Node> nodes;
    for (const SequenceState& state : states) nodes.push_back(state.node);
    StablePrefixEvent event;
    event.tokens = prefix_.Update(strategy.tree(), nodes);
    event.text = Feed(event.tokens, &text_);
    // Held back text is stable only if one hypothesis is left and is done.
    if (strategy.done() && prefix_.is_everything()) {
      event.text += Finish(&text_);
    }
    if (event.tokens.empty() && event.text.empty()) return;
    queue_->Extend(std::move(event));
  }

  void WriteBeams(const TokenTree& tree,
                  std::span<const SequenceState> states) {
    BeamsEvent event = {.num_steps = num_steps_};
    for (const SequenceState& state : states) {
      event.beams.push_back({.tokens = tree.Path(state.node),
                             .score = state.score,
                             .cum_log_prob = state.cum_log_prob,
                             .finish_reason = state.finish_reason});
    }
    queue_->Replace(std::move(event));
  }

  const std::shared_ptr<const RequestText> request_text_;  // may be null
  const bool writes_beams_;
  const std::shared_ptr<EventQueue> queue_;
  StablePrefix prefix_;
  std::optional<TextStream> text_;
  int64_t num_steps_ = 0;
};

}  // namespace

std::unique_ptr<SearchWatcher> MakeStreamWriter(
    const PreparedRequest& prepared, const StreamOptions& options,
    std::shared_ptr<EventQueue> queue) {
  if (IsBeamSearch(prepared.request.params)) {
    return std::make_unique<BeamWriter>(prepared, options, std::move(queue));
  }
  return std::make_unique<SampleWriter>(prepared, std::move(queue));
}

}  // namespace espalier
