#include "tests/trace/fake_trace.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "trace/trace_json.h"

namespace espalier::testing {
namespace {

struct Beam {
  int node = kTraceRoot;
  int slot = 0;
  float cum_log_prob = 0;
  std::vector<PageId> pages = {{0}, {1}};
};

class Search {
 public:
  explicit Search(const FakeSearch& search)
      : search_(search), random_(search.seed) {}

  std::vector<TraceEvent> Run() {
    events_.push_back(TraceRequest{.request = Id(),
                                   .strategy = "beams",
                                   .params = {{"num_beams", search_.num_beams}},
                                   .prompt_tokens = {1, 5, 6, 7, 8},
                                   .prompt = "A made-up prompt."});
    for (step_ = 1; step_ <= search_.num_steps; ++step_) Step();
    if (search_.ends) End();
    return std::move(events_);
  }

 private:
  RequestId Id() const { return {search_.request}; }

  void AddPages() {
    TracePages pages{.request = Id(),
                     .step = step_,
                     .shared = {{0}},
                     .num_held = next_page_,
                     .num_pages = 1000};
    pages.cached = {{0}};
    if (step_ > 1 && (step_ - 1) % search_.page_size == 0) {
      for (size_t i = 1; i < beams_.size(); ++i) {
        pages.copied.push_back({.from = beams_[0].pages.back(),
                                .to = beams_[i].pages.back(),
                                .num_tokens = 1});
      }
    }
    for (const Beam& beam : beams_) {
      pages.slots.push_back(
          {.slot = beam.slot,
           .node = beam.node,
           .pages = {beam.pages.begin() + 1, beam.pages.end()}});
    }
    events_.push_back(std::move(pages));
  }

  // Numbers that differ from row to row.
  void AddLegal() {
    TraceLegal legal{.request = Id()};
    for (const Beam& beam : beams_) {
      legal.rows.push_back({.node = beam.node,
                            .state = 40 + beam.node,
                            .room = 1 + search_.num_steps - step_,
                            .num_legal = 1000 + beam.node});
      if (beam.slot == 0) legal.rows.back().legal_log_mass = -0.5f;
    }
    events_.push_back(std::move(legal));
  }

  // The 2 * num_beams best of random continuations.
  std::vector<std::pair<float, int>> Candidates() {
    std::exponential_distribution<float> minus_log_prob(0.5);
    std::vector<std::pair<float, int>> candidates;
    for (size_t beam = 0; beam < beams_.size(); ++beam) {
      for (int i = 0; i < 2 * search_.num_beams; ++i) {
        candidates.push_back(
            {-minus_log_prob(random_), static_cast<int>(beam)});
      }
    }
    std::sort(candidates.begin(), candidates.end(), [&](auto a, auto b) {
      return a.first + beams_[a.second].cum_log_prob >
             b.first + beams_[b.second].cum_log_prob;
    });
    candidates.resize(2 * search_.num_beams);
    return candidates;
  }

  void Step() {
    if (step_ == search_.preempted_before) {
      std::vector<int> nodes;
      std::reverse(beams_.begin(), beams_.end());  // so that all move
      for (size_t i = 0; i < beams_.size(); ++i) {
        nodes.push_back(beams_[i].node);
        beams_[i].slot = static_cast<int>(i);
      }
      events_.push_back(TracePreempted{.request = Id(),
                                       .step = step_,
                                       .num_pages = 3,
                                       .nodes = std::move(nodes)});
      events_.push_back(TraceResumed{.request = Id(),
                                     .step = step_,
                                     .num_cached_tokens = 12,
                                     .num_fed_tokens = 4});
    }
    AddPages();
    if (search_.is_constrained) AddLegal();
    std::vector<Beam> next;
    for (const auto& [log_prob, parent_rank] : Candidates()) {
      const Beam& parent = beams_[parent_rank];
      TraceCandidate event{
          .request = Id(),
          .step = step_,
          .node = next_node_,
          .parent = parent.node,
          .parent_slot = parent.slot,
          .token = 100 + next_node_,
          .text = search_.texts[next_node_ % search_.texts.size()],
          .log_prob = log_prob,
          .cum_log_prob = parent.cum_log_prob + log_prob};
      ++next_node_;
      Decide(parent, &event, &next);
      events_.push_back(event);
    }
    beams_ = std::move(next);
  }

  void Decide(const Beam& parent, TraceCandidate* event,
              std::vector<Beam>* next) {
    const bool last = step_ == search_.num_steps;
    if (last || event->node % 7 == 6) {
      event->fate = CandidateFate::kFinished;
      event->why = last ? "length" : "eos";
      event->score = event->cum_log_prob / static_cast<float>(step_);
      finished_.push_back({.node = event->node,
                           .score = *event->score,
                           .finish_reason = event->why});
    } else if (next->size() < search_.num_beams) {
      event->why = "among the best";
      event->slot = static_cast<int>(next->size());
      next->push_back({.node = event->node,
                       .slot = *event->slot,
                       .cum_log_prob = event->cum_log_prob,
                       .pages = parent.pages});
      if (step_ % search_.page_size == 0) {
        next->back().pages.push_back({next_page_++});
      }
    } else {
      event->fate = CandidateFate::kPruned;
      event->why = "below the best";
    }
  }

  void End() {
    std::stable_sort(
        finished_.begin(), finished_.end(),
        [](const auto& a, const auto& b) { return a.score > b.score; });
    if (finished_.size() > 3) finished_.resize(3);
    events_.push_back(TraceEnd{.request = Id(), .hypotheses = finished_});
  }

  const FakeSearch search_;
  std::mt19937 random_;
  std::vector<TraceEvent> events_;
  std::vector<Beam> beams_ = {{}};
  std::vector<TraceHypothesis> finished_;
  int step_ = 0;
  int next_node_ = 0;
  int next_page_ = 2;
};

}  // namespace

std::vector<TraceEvent> MakeUpTrace(const FakeSearch& search) {
  return Search(search).Run();
}

std::string TraceLines(const std::vector<TraceEvent>& events) {
  std::string lines;
  for (const TraceEvent& event : events) lines += WriteTraceLine(event) + "\n";
  return lines;
}

}  // namespace espalier::testing
