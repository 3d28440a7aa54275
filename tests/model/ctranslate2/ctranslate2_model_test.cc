// Directories of CTranslate2 as configs and checkpoints. What the models
// compute is in families_test.cc and family_references_test.cc, as of other
// families.
#include "model/ctranslate2/ctranslate2_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/load_as_float.h"
#include "base/status.h"
#include "model/checkpoint.h"
#include "model/transformer_model.h"
#include "tests/ctranslate2_whisper.h"
#include "tests/family_models.h"
#include "tests/model/ctranslate2/ctranslate2_bytes.h"
#include "tests/model/feeder.h"
#include "tests/scratch_directory.h"
#include "tests/status_matchers.h"
#include "tests/unowned.h"
#include "tests/whisper_directory.h"

namespace espalier {
namespace {

using ::espalier::testing::BytesOf;
using ::espalier::testing::CTranslate2Content;
using ::espalier::testing::CTranslate2Variable;
using ::espalier::testing::CTranslate2Whisper;
using ::espalier::testing::FamilyPath;
using ::espalier::testing::FeedAlone;
using ::espalier::testing::LogitsRows;
using ::espalier::testing::MakePool;
using ::espalier::testing::ScratchDirectory;
using ::espalier::testing::StatusIs;
using ::espalier::testing::WhisperDirectory;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kBadModel = absl::StatusCode::kInvalidArgument;

// A copy of one of the small models, to be changed.
class ChangedModel {
 public:
  explicit ChangedModel(const std::string& name)
      : original_(FamilyPath("ctranslate2_" + name)),
        content_(CTranslate2Content::Of(
            *CTranslate2File::Open(original_ + "/model.bin"))) {
    for (const std::string file : {"config.json", "shared_vocabulary.json"}) {
      std::filesystem::copy_file(original_ + "/" + file, scratch_.path(file));
    }
  }

  CTranslate2Content& content() { return content_; }
  const ScratchDirectory& files() const { return scratch_; }
  const std::string& Write() {
    scratch_.Write("model.bin", content_.Bytes());
    return scratch_.path();
  }

