#include "benchmarks/speculate/speculation_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/wording.h"

namespace espalier::verify_speculation {
namespace {

constexpr size_t kMostLines = 10;  // per kind
// Shorter runs say more of the machine than of speculation.
constexpr double kLeastSeconds = 0.2;

double MedianSeconds(std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  const size_t middle = times.size() / 2;
  const absl::Duration upper = times[middle];
  const absl::Duration lower = times[(times.size() - 1) / 2];
  return absl::ToDoubleSeconds(lower + upper) / 2;
}

bool IsNear(float x, float y, double tolerance) {
  return x == y || (std::isfinite(x) && std::isfinite(y) &&
                    std::abs(x - y) <= tolerance * std::max(1.0f, std::abs(x)));
}

// With rounding, ranks may differ too, and so may the better of two near
// tokens.
bool AreNear(const TokenLogProb& a, const TokenLogProb& b, double tolerance) {
  if (tolerance == 0) return a == b;
  return a.token == b.token && IsNear(a.log_prob, b.log_prob, tolerance) &&
         std::ranges::equal(a.best, b.best, [&](const auto& x, const auto& y) {
           return IsNear(x.log_prob, y.log_prob, tolerance);
         });
}

bool AreNear(const std::vector<TokenLogProb>& a,
             const std::vector<TokenLogProb>& b, double tolerance) {
  return std::ranges::equal(a, b, [&](const auto& x, const auto& y) {
    return AreNear(x, y, tolerance);
  });
}

// Describes the first difference; "" if there is none.
std::string Difference(const Hypothesis& without, const Hypothesis& with,
                       double tolerance) {
  const auto& [a, b] = std::ranges::mismatch(without.tokens, with.tokens);
  const auto place = a - without.tokens.begin();
  if (a != without.tokens.end() && b != with.tokens.end()) {
    return Concat("token ", place + 1, " is ", *a, " without and ", *b,
                  " with speculation");
  }
  if (a != without.tokens.end() || b != with.tokens.end()) {
    return Concat(without.tokens.size(), " tokens without and ",
                  with.tokens.size(), " with speculation");
  }
  const auto differ = [](const char* name, float x, float y) {
    return absl::StrFormat("%s %.9g without and %.9g with speculation", name, x,
                           y);
  };
  if (!IsNear(without.score, with.score, tolerance)) {
    return differ("score", without.score, with.score);
  }
  if (!IsNear(without.cum_log_prob, with.cum_log_prob, tolerance)) {
    return differ("cum_log_prob", without.cum_log_prob, with.cum_log_prob);
  }
  if (without.finish_reason != with.finish_reason) {
    return Concat("ends by ", NameOf(without.finish_reason), " without and ",
                  NameOf(with.finish_reason), " with speculation");
  }
  return AreNear(without.logprobs, with.logprobs, tolerance)
             ? ""
             : "logprobs differ";
}

std::string Lines(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) {
    text += "  " + lines[i] + "\n";
  }
  if (lines.size() > kMostLines) {
    text += Concat("  and ", lines.size() - kMostLines, " more\n");
  }
  return text;
}

std::string FormatExact(const ExactComparison& exact) {
  if (exact.num_requests == 0) return "";
  std::string text =
      Concat("compared token for token and score for score",
             exact.tolerance > 0
                 ? absl::StrFormat(" within %g of it: ", exact.tolerance)
                 : ": ",
             Pluralize(exact.num_requests, "request"), ", ",
             Pluralize(exact.num_hypotheses, "hypothesis", "hypotheses"), ": ");
  if (exact.differences.empty()) return text + "all equal\n";
  return text + Pluralize(exact.differences.size(), "difference") + "\n" +
         Lines(exact.differences);
}

std::string FormatSampled(const std::vector<SampleComparison>& sampled) {
  if (sampled.empty()) return "";
  std::string text = Concat(
      "compared as distributions, rejection: ",
      Pluralize(sampled.size(), "request"),
      sampled.size() == 1 ? "; it" : "; each",
      " would be called different with a p below ",
      absl::StrFormat("%.2g", SampleComparison::kFalseAlarms / sampled.size()),
      "\n");
  std::vector<std::string> lines;
  for (const SampleComparison& request : sampled) {
    lines.push_back(absl::StrFormat(
        "line %d: p %.3g of %s with and without%s", request.line,
        request.p_value, Pluralize(request.num_samples, "sample"),
        request.differs(sampled.size()) ? ": differs" : ""));
  }
  return text + Lines(lines);
}

// Returns the lines of requests without a verified draft, ascending.
std::vector<int64_t> LinesWithoutDrafts(const SpeculationReport& report) {
  std::vector<int64_t> lines = report.exact.lines_without_drafts;
  for (const SampleComparison& request : report.sampled) {
    if (!request.has_drafts) lines.push_back(request.line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

int64_t NumRequests(const SpeculationReport& report) {
  return report.exact.num_requests + std::ssize(report.sampled);
}

// "line 4", "lines 1, 4 and 30 more"
std::string NameLines(const std::vector<int64_t>& lines) {
  std::vector<std::string> words;
  for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) {
    words.push_back(Concat(lines[i]));
  }
  if (lines.size() > kMostLines) {
    words.push_back(Concat(lines.size() - kMostLines, " more"));
  }
  return Concat(lines.size() == 1 ? "line " : "lines ", JoinWithAnd(words));
}

std::string FormatDrafts(const SpeculationReport& report) {
  const std::vector<int64_t> without = LinesWithoutDrafts(report);
  const int64_t num_requests = NumRequests(report);
  const int64_t num_with = num_requests - std::ssize(without);
  return Concat("drafts were verified in ", num_with, " of ",
                Pluralize(num_requests, "request"),
                num_with == 0 || without.empty()
                    ? ""
                    : Concat(", but not of ", NameLines(without)),
                "\n");
}

std::string FormatTimes(const SpeculationReport& report) {
  if (report.times_with.empty()) return "";
  const double without = MedianSeconds(report.times_without);
  const double with = MedianSeconds(report.times_with);
  std::string factor;
  if (std::min(without, with) < kLeastSeconds) {
    factor =
        absl::StrFormat(": too short to compare, below %.1f s", kLeastSeconds);
  } else if (report.timed.num_drafted_tokens > 0) {
    factor = absl::StrFormat(": %.2f times as fast", without / with);
  }
  return absl::StrFormat(
      "%.3f s without, %.3f s with speculation%s (medians of %s each, in "
      "turn)\n",
      without, with, factor, Pluralize(report.times_with.size(), "run"));
}

std::string FormatVerdict(const SpeculationReport& report) {
  const int64_t num_without = std::ssize(LinesWithoutDrafts(report));
  switch (report.verdict()) {
    case SpeculationVerdict::kEqual:
      if (num_without > 0) {
        return Concat("verdict: equal; but ", num_without, " of ",
                      Pluralize(NumRequests(report), "request"),
                      " had no draft verified: of these nothing was shown\n");
      }
      if (report.compared.num_accepted_tokens == 0) {
        return "verdict: equal; but no draft was accepted, so none saved a "
               "step\n";
      }
      return "verdict: equal\n";
    case SpeculationVerdict::kDifferent:
      if (report.exact.tolerance == 0) return "verdict: DIFFERENT\n";
      return "verdict: DIFFERENT; on a GPU rounding follows from how many rows "
             "a step has, so that near ties may fall the other way with and "
             "without speculation: fewest with --dtype f32\n";
    case SpeculationVerdict::kNothingShown:
      return Concat(
          "verdict: none: no draft was verified, so nothing was shown; try "
          "longer outputs (max_new_tokens), more room in a step "
          "(--max-step-tokens, --max-beams), beams without stop strings",
          report.may_add_draft_model ? ", " : " or ",
          "texts that repeat themselves for ngram and suffix",
          report.may_add_draft_model ? ", or --draft-model\n" : "\n");
  }
  return "";
}

std::string FormatFigures(const std::string& runs,
                          const SpeculationFigures& figures) {
  if (figures.num_target_steps == 0) {
    return runs + ": no step verified drafts\n";
  }
  std::string text = absl::StrFormat(
      "%s: drafted %s, accepted %d (%.1f%%); %.2f tokens per step "
      "of a sequence\n",
      runs, Pluralize(figures.num_drafted_tokens, "token"),
      figures.num_accepted_tokens, 100 * figures.AcceptanceRate(),
      figures.TokensPerStep());
  std::string places = "place   ", drafted = "drafted ", accepted = "accepted";
  for (size_t i = 0; i < figures.num_drafted_at.size(); ++i) {
    const int64_t count = figures.num_drafted_at[i];
    if (count == 0) break;
    places += absl::StrFormat(" %7d", i + 1);
    drafted += absl::StrFormat(" %7d", count);
    accepted +=
        absl::StrFormat(" %6.1f%%", 100.0 * figures.num_accepted_at[i] / count);
  }
  if (figures.num_drafted_tokens == 0) return text;
  return text + places + "\n" + drafted + "\n" + accepted + "\n";
}

}  // namespace

void ExactComparison::Compare(int64_t line, const Generation& without,
                              const Generation& with) {
  ++num_requests;
  num_hypotheses += static_cast<int>(without.hypotheses.size());
  if (with.usage.num_drafted_tokens == 0) lines_without_drafts.push_back(line);
  if (without.hypotheses.size() != with.hypotheses.size()) {
    differences.push_back(Concat("line ", line, ": ", without.hypotheses.size(),
                                 " hypotheses without and ",
                                 with.hypotheses.size(), " with speculation"));
    return;
  }
  for (size_t i = 0; i < without.hypotheses.size(); ++i) {
    const std::string difference =
        Difference(without.hypotheses[i], with.hypotheses[i], tolerance);
    if (difference.empty()) continue;
    differences.push_back(
        Concat("line ", line, ", hypothesis ", i + 1, ": ", difference));
    return;
  }
  const auto& prompt_without = without.prompt_logprobs;
  const auto& prompt_with = with.prompt_logprobs;
  if (prompt_without.has_value() != prompt_with.has_value() ||
      (prompt_without.has_value() &&
       !AreNear(*prompt_without, *prompt_with, tolerance))) {
    differences.push_back(Concat("line ", line, ": prompt_logprobs differ"));
  }
}

SpeculationVerdict SpeculationReport::verdict() const {
  const auto differs = [&](const SampleComparison& request) {
    return request.differs(sampled.size());
  };
  if (!exact.differences.empty() || std::ranges::any_of(sampled, differs)) {
    return SpeculationVerdict::kDifferent;
  }
  return std::ssize(LinesWithoutDrafts(*this)) < NumRequests(*this)
             ? SpeculationVerdict::kEqual
             : SpeculationVerdict::kNothingShown;
}

std::string Format(const SpeculationReport& report) {
  std::string text = FormatExact(report.exact) + FormatSampled(report.sampled) +
                     FormatDrafts(report);
  if (!report.left_out.empty()) {
    text += "left out: " + Pluralize(report.left_out.size(), "request") + "\n" +
            Lines(report.left_out);
  }
  text += FormatFigures("compared, with drafts in every step", report.compared);
  text += FormatFigures(
      Concat("timed, ", Pluralize(report.times_with.size(), "run"),
             " with drafts as they pay"),
      report.timed);
  return text + FormatTimes(report) + FormatVerdict(report);
}

}  // namespace espalier::verify_speculation
