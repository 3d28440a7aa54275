#include "constrain/pushdown_configurations.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/hash.h"

namespace espalier {

// Ways to visit, each once: where a call has just led to, the end of the called
// text may not come next, because a call reads at least a byte.
struct PushdownConfigurations::Closure {
  struct Visit {
    Way way;
    bool is_called = false;
    friend auto operator<=>(const Visit&, const Visit&) = default;
  };

  void Add(const Way& way, bool is_called) {
    if (seen.insert({way, is_called}).second)
      visits.push_back({way, is_called});
  }

  std::vector<Visit> visits;
  std::set<Visit> seen;
  bool accepts = false;
};

PushdownConfigurations::PushdownConfigurations(
    std::shared_ptr<const PushdownAutomaton> automaton, PushdownCosts costs,
    int64_t reach)
    : automaton_(std::move(automaton)),
      costs_(std::move(costs)),
      reach_(reach),
      chunks_(new std::atomic<Chunk*>[kMaxChunks]()) {
  const std::lock_guard lock(mutex_);
  const int32_t empty = Intern({.height = 0, .cost = 0, .edges = {}});
  Work work;
  has_start_ = Add({{PushdownAutomaton::kStart, empty, 0}}, &work) == kStart;
  if (!has_start_) InternRecord({}, /*accepts=*/false, kNever);
}

PushdownConfigurations::~PushdownConfigurations() {
  for (int i = 0; i < kMaxChunks; ++i) delete chunks_[i].load();
}

PushdownConfigurations::State PushdownConfigurations::Next(
    State state, std::string_view bytes) const {
  for (const char byte : bytes) {
    state = Next(state, static_cast<uint8_t>(byte));
    if (state < 0) return state;
  }
  return state;
}

PushdownConfigurations::State PushdownConfigurations::MakeNext(
    State state, int byte_class) const {
  const Record& record = RecordOf(state);
  const std::lock_guard lock(mutex_);
  const State known = record.next[byte_class].load(std::memory_order_relaxed);
  if (known != kUnknown) return known;
  Work work;
  std::vector<Way> ways;
  for (const Way& way : record.ways) {
    const PushdownAutomaton::State next =
        automaton_->NextByClass(way.state, byte_class);
    if (next == PushdownAutomaton::kNone ||
        !IsLive(next, nodes_[way.node].height)) {
      continue;
    }
    const int64_t count =
        automaton_->CountAfter(way.state, byte_class, way.count);
    if (count >= 0) ways.push_back({next, way.node, count});
  }
  work.num_steps += std::ssize(record.ways);
  const int64_t bytes_before = num_bytes_;
  const State num_before = num_records_;
  const State next = ways.empty() ? kNone : Add(std::move(ways), &work);
  if (next >= 0) {
    // A new one has its own bytes.
    const int64_t own = num_records_ > num_before ? num_bytes_of(next) : 0;
    RecordOf(next).node_bytes.fetch_add(num_bytes_ - bytes_before - own,
                                        std::memory_order_relaxed);
  }
  record.log_steps[byte_class] = static_cast<uint8_t>(std::bit_width(
      static_cast<uint64_t>(std::max<int64_t>(work.num_steps - 1, 0))));
  record.next[byte_class].store(next, std::memory_order_release);
  return next;
}

PushdownConfigurations::State PushdownConfigurations::MakeSimilar(
    State state) const {
  const Record& record = RecordOf(state);
  std::vector<Way> ways = record.ways;
  int32_t more = record.more;
  for (Way& way : ways) {
    const int64_t count =
        automaton_->SimilarCount(way.state, way.count, reach_);
    const int32_t added = automaton_->MoreBelowLeast(way.state, count) -
                          automaton_->MoreBelowLeast(way.state, way.count);
    // Needs of several ways would not differ by one number.
    if (added != 0 && ways.size() > 1) continue;
    way.count = count;
    more = AddCosts(more, added);
  }
  // More would not be known.
  if (more == kNever) ways = record.ways;
  State similar = state;
  if (ways != record.ways) {
    const std::lock_guard lock(mutex_);
    std::ranges::sort(ways, {}, [&](const Way& way) { return KeyOf(way); });
    ways.erase(std::unique(ways.begin(), ways.end()), ways.end());
    similar = InternRecord(std::move(ways), record.accepts, more);
    if (similar == kTooMany) similar = state;
  }
  record.similar.store(similar, std::memory_order_release);
  return similar;
}

PushdownConfigurations::State PushdownConfigurations::Add(std::vector<Way> ways,
                                                          Work* work) const {
  Merge(&ways, work);
  const Way origin = ways.size() == 1 ? ways[0] : Way{.state = kNone};
  Closure closure;
  if (!Close(std::move(ways), &closure, work)) return kTooMany;
  std::vector<Way> readers;
  int32_t more = kNever;
  for (const auto& [way, is_called] : closure.visits) {
    const Node& node = nodes_[way.node];
    more = std::min(more, AddCosts(MoreOf(way, node.height), node.cost));
    if (automaton_->reads_bytes(way.state)) readers.push_back(way);
  }
  Merge(&readers, work);
  if (work->is_spent() || std::ssize(readers) > kMaxWays) return kTooMany;
  const State number = InternRecord(std::move(readers), closure.accepts, more);
  if (number >= 0) {
    Record& record = *chunks_[number >> kChunkBits]
                          .load(std::memory_order_relaxed)
                          ->records[number & (kChunkSize - 1)];
    if (record.origin.state == kNone) record.origin = origin;
  }
  return number;
}

bool PushdownConfigurations::FindOrigin(
    State state, PushdownAutomaton::State* origin, int64_t* count,
    std::vector<PushdownAutomaton::State>* stack) const {
  const std::lock_guard lock(mutex_);
  const Way& way = RecordOf(state).origin;
  if (way.state == kNone) return false;
  *origin = way.state;
  *count = way.count;
  stack->clear();
  const Node* node = &nodes_[way.node];
  for (; node->height > 0; node = &nodes_[node->edges[0].node]) {
    if (node->edges.size() != 1) return false;
    stack->push_back(node->edges[0].state);
  }
  std::ranges::reverse(*stack);
  return true;
}

bool PushdownConfigurations::Close(std::vector<Way> ways, Closure* closure,
                                   Work* work) const {
  constexpr size_t kMaxVisits = 4 * kMaxWays;
  for (const Way& way : ways) closure->Add(way, /*is_called=*/false);
  for (size_t i = 0; i < closure->visits.size(); ++i) {
    const auto [way, is_called] = closure->visits[i];
    const int height = nodes_[way.node].height;
    work->num_steps +=
        Work::kVisit + std::ssize(automaton_->CallsOf(way.state));
    if (automaton_->accepts(way.state) && !is_called) {
      if (height == 0) closure->accepts = true;
      const std::vector<Way>& edges = nodes_[way.node].edges;
      work->num_steps += Work::kVisit * std::ssize(edges);
      if (work->is_spent()) return false;
      for (const Way& below : edges) {
        closure->Add(below, /*is_called=*/false);
      }
    }
    if (work->is_spent()) return false;
    for (const auto& [callee, after] : automaton_->CallsOf(way.state)) {
      if (automaton_->ends(after)) {
        if (automaton_->bytes().More(callee, LevelsAbove(height)) != kNever) {
          work->num_steps += Work::kVisit;
          closure->Add({callee, way.node, 0}, /*is_called=*/true);
        }
      } else if (LevelsAbove(height) > 0 && IsLive(after, height) &&
                 automaton_->bytes().More(callee, LevelsAbove(height + 1)) !=
                     kNever) {
        work->num_steps += 2 * Work::kVisit;
        const int32_t cost =
            AddCosts(CostOf(after, height), nodes_[way.node].cost);
        const int32_t node = Intern({.height = height + 1,
                                     .cost = cost,
                                     .edges = {{after, way.node, 0}}});
        closure->Add({callee, node, 0}, /*is_called=*/true);
      }
      if (closure->visits.size() > kMaxVisits || work->is_spent()) return false;
    }
    if (closure->visits.size() > kMaxVisits) return false;
  }
  return true;
}

void PushdownConfigurations::Merge(std::vector<Way>* ways, Work* work) const {
  const auto key = [&](const Way& way) { return KeyOf(way); };
  std::ranges::sort(*ways, {}, key);
  work->num_steps += std::ssize(*ways);
  size_t num_merged = 0;
  for (size_t begin = 0; begin < ways->size();) {
    size_t end = begin;
    std::vector<int32_t> nodes;
    while (end < ways->size() && key((*ways)[end]) == key((*ways)[begin])) {
      nodes.push_back((*ways)[end++].node);
    }
    (*ways)[num_merged++] = {(*ways)[begin].state,
                             Union(std::move(nodes), work),
                             (*ways)[begin].count};
    begin = end;
  }
  ways->resize(num_merged);
}

int32_t PushdownConfigurations::Union(std::vector<int32_t> nodes,
                                      Work* work) const {
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  if (nodes.size() == 1 || work->is_spent()) return nodes[0];
  work->num_steps += Work::kVisit;
  const auto found = work->unions.find(nodes);
  if (found != work->unions.end()) return found->second;
  Node all = {.height = nodes_[nodes[0]].height,
              .cost = nodes_[nodes[0]].cost,
              .edges = {}};
  std::vector<Way> edges;
  for (const int32_t node : nodes) {
    const std::vector<Way>& of_node = nodes_[node].edges;
    work->num_steps += 2 + 2 * std::ssize(of_node);
    if (work->is_spent()) return nodes[0];
    all.cost = std::min(all.cost, nodes_[node].cost);
    edges.insert(edges.end(), of_node.begin(), of_node.end());
  }
  std::ranges::sort(edges);
  for (size_t i = 0; i < edges.size();) {
    const PushdownAutomaton::State state = edges[i].state;
    std::vector<int32_t> below;
    for (; i < edges.size() && edges[i].state == state; ++i) {
      below.push_back(edges[i].node);
    }
    all.edges.push_back({state, Union(std::move(below), work), 0});
  }
  if (work->is_spent()) return nodes[0];
  const int32_t result = Intern(std::move(all));
  work->unions.emplace(std::move(nodes), result);
  return result;
}

namespace {

template <typename Ways>
uint64_t HashOfWays(const Ways& ways, int64_t also) {
  return HashOf(std::string_view(reinterpret_cast<const char*>(ways.data()),
                                 ways.size() * sizeof(ways[0]))) ^
         HashOf(static_cast<uint64_t>(also));
}

}  // namespace

int32_t PushdownConfigurations::Intern(Node node) const {
  const uint64_t hash = HashOfWays(node.edges, node.height);
  const auto [begin, end] = node_numbers_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Node& other = nodes_[it->second];
    if (other.height == node.height && other.edges == node.edges) {
      return it->second;
    }
  }
  const auto number = static_cast<int32_t>(nodes_.size());
  node.edges.shrink_to_fit();
  num_bytes_ +=
      static_cast<int64_t>(sizeof(Node) + 48 + node.edges.size() * sizeof(Way));
  nodes_.push_back(std::move(node));
  node_numbers_.emplace(hash, number);
  return number;
}

