// The small random Whisper models and what transformers makes of them
// (tests/data/speech/, made by tools/make_whisper_models.py).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/feature_matrix.h"
#include "base/json.h"
#include "base/status.h"
#include "exec_request/encoder_input.h"
#include "model/safetensors.h"
#include "tests/family_references.h"
#include "tests/model/stored_values.h"
#include "tests/reference_cases.h"
#include "tests/source_tree.h"

namespace espalier::testing {

inline const std::vector<std::string>& WhisperModels() {
  static const std::vector<std::string> names = {"whisper", "whisper_odd"};
  return names;
}

inline std::string WhisperPath(const std::string& model) {
  return SourcePath("tests/data/speech/" + model);
}

inline constexpr int64_t kWhisperStart = 3;  // decoder_start_token_id

// Features that logits.safetensors has.
inline constexpr int kNumWhisperFeatures = 4;

// features.N of logits.safetensors.
inline std::shared_ptr<const FeatureMatrix> StoredFeatures(
    const SafetensorsFile& file, int number) {
  const std::string name = Concat("features.", number);
  const std::vector<int64_t>& shape = (*file.Find(name))->shape;
  return std::make_shared<const FeatureMatrix>(
      FeatureMatrix{.shape = {.num_rows = static_cast<int>(shape[0]),
                              .num_cols = static_cast<int>(shape[1])},
                    .values = StoredValues<float>(file, name)});
}

// Their encoders have half as many positions as there are frames.
inline std::shared_ptr<const EncoderInput> InputOf(
    std::shared_ptr<const FeatureMatrix> features) {
  const int length = features->shape.num_rows / 2;
  return std::make_shared<const EncoderInput>(std::move(features), length);
}

// The rule of times that a line has, or none.
inline std::optional<TimestampParams> TimestampsOf(const json::value& line) {
  const json::value* const rule = line.as_object().if_contains("timestamps");
  if (rule == nullptr) return std::nullopt;
  const auto token = [&](const char* name) {
    return rule->at(name).to_number<int64_t>();
  };
  TimestampParams params = {.first_time = token("first_time"),
                            .end = token("end"),
                            .no_timestamps = token("no_timestamps")};
  if (rule->as_object().contains("max_initial_step")) {
    params.max_initial_step = token("max_initial_step");
  }
  return params;
}

// Their searches, and what `generate` of transformers makes of them.
inline std::vector<FamilyReference> ReadWhisperReferences(
    const std::string& model, const char* name = "/requests.jsonl") {
  const auto file =
      SafetensorsFile::Open(WhisperPath(model) + "/logits.safetensors");
  EXPECT_OK(file);
  std::vector<std::shared_ptr<const FeatureMatrix>> features;
  for (int i = 0; i < kNumWhisperFeatures; ++i) {
    features.push_back(StoredFeatures(*file, i));
  }
  std::vector<FamilyReference> references;
  for (json::value line : ReadReferenceLines(WhisperPath(model) + name)) {
    const int number = line.at("features").to_number<int>();
    line.as_object()["prompt_tokens"] = json::array{1};
    FamilyReference& reference =
        references.emplace_back(ParseFamilyReference(line));
    reference.request.prompt_tokens.clear();
    reference.request.features = features.at(number);
    reference.request.params.timestamps = TimestampsOf(line);
    // The references' decoders began with their start in front of these.
    const auto& tokens = reference.request.params.decoder_prompt_tokens;
    if (tokens.empty()) continue;
    std::vector<int64_t> begun = {kWhisperStart};
    begun.insert(begun.end(), tokens.begin(), tokens.end());
    reference.request.params.decoder_prompt_tokens = std::move(begun);
  }
  return references;
}

}  // namespace espalier::testing
