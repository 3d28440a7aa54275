#include "batcher/prometheus_text.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace espalier {
namespace {

void AppendEscaped(std::string_view text, std::string* out) {
  const auto is_special = [](char c) {
    return c == '\\' || c == '"' || c == '\n';
  };
  while (true) {
    const auto end = std::find_if(text.begin(), text.end(), is_special);
    out->append(text.begin(), end);
    if (end == text.end()) return;
    *out += '\\';
    *out += *end == '\n' ? 'n' : *end;
    text.remove_prefix(end - text.begin() + 1);
  }
}

// Formats nanoseconds as seconds, exactly: 0.001, 2560.0.
std::string Seconds(int64_t nanoseconds) {
  std::string text =
      absl::StrCat(nanoseconds / 1'000'000'000, ".",
                   absl::Dec(nanoseconds % 1'000'000'000, absl::kZeroPad9));
  const size_t last = text.find_last_not_of('0');
  text.resize(text[last] == '.' ? last + 2 : last + 1);
  return text;
}

std::string Seconds(absl::Duration duration) {
  return Seconds(absl::ToInt64Nanoseconds(duration));
}

std::string Ratio(double part, double whole) {
  return absl::StrFormat("%.9g", whole > 0 ? part / whole : 0);
}

// Writes metric families one after the other.
class MetricWriter {
 public:
  explicit MetricWriter(std::span<const MetricLabel> labels) {
    text_.reserve(kUsualSize);
    for (const MetricLabel& label : labels) {
      AppendLabel(label.name, label.value, labels_.empty(), &labels_);
    }
  }

  void Family(std::string_view name, std::string_view type,
              std::string_view help) {
    family_ = name;
    absl::StrAppend(&text_, "# HELP ", ToAbsl(name), " ", ToAbsl(help), "\n",
                    "# TYPE ", ToAbsl(name), " ", ToAbsl(type), "\n");
  }

  // Values of any type of absl::StrCat, without a string for each.
  using Labels =
      std::initializer_list<std::pair<std::string_view, absl::AlphaNum>>;

  // Writes a sample of the family, or of a part such as _sum.
  void Sample(const absl::AlphaNum& value, const Labels& labels = {},
              std::string_view part = "") {
    text_ += family_;
    text_ += part;
    if (!labels_.empty() || labels.size() > 0) {
      text_ += '{';
      text_ += labels_;
      bool is_first = labels_.empty();
      for (const auto& [name, label] : labels) {
        AppendLabel(name, {label.data(), label.size()},
                    std::exchange(is_first, false), &text_);
      }
      text_ += '}';
    }
    text_ += ' ';
    text_.append(value.data(), value.size());
    text_ += '\n';
  }

  void Gauge(std::string_view name, const absl::AlphaNum& value,
             std::string_view help) {
    Family(name, "gauge", help);
    Sample(value);
  }
  // Writes a counter, whose name ends in _total.
  void Counter(std::string_view name, int64_t value, std::string_view help) {
    Family(name, "counter", help);
    Sample(value);
  }

  // Writes a histogram of nanoseconds, whose name ends in _seconds.
  void Times(std::string_view name, const Histogram& times,
             std::string_view help) {
    Family(name, "histogram", help);
    int64_t count = 0;
    for (size_t i = 0; i < times.bounds().size(); ++i) {
      count += times.counts()[i];
      Sample(count, {{"le", Seconds(times.bounds()[i])}}, "_bucket");
    }
    Sample(times.count(), {{"le", "+Inf"}}, "_bucket");
    Sample(Seconds(times.sum()), {}, "_sum");
    Sample(times.count(), {}, "_count");
  }

  std::string Take() { return std::move(text_); }

 private:
  static constexpr size_t kUsualSize = 40'000;  // bytes

  static void AppendLabel(std::string_view name, std::string_view value,
                          bool is_first, std::string* text) {
    if (!is_first) *text += ',';
    *text += name;
    *text += "=\"";
    AppendEscaped(value, text);
    *text += '"';
  }

  std::string labels_;  // formatted, for every sample
  std::string family_;
  std::string text_;
};

void WritePlaces(std::string_view name, std::string_view help,
                 std::span<const int64_t> counts, MetricWriter* out) {
  out->Family(name, "counter", help);
  for (size_t i = 0; i < counts.size(); ++i) {
    out->Sample(counts[i], {{"position", i}});
  }
}

// Sums over the steps of sequences, or of beam searches.
void WriteSpeculation(const SpeculationFigures& s, MetricWriter* out) {
  out->Counter("vllm:spec_decode_num_drafts_total", s.num_drafted_at[0],
               "Drafts that were verified, of a token or more.");
  WritePlaces("vllm:spec_decode_num_accepted_tokens_per_pos_total",
              "Drafts whose token at this place, from 0, was accepted.",
              s.num_accepted_at, out);
  WritePlaces("espalier:spec_decode_num_draft_tokens_per_pos_total",
              "Drafts that had a token at this place, from 0.",
              s.num_drafted_at, out);
  out->Counter("espalier:spec_decode_num_target_steps_total",
               s.num_target_steps,
               "Steps of sequences that speculate, with a draft or without.");
  out->Counter("espalier:spec_decode_num_tokens_total", s.num_tokens,
               "Tokens that these steps gave their sequences.");
}

// As in vLLM, a preempted request counts as waiting.
void WriteVllm(const EngineStats& s, MetricWriter* out) {
  out->Gauge("vllm:num_requests_running", s.num_running, "Requests that run.");
  out->Gauge("vllm:num_requests_waiting", s.num_waiting + s.num_preempted,
             "Requests that wait, those preempted included.");
  out->Gauge("vllm:kv_cache_usage_perc", Ratio(s.num_pages_held, s.num_pages),
             "Share of the key/value pages that requests hold; 1 is all.");
  out->Family("vllm:cache_config_info", "gauge",
              "Tokens a key/value page, and how many pages there are.");
  out->Sample("1",
              {{"block_size", s.page_size}, {"num_gpu_blocks", s.num_pages}});
  out->Counter("vllm:num_preemptions_total", s.num_preemptions,
               "Times that a request was preempted.");
  out->Counter("vllm:spec_decode_num_draft_tokens_total", s.num_drafted_tokens,
               "Tokens that were drafted and verified.");
  out->Counter(
      "vllm:spec_decode_num_accepted_tokens_total", s.num_accepted_tokens,
      "Drafted tokens that were accepted, up to the end of their sequence.");
  out->Counter("vllm:prefix_cache_queries_total", s.num_queried_tokens,
               "Prompt tokens looked up in the prefix cache.");
  out->Counter("vllm:prefix_cache_hits_total", s.num_cached_tokens,
               "Prompt tokens found there.");
  out->Counter("vllm:prompt_tokens_total",
               s.num_prompt_tokens + s.num_cached_tokens,
               "Prompt tokens, fed or found in the prefix cache.");
  out->Counter("vllm:generation_tokens_total", s.num_generated_tokens,
               "Tokens of the sequences returned.");
  const int64_t num_stopped = s.num_finished_by(FinishReason::kEos) +
                              s.num_finished_by(FinishReason::kStop);
  const int64_t num_long = s.num_finished_by(FinishReason::kLength);
  const int64_t num_aborted =
      s.num_finished_by(FinishReason::kDeadline) +
      s.num_failed_by(absl::StatusCode::kCancelled) +
      s.num_failed_by(absl::StatusCode::kDeadlineExceeded);
  const int64_t num_errors =
      s.num_ended() - num_stopped - num_long - num_aborted;
  out->Family("vllm:request_success_total", "counter", "Requests that ended.");
  const auto ended = [&](const char* reason, int64_t count) {
    out->Sample(count, {{"finished_reason", reason}});
  };
  ended("stop", num_stopped);
  ended("length", num_long);
  ended("abort", num_aborted);
  ended("error", num_errors);
}

void WriteTimes(const EngineStats& s, MetricWriter* out) {
  out->Times("vllm:time_to_first_token_seconds", s.time_to_first_token,
             "From a request's arrival to its first token.");
  out->Times("vllm:inter_token_latency_seconds", s.time_between_tokens,
             "From a token of a request to the next one.");
  out->Times("vllm:e2e_request_latency_seconds", s.request_time,
             "From a request's arrival to its result.");
  out->Times("vllm:request_queue_time_seconds", s.queue_time,
             "From a request's arrival to its start.");
  out->Times("vllm:request_prefill_time_seconds", s.prefill_time,
             "From a request's start to its first token.");
  out->Times("vllm:request_decode_time_seconds", s.decode_time,
             "From a request's first token to its result.");
}

void WriteNow(const EngineStats& s, MetricWriter* out) {
  out->Gauge("espalier:requests_running", s.num_running, "Requests that run.");
  out->Gauge("espalier:requests_waiting", s.num_waiting,
             "Requests that have not started.");
  out->Gauge("espalier:requests_preempted", s.num_preempted,
             "Requests that were preempted and will resume.");
  out->Gauge("espalier:rows_running", s.num_rows_running,
             "Beams and samples of the requests that run.");
  out->Gauge("espalier:rows_waiting", s.num_rows_waiting,
             "Beams and samples of the requests that wait or are preempted.");
  out->Gauge("espalier:prompt_tokens_waiting", s.num_prompt_tokens_waiting,
             "Prompt and decoder prompt tokens of the requests that wait.");
  out->Family("espalier:pages", "gauge", "Key/value pages, by who holds them.");
  out->Sample(s.num_pages_free, {{"state", "free"}});
  out->Sample(s.num_pages_held, {{"state", "held"}});
  out->Sample(s.num_pages_idle, {{"state", "idle"}});
  out->Gauge("espalier:pages_unshared", s.num_pages_unshared,
             "Pages that requests would hold if every beam had its own.");
  out->Gauge("espalier:page_sharing_ratio",
             absl::StrFormat("%.9g", s.sharing_ratio()),
             "Unshared pages a page held; 1 where none is held.");
  out->Gauge("espalier:peak_pages", s.peak_pages,
             "Pages that requests held at most.");
}

void WriteEnds(const EngineStats& s, MetricWriter* out) {
  out->Counter("espalier:requests_total", s.num_requests,
               "Requests that arrived.");
  out->Family("espalier:requests_ended_total", "counter",
              "Requests that ended, by reason; an error also by its code.");
  for (const FinishReason reason :
       {FinishReason::kEos, FinishReason::kStop, FinishReason::kLength,
        FinishReason::kDeadline}) {
    out->Sample(s.num_finished_by(reason),
                {{"reason", ToAbsl(NameOf(reason))}, {"code", "OK"}});
  }
  for (int value = 1; value < std::ssize(s.num_failed); ++value) {
    const auto code = static_cast<absl::StatusCode>(value);
    const char* const reason =
        code == absl::StatusCode::kCancelled          ? "cancelled"
        : code == absl::StatusCode::kDeadlineExceeded ? "deadline"
                                                      : "error";
    out->Sample(s.num_failed_by(code),
                {{"reason", reason}, {"code", CodeName(code)}});
  }
}

void WriteWork(const EngineStats& s, MetricWriter* out) {
  out->Counter("espalier:steps_total", s.num_steps, "Steps of the model.");
  out->Counter("espalier:draft_steps_total", s.num_draft_steps,
               "Steps in which a draft model ran, and nothing else.");
  out->Counter("espalier:draft_failures_total", s.num_draft_failures,
               "Steps for which a draft model failed to draft.");
  out->Counter("espalier:constraint_list_waits_total", s.num_list_waits,
               "Results after which a request waited for lists of the legal "
               "tokens of its constraint.");
  out->Family("espalier:tokens_fed_total", "counter",
              "Tokens fed: of prompts, again after preemption, of live beams, "
              "of drafts.");
  out->Sample(s.num_prompt_tokens, {{"kind", "prompt"}});
  out->Sample(s.num_tokens_fed_again, {{"kind", "again"}});
  out->Sample(s.num_decode_rows, {{"kind", "decode"}});
  out->Sample(s.num_draft_tokens_fed, {{"kind", "draft"}});
  out->Counter("espalier:resumptions_total", s.num_resumptions,
               "Times that a preempted request resumed.");
  out->Counter("espalier:tokens_shared_again_total", s.num_tokens_shared_again,
               "Tokens that resumed requests found in the prefix cache.");
  out->Counter("espalier:tokens_loaded_again_total", s.num_tokens_loaded_again,
               "Tokens that resumed requests loaded from host memory.");
  out->Family("espalier:swapped_pages_total", "counter",
              "Pages of preempted requests that went to host memory (out), and "
              "came back (in).");
  out->Sample(s.num_swapped_pages_out, {{"direction", "out"}});
  out->Sample(s.num_swapped_pages_in, {{"direction", "in"}});
  out->Counter("espalier:tail_copies_total", s.num_tail_copies,
               "Copies of partly filled pages.");
  out->Counter("espalier:page_steps_total", s.page_steps,
               "Pages that requests held, summed over steps.");
  out->Counter("espalier:unshared_page_steps_total", s.unshared_page_steps,
               "The same if every beam had pages of its own.");
  out->Family("espalier:phase_seconds_total", "counter",
              "Time by phase of a step.");
  const auto phase = [&](const char* name, absl::Duration time) {
    out->Sample(Seconds(time), {{"phase", name}});
  };
  phase("plan", s.plan_time);
  phase("forward", s.forward_time);
  phase("select", s.select_time);
  phase("draft", s.draft_time);
  phase("advance", s.advance_time);
  phase("hand_over", s.hand_over_time);
  out->Family("espalier:step_seconds_total", "counter",
              "Time in which at least one step was under way.");
  out->Sample(Seconds(s.step_time));
}

}  // namespace

std::string PrometheusText(const EngineStats& stats,
                           std::span<const MetricLabel> labels) {
  MetricWriter out(labels);
  WriteVllm(stats, &out);
  WriteSpeculation(stats.speculation, &out);
  WriteTimes(stats, &out);
  WriteNow(stats, &out);
  WriteEnds(stats, &out);
  WriteWork(stats, &out);
  return out.Take();
}

}  // namespace espalier
