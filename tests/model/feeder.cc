#include "tests/model/feeder.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/check.h"

namespace espalier::testing {

Feeder::Feeder(Model* model) : model_(model) {
  // Enough for any test, in no order.
  const int count = std::min(model->description().num_pages, 4000);
  for (int i = 0; i < count; ++i) free_pages_.push_back(PageId{i});
  std::shuffle(free_pages_.begin(), free_pages_.end(), std::mt19937(11));
}

int Feeder::Add(std::vector<TokenId> source) {
  return AddInput(
      source.empty() ? nullptr
                     : std::make_shared<const EncoderInput>(std::move(source)));
}

int Feeder::AddInput(std::shared_ptr<const EncoderInput> source) {
  CHECK_EQ(source == nullptr, !model_->description().encoder.has_value());
  sequences_.emplace_back().source = std::move(source);
  return static_cast<int>(sequences_.size()) - 1;
}

PageId Feeder::TakePage() {
  CHECK(!free_pages_.empty());
  const PageId page = free_pages_.back();
  free_pages_.pop_back();
  return page;
}

int Feeder::Fork(int parent) {
  const int page_size = model_->description().page_size;
  Sequence child = sequences_[parent];
  const int num_copied = child.num_tokens % page_size;
  if (num_copied > 0) {
    const PageId from = child.pages.back();
    child.pages.back() = TakePage();
    copies_.push_back({from, child.pages.back(), num_copied});
  }
  sequences_.push_back(child);
  return static_cast<int>(sequences_.size()) - 1;
}

void Feeder::AddSource(Sequence* sequence, StepPlan* plan) {
  if (sequence->source == nullptr) return;
  const int length = sequence->source->length();
  const bool is_read = sequence->source_pages != nullptr;
  if (!is_read) {
    std::vector<PageId> pages;
    while (std::ssize(pages) * model_->description().page_size < length) {
      pages.push_back(TakePage());
    }
    sequence->source_pages =
        std::make_shared<const std::vector<PageId>>(std::move(pages));
  }
  plan->sources.push_back({.first_row = static_cast<int>(plan->rows.size()),
                           .input = sequence->source,
                           .pages = sequence->source_pages,
                           .num_stored = is_read ? length : 0});
}

std::vector<LogitsRows> Feeder::Step(const std::vector<Row>& rows) {
  const int page_size = model_->description().page_size;
  StepPlan plan;
  plan.page_copies = std::exchange(copies_, {});
  for (const Row& row : rows) {
    Sequence& sequence = sequences_[row.sequence];
    AddSource(&sequence, &plan);
    const int num_tokens = static_cast<int>(row.tokens.size());
    const int num_logits = row.num_logits < 0 ? num_tokens : row.num_logits;
    plan.rows.push_back({.sequence = SequenceId{row.sequence},
                         .first_token = static_cast<int>(plan.tokens.size()),
                         .num_tokens = num_tokens,
                         .first_position = sequence.num_tokens,
                         .num_logits = num_logits,
                         .first_logits = plan.num_logits});
    plan.num_logits += num_logits;
    plan.tokens.insert(plan.tokens.end(), row.tokens.begin(), row.tokens.end());
    sequence.num_tokens += num_tokens;
    while (sequence.pages.size() * page_size < sequence.num_tokens) {
      sequence.pages.push_back(TakePage());
    }
    plan.page_indices.append(sequence.pages);
    plan.page_indptr.push_back(static_cast<int>(plan.page_indices.size()));
  }
  std::vector<float> logits(
      size_t(plan.num_logits) * model_->description().vocab_size, NAN);
  const absl::Status status = model_->Forward(plan, logits);
  CHECK(status.ok()) << status.ToString();
  return Split(plan, logits);
}

std::vector<LogitsRows> Feeder::Split(const StepPlan& plan,
                                      const std::vector<float>& logits) const {
  const int vocab_size = model_->description().vocab_size;
  std::vector<LogitsRows> result;
  for (const PlanRow& row : plan.rows) {
    LogitsRows& logits_rows = result.emplace_back();
    for (int i = 0; i < row.num_logits; ++i) {
      const auto begin =
          logits.begin() + int64_t{row.first_logits + i} * vocab_size;
      logits_rows.emplace_back(begin, begin + vocab_size);
    }
  }
  return result;
}

LogitsRows FeedAlone(Model* model, const std::vector<TokenId>& tokens,
                     int chunk, const std::vector<TokenId>& source) {
  return FeedAlone(
      model, tokens, chunk,
      source.empty() ? nullptr : std::make_shared<const EncoderInput>(source));
}

LogitsRows FeedAlone(Model* model, const std::vector<TokenId>& tokens,
                     int chunk, std::shared_ptr<const EncoderInput> source) {
  Feeder feeder(model);
  const int sequence = feeder.AddInput(std::move(source));
  LogitsRows logits_rows;
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const size_t end = std::min(tokens.size(), begin + chunk);
    const std::vector<TokenId> part(tokens.begin() + begin,
                                    tokens.begin() + end);
    const LogitsRows more = feeder.Step({{sequence, part}})[0];
    logits_rows.insert(logits_rows.end(), more.begin(), more.end());
  }
  return logits_rows;
}

}  // namespace espalier::testing