PushdownConfigurations::State PushdownConfigurations::InternRecord(
    std::vector<Way> ways, bool accepts, int32_t more) const {
  const uint64_t hash = HashOfWays(ways, accepts ? 1 : 0);
  const auto [begin, end] = numbers_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Record& other = RecordOf(it->second);
    if (other.accepts == accepts && other.ways == ways) return it->second;
  }
  const State number = num_records_;
  const int chunk_idx = number >> kChunkBits;
  if (chunk_idx == kMaxChunks) return kTooMany;
  Chunk* chunk = chunks_[chunk_idx].load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = new Chunk;
    num_bytes_ += sizeof(Chunk);
    chunks_[chunk_idx].store(chunk, std::memory_order_release);
  }
  auto record = std::make_unique<Record>();
  record->ways = std::move(ways);
  record->ways.shrink_to_fit();
  record->accepts = accepts;
  record->more = more;
  const int num_classes = automaton_->num_classes();
  record->log_steps.reset(new uint8_t[num_classes]());
  record->next.reset(new std::atomic<State>[num_classes]);
  for (int c = 0; c < num_classes; ++c) {
    record->next[c].store(kUnknown, std::memory_order_relaxed);
  }
  chunk->records[number & (kChunkSize - 1)] = std::move(record);
  num_bytes_ += num_bytes_of(number) + 48;
  numbers_.emplace(hash, number);
  ++num_records_;
  return number;
}