 private:
  const std::string original_;
  const ScratchDirectory scratch_;
  CTranslate2Content content_;
};

TransformerConfig ConvertedConfig(const std::string& name) {
  const auto config = ReadTransformerConfig(FamilyPath("ctranslate2_" + name));
  EXPECT_OK(config);
  return config.ok() ? *config : TransformerConfig();
}

TEST(CTranslate2ModelTest, VariablesSayWhichFamilyItIs) {
  for (const auto& [name, family] :
       {std::pair("marian", "Marian"), std::pair("bart", "BART"),
        std::pair("mbart", "mBART"), std::pair("m2m_100", "M2M100"),
        std::pair("pegasus", "PEGASUS"), std::pair("t5", "T5"),
        std::pair("umt5", "UMT5")}) {
    EXPECT_EQ(ConvertedConfig(name).family, family) << name;
  }
  // Sinusoids that none of them has.
  ChangedModel other("pegasus");
  CTranslate2Variable& positions =
      other.content().At("decoder/position_encodings/encodings");
  std::swap(positions.bytes[1], positions.bytes[17]);
  ASSERT_OK_AND_ASSIGN(const TransformerConfig config,
                       ReadTransformerConfig(other.Write()));
  EXPECT_EQ(config.family, "Transformer");
}

TEST(CTranslate2ModelTest, TokensAreThoseThatTheVocabularyHas) {
  const TransformerConfig mbart = ConvertedConfig("mbart");
  EXPECT_THAT(mbart.eos_token_ids, ElementsAre(2));
  // It has no decoder_start_token.
  EXPECT_EQ(mbart.encoder->decoder_start_token_id, 4);
  const TransformerConfig marian = ConvertedConfig("marian");
  EXPECT_EQ(marian.vocab_size, 64);
  EXPECT_EQ(marian.encoder->decoder_start_token_id, 63);
  ChangedModel model("bart");
  model.files().Write("config.json", R"({"decoder_start_token": "t9"})");
  ASSERT_OK_AND_ASSIGN(const TransformerConfig changed,
                       ReadTransformerConfig(model.Write()));
  EXPECT_THAT(changed.eos_token_ids, IsEmpty());
  EXPECT_EQ(changed.encoder->decoder_start_token_id, 9);
  model.files().Write("generation_config.json",
                      R"({"decoder_start_token_id": 5, "eos_token_id": [7]})");
  ASSERT_OK_AND_ASSIGN(const TransformerConfig given,
                       ReadTransformerConfig(model.Write()));
  EXPECT_THAT(given.eos_token_ids, ElementsAre(7));
  EXPECT_EQ(given.encoder->decoder_start_token_id, 5);
}

TEST(CTranslate2ModelTest, OldVocabulariesAreLines) {
  ChangedModel model("bart");
  std::filesystem::remove(model.files().path("shared_vocabulary.json"));
  std::string lines;
  for (int i = 0; i < 64; ++i) {
    lines += i == 40 ? "</s>\n" : i == 1 ? "<s>\n" : Concat("t", i, "\n");
  }
  model.files().Write("shared_vocabulary.txt", lines);
  ASSERT_OK_AND_ASSIGN(const TransformerConfig config,
                       ReadTransformerConfig(model.Write()));
  EXPECT_THAT(config.eos_token_ids, ElementsAre(40));
}

TEST(CTranslate2ModelTest, ARowOfZerosThatNothingGeneratesIsAdded) {
  ASSERT_OK_AND_ASSIGN(const Checkpoint checkpoint,
                       Checkpoint::Open(FamilyPath("ctranslate2_marian")));
  ASSERT_OK_AND_ASSIGN(const LocatedTensor embedding,
                       checkpoint.Find("model.shared.weight"));
  EXPECT_THAT(embedding.tensor->shape, ElementsAre(64, 16));
  const auto last = embedding.tensor->data.last(16 * sizeof(float));
  EXPECT_TRUE(std::ranges::all_of(
      last, [](std::byte byte) { return byte == std::byte{0}; }));
  ASSERT_OK_AND_ASSIGN(const LocatedTensor bias,
                       checkpoint.Find("final_logits_bias"));
  EXPECT_THAT(bias.tensor->shape, ElementsAre(1, 64));
  EXPECT_EQ(
      LoadAsFloat(&bias.tensor->data[63 * sizeof(float)], DType::kFloat32),
      -std::numeric_limits<float>::infinity());
}

LogitsRows FedLogits(const std::string& directory,
                     WeightFormat format = WeightFormat::kAsStored) {
  const auto model = TransformerModel::Load(
      directory, {.kv_cache_bytes = 8 << 20, .weights = format}, MakePool(1));
  EXPECT_OK(model);
  if (!model.ok()) return {};
  return FeedAlone(model->get(), {2, 9, 11, 30}, 1000, {5, 6, 7});
}

// Rows whose numbers int8 holds: nothing is lost.
TEST(CTranslate2ModelTest, CodesAreTheWeightsThatTheyStandFor) {
  ChangedModel codes("t5"), numbers("t5");
  const std::string name = "decoder/layer_0/ffn/linear_0/weight";
  CTranslate2Variable& weight = codes.content().At(name);
  std::string code_bytes, number_bytes, scales;
  for (uint32_t row = 0; row < weight.shape[0]; ++row) {
    const float scale = 64.0f + static_cast<float>(row);
    scales += BytesOf(scale);
    for (uint32_t i = 0; i < weight.shape[1]; ++i) {
      const auto code = static_cast<int8_t>((row * 31 + i * 17) % 255 - 127);
      code_bytes += BytesOf(code);
      number_bytes += BytesOf(static_cast<float>(code) / scale);
    }
  }
  numbers.content().At(name).bytes = number_bytes;
  weight.type = 1;
  weight.bytes = code_bytes;
  const uint32_t num_rows = weight.shape[0];
  codes.content().variables.push_back({name + "_scale", {num_rows}, 0, scales});
  const LogitsRows expected = FedLogits(numbers.Write());
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(FedLogits(codes.Write()), expected);
  // Quantised again for products.
  EXPECT_EQ(FedLogits(codes.Write(), WeightFormat::kInt8),
            FedLogits(numbers.Write(), WeightFormat::kInt8));
}

// Stores the source's embeddings, in place of an alias of the target's.
void CopyEmbedding(CTranslate2Content* file) {
  for (const std::string part : {"", "_scale"}) {
    const std::string from = "decoder/embeddings/weight" + part;
    const auto found =
        std::ranges::find(file->variables, from, &CTranslate2Variable::name);
    if (found == file->variables.end()) continue;
    CTranslate2Variable copy = *found;
    copy.name = "encoder/embeddings_0/weight" + part;
    file->Erase(copy.name);
    file->variables.push_back(copy);
  }
}

TEST(CTranslate2ModelTest, EmbeddingsOfTheSourceMayBeStoredAgain) {
  for (const std::string name : {"marian", "marian_int8"}) {
    ChangedModel model(name);
    CopyEmbedding(&model.content());
    EXPECT_OK(CTranslate2Model::Open(model.Write()).status()) << name;
  }
}

struct WrongCase {
  std::string_view model;
  std::string message;
  std::function<void(CTranslate2Content&)> change;
};

TEST(CTranslate2ModelTest, WrongModelsAreRefusedByVariableAndValue) {
  const std::string ffn = "decoder/layer_1/ffn/linear_0/weight";
  const std::string other_embedding =
      "variable encoder/embeddings_0/weight must be decoder/embeddings/weight";
  const auto set = [](std::string name, auto value) {
    return
        [=](CTranslate2Content& file) { file.At(name).bytes = BytesOf(value); };
  };
  const auto erase = [](std::string name) {
    return [=](CTranslate2Content& file) { file.Erase(name); };
  };
  const auto add = [](CTranslate2Variable variable) {
    return
        [=](CTranslate2Content& file) { file.variables.push_back(variable); };
  };
  const std::vector<WrongCase> cases = {
      {"bart", "is a CTranslate2 model of Wav2Vec2Spec, which is not supported",
       [](auto& file) { file.specification = "Wav2Vec2Spec"; }},
      {"bart", "revision of TransformerSpec must be at most 7, got 8",
       [](auto& file) { file.revision = 8; }},
      {"bart", "variable decoder/num_heads is missing",
       erase("decoder/num_heads")},
      {"bart",
       "variable decoder/num_heads must be an integer in [1, 16384], "
       "got 0",
       set("decoder/num_heads", int16_t{0})},
      {"bart", "encoder/num_heads and decoder/num_heads must agree",
       set("decoder/num_heads", int16_t{4})},
      {"bart", "encoder/activation must be an integer in [0, 3], got 4",
       set("encoder/activation", int8_t{4})},
      {"bart", "encoder/scale_embeddings must be 1 or the root of 16, got 3",
       set("encoder/scale_embeddings", 3.0f)},
      {"bart", "variable decoder/alibi 1 is not supported",
       set("decoder/alibi", int8_t{1})},
      {"bart", "variable encoder/multi_query_attention 1 is not supported",
       set("encoder/multi_query_attention", int8_t{1})},
      {"bart", "variable " + ffn + " is missing", erase(ffn)},
      {"bart", "variable " + ffn + " must have shape [20, 16], got [16, 20]",
       [ffn](auto& file) {
         file.At(ffn).shape = {16, 20};
       }},
      {"bart",
       "variable " + ffn +
           " must have dtype F32, F16, BF16 or I8, got "
           "I16",
       [ffn](auto& file) { file.At(ffn).type = 2; }},
      {"bart",
       "variable decoder/layer_1/ffn/layer_norm/beta must have shape "
       "[16], got [2, 8]",
       [](auto& file) {
         file.At("decoder/layer_1/ffn/layer_norm/beta").shape = {2, 8};
       }},
      {"bart",
       "variable decoder/layer_0/self_attention/linear_0/bias is "
       "missing",
       erase("decoder/layer_0/self_attention/linear_0/bias")},
      {"bart", "variable decoder/layer_0/layer_scalar is not supported",
       add({"decoder/layer_0/layer_scalar", {}, 0, BytesOf(1.0f)})},
      {"bart", "variable encoder/embeddings_1/weight is not supported",
       add({"encoder/embeddings_1/weight", {1, 1}, 0, BytesOf(1.0f)})},
      {"bart", "variable encoder/position_encodings/encodings is missing",
       erase("encoder/position_encodings/encodings")},
      {"bart",
       "decoder/layer_0/attention/queries_scale must be missing, got "
       "0.5",
       add({"decoder/layer_0/attention/queries_scale", {}, 0, BytesOf(0.5f)})},
      {"marian_int8", "variable " + ffn + "_scale is missing",
       erase(ffn + "_scale")},
      {"marian_int8",
       "variable " + ffn +
           "_scale must be positive, got 0 of "
           "row 0",
       [ffn](auto& file) {
         std::fill_n(file.At(ffn + "_scale").bytes.begin(), 4, '\0');
       }},
      {"marian", other_embedding,
       [](auto& file) {
         CopyEmbedding(&file);
         file.At("encoder/embeddings_0/weight").bytes[0] ^= 1;
       }},
      {"marian_int8", other_embedding,
       [](auto& file) {
         CopyEmbedding(&file);
         file.At("encoder/embeddings_0/weight_scale").bytes[0] ^= 1;
       }},
      {"marian", other_embedding,
       [](auto& file) {
         CTranslate2Variable& table = file.At("decoder/embeddings/weight");
         table.bytes.resize(table.bytes.size() / 2);
         table.type = 4;
         CopyEmbedding(&file);
         file.At("encoder/embeddings_0/weight").type = 5;
       }},
      {"t5", "decoder/scale_outputs must be 1 or 1 / the root of 16, got 2",
       set("decoder/scale_outputs", 2.0f)},
      {"t5",
       "relative_attention_max_distance must be 12, as that of "
       "encoder/layer_0, got 13",
       set("decoder/layer_1/self_attention/relative_attention_max_distance",
           int32_t{13})},
      {"t5", "is of T5, which has pre_norm 1",
       [](auto& file) {
         file.At("encoder/pre_norm").bytes[0] = 0;
         file.At("decoder/pre_norm").bytes[0] = 0;
       }},
      {"t5", "decoder/layer_0/self_attention/queries_scale must be 1, got none",
       erase("decoder/layer_0/self_attention/queries_scale")},
  };
  for (const WrongCase& wrong : cases) {
    ChangedModel model{std::string(wrong.model)};
    wrong.change(model.content());
    EXPECT_THAT(CTranslate2Model::Open(model.Write()).status(),
                StatusIs(kBadModel, HasSubstr(wrong.message)));
    EXPECT_THAT(
        Checkpoint::Open(model.files().path()).status(),
        StatusIs(kBadModel, HasSubstr(model.files().path("model.bin"))));
  }
}

// Their directories have a vocabulary.json alone.
TEST(CTranslate2ModelTest, OtherSpecificationsAreRefusedBeforeTheirFiles) {
  for (const std::string name : {"Wav2Vec2Spec", "TransformerDecoderSpec"}) {
    ChangedModel model("bart");
    std::filesystem::rename(model.files().path("shared_vocabulary.json"),
                            model.files().path("vocabulary.json"));
    model.files().Write("config.json", R"({"quantization_type": 1})");
    model.content().specification = name;
    EXPECT_THAT(
        CTranslate2Model::Open(model.Write()).status(),
        StatusIs(kBadModel, HasSubstr("is a CTranslate2 model of " + name)));
  }
}

TEST(CTranslate2ModelTest, WrongFilesBesideItAreRefusedByNameAndValue) {
  struct Case {
    std::string file;
    std::string text;
    std::string message;
  };
  const std::vector<Case> cases = {
      {"shared_vocabulary.json", "{}", "must be a list of strings, got {}"},
      {"shared_vocabulary.json", "[\"a\", 1]", "token 1 must be a string"},
      {"shared_vocabulary.json", "[\"a\"]",
       "decoder/embeddings/weight has 64 rows, "},
      {"config.json", R"({"decoder_start_token": "no"})",
       "decoder_start_token: token \"no\" is not in "},
      {"config.json", R"({"eos_token": 3, "bos_token": "<s>"})",
       "eos_token must be a token, got 3"},
      {"config.json", "{}", "decoder_start_token and bos_token are missing"},
      {"config.json", R"({"multi_query_attention": true})",
       "multi_query_attention true is not supported"},
      {"config.json", R"({"quantization_type": 1})",
       "quantization_type 1 is not supported"},
      {"config.json", R"({"layer_norm_epsilon": "x"})", "layer_norm_epsilon"},
  };
  for (const Case& wrong : cases) {
    ChangedModel model("bart");
    model.files().Write(wrong.file, wrong.text);
    EXPECT_THAT(CTranslate2Model::Open(model.Write()).status(),
                StatusIs(kBadModel, HasSubstr(wrong.message)));
  }
  ChangedModel model("bart");
  std::filesystem::remove(model.files().path("shared_vocabulary.json"));
  EXPECT_THAT(CTranslate2Model::Open(model.Write()).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("neither shared_vocabulary.json nor "
                                 "shared_vocabulary.txt")));
  model.files().Write("source_vocabulary.json", "[]");
  EXPECT_THAT(CTranslate2Model::Open(model.Write()).status(),
              StatusIs(kBadModel, HasSubstr("source_vocabulary.json: ")));
}

TEST(CTranslate2ModelTest, WhispersAreThoseOfTransformers) {
  for (const bool is_multilingual : {true, false}) {
    const WhisperDirectory directory({.is_multilingual = is_multilingual});
    ASSERT_OK_AND_ASSIGN(const TransformerConfig expected,
                         ReadTransformerConfig(directory.path()));
    CTranslate2Whisper converted(directory.path());
    ASSERT_OK_AND_ASSIGN(const TransformerConfig config,
                         ReadTransformerConfig(converted.Write()));
    EXPECT_EQ(config.family, expected.family);
    EXPECT_EQ(config.vocab_size, expected.vocab_size);
    EXPECT_EQ(config.max_context, expected.max_context);
    EXPECT_EQ(config.eos_token_ids, expected.eos_token_ids);
    EXPECT_EQ(config.encoder->decoder_start_token_id,
              expected.encoder->decoder_start_token_id);
    EXPECT_EQ(config.encoder->feature_shape()->num_rows,
              expected.encoder->feature_shape()->num_rows);
    EXPECT_EQ(config.encoder->feature_shape()->num_cols,
              expected.encoder->feature_shape()->num_cols);
    EXPECT_TRUE(config.tie_word_embeddings);
  }
}

TEST(CTranslate2ModelTest, WrongWhispersAreRefusedByVariableAndValue) {
  const WhisperDirectory directory;
  const auto expect = [&](const std::string& message, const auto& change) {
    CTranslate2Whisper model(directory.path());
    change(model.content());
    EXPECT_THAT(CTranslate2Model::Open(model.Write()).status(),
                StatusIs(kBadModel, HasSubstr(message)));
  };
  const std::string conv1 = "encoder/conv1/weight";
  const std::string conv2 = "encoder/conv2/weight";
  expect("revision of WhisperSpec must be at most 3, got 4",
         [](auto& file) { file.revision = 4; });
  expect("variable " + conv1 + " is missing",
         [&](auto& file) { file.Erase(conv1); });
  expect("variable " + conv1 + " must have 3 dimensions, got 2",
         [&](auto& file) {
           file.At(conv1).shape = {16, 240};
         });
  expect("variable " + conv1 + " must have shape [16, 60, 3], got [16, 60, 4]",
         [&](auto& file) {
           file.At(conv1).shape = {16, 60, 4};
         });
  expect("variable " + conv2 + " must have shape [16, 16, 3], got [16, 12, 4]",
         [&](auto& file) {
           file.At(conv2).shape = {16, 12, 4};
         });
  expect("variable encoder/conv2/bias is missing",
         [](auto& file) { file.Erase("encoder/conv2/bias"); });
  expect("variable decoder/pre_norm is not that of Whisper",
         [](auto& file) { file.At("decoder/pre_norm").bytes[0] = 0; });
  expect("variable decoder/activation is not that of Whisper",
         [](auto& file) { file.At("decoder/activation").bytes[0] = 0; });
  expect("variable decoder/start_from_zero_embedding is not that of Whisper",
         [](auto& file) {
           file.At("decoder/start_from_zero_embedding").bytes[0] = 1;
         });
  expect("variable decoder/projection/bias is not that of Whisper",
         [](auto& file) {
           file.variables.push_back(
               {"decoder/projection/bias", {1}, 0, BytesOf(0.0f)});
         });
  expect("variable encoder/pre_norm is not supported", [](auto& file) {
    file.variables.push_back({"encoder/pre_norm", {}, 1, BytesOf(int8_t{1})});
  });
  expect("variable encoder/embeddings_0/weight is not supported",
         [](auto& file) {
           file.aliases.emplace_back("encoder/embeddings_0/weight",
                                     "decoder/embeddings/weight");
         });
}

TEST(CTranslate2ModelTest, VocabulariesOfWhispersHaveTheirMarks) {
  const WhisperDirectory directory;
  CTranslate2Whisper model(directory.path());
  const std::string vocabulary = model.Write() + "/vocabulary.json";
  const std::string tokens = *ReadFile(vocabulary, 1 << 20);
  for (const std::string mark : {"<|endoftext|>", "<|startoftranscript|>"}) {
    std::string without = tokens;
    without.replace(without.find(mark), mark.size(), "<|no|>");
    model.files().Write("vocabulary.json", without);
    EXPECT_THAT(CTranslate2Model::Open(model.files().path()).status(),
                StatusIs(kBadModel, HasSubstr("token \"" + mark +
                                              "\" is not in " + vocabulary)));
  }
  // Older ones are lines.
  std::string lines;
  const json::value list = *ParseJson(tokens);
  for (const json::value& token : list.as_array()) {
    lines += Concat(std::string_view(token.as_string()), "\n");
  }
  std::filesystem::remove(vocabulary);
  EXPECT_THAT(
      CTranslate2Model::Open(model.files().path()).status(),
      StatusIs(absl::StatusCode::kNotFound,
               HasSubstr("neither vocabulary.json nor vocabulary.txt")));
  model.files().Write("vocabulary.txt", lines);
  EXPECT_OK(CTranslate2Model::Open(model.files().path()).status());
}

}  // namespace
}  // namespace espalier