int64_t PushdownConfigurations::num_bytes_of(State state) const {
  const Record& record = RecordOf(state);
  return static_cast<int64_t>(sizeof(Record) +
                              record.ways.size() * sizeof(Way) +
                              automaton_->num_classes() * (sizeof(State) + 1)) +
         record.node_bytes.load(std::memory_order_relaxed);
}

std::vector<uint8_t> PushdownConfigurations::BytesAfter(State state) const {
  std::vector<uint8_t> bytes;
  for (int byte = 0; byte < 256; ++byte) {
    if (Next(state, static_cast<uint8_t>(byte)) >= 0) {
      bytes.push_back(static_cast<uint8_t>(byte));
    }
  }
  return bytes;
}

PushdownConfigurations::MatchResult PushdownConfigurations::Match(
    std::string_view text) const {
  MatchResult result;
  for (const char byte : text) {
    const State next = Next(result.state, static_cast<uint8_t>(byte));
    result.is_known = next != kTooMany;
    if (next < 0) return result;
    result.state = next;
    ++result.num_matched;
  }
  result.in_language = accepts(result.state);
  return result;
}

int64_t PushdownConfigurations::num_configurations() const {
  const std::lock_guard lock(mutex_);
  return num_records_;
}

int64_t PushdownConfigurations::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace espalier
