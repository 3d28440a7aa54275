#include "tests/model/transformer_reference.h"

#include <cmath>
#include <string>

#include "base/status.h"

namespace espalier::testing {
namespace {

using Vector = std::vector<double>;

class Reference {
 public:
  explicit Reference(const TinyModel& model) : model_(model) {}

  std::vector<Vector> Run(const std::vector<TokenId>& tokens) const {
    std::vector<Vector> xs;
    for (const TokenId token : tokens) {
      const auto& values = Tensor("model.embed_tokens").values;
      const auto begin = values.begin() + token * Int("hidden_size");
      xs.emplace_back(begin, begin + Int("hidden_size"));
    }
    for (int i = 0; i < Int("num_hidden_layers"); ++i) {
      RunLayer(Concat("model.layers.", i, "."), xs);
    }
    const bool tied = model_.config.at("tie_word_embeddings").as_bool();
    for (Vector& x : xs) {
      x = Multiply(tied ? "model.embed_tokens" : "lm_head",
                   Norm("model.norm", x));
    }
    return xs;
  }

 private:
  int Int(const char* key) const {
    return model_.config.at(key).to_number<int>();
  }
  const TinyTensor& Tensor(const std::string& name) const {
    return model_.tensors.at(name + ".weight");
  }

  Vector Multiply(const std::string& name, const Vector& x) const {
    const TinyTensor& w = Tensor(name);
    Vector y(w.shape[0], 0.0);
    for (size_t i = 0; i < y.size(); ++i) {
      for (size_t k = 0; k < x.size(); ++k) {
        y[i] += x[k] * w.values[i * x.size() + k];
      }
    }
    return y;
  }

  Vector Norm(const std::string& name, Vector x) const {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double eps = model_.config.at("rms_norm_eps").as_double();
    const double rms = std::sqrt(sum / x.size() + eps);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = x[i] / rms * Tensor(name).values[i];
    }
    return x;
  }

  // Rotates one head of a token at `position`.
  void Rotate(double* head, int position) const {
    const int half = Int("head_dim") / 2;
    const double theta = model_.config.at("rope_theta").as_double();
    for (int i = 0; i < half; ++i) {
      const double angle = position * std::pow(theta, -double(i) / half);
      const double a = head[i], b = head[i + half];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  void RotateAll(Vector& heads, int position) const {
    for (size_t i = 0; i < heads.size(); i += Int("head_dim")) {
      Rotate(&heads[i], position);
    }
  }

  // Attention of the last of `ks.size()` positions.
  Vector Attend(const Vector& q, const std::vector<Vector>& ks,
                const std::vector<Vector>& vs) const {
    const int dim = Int("head_dim");
    const int group = Int("num_attention_heads") / Int("num_key_value_heads");
    Vector out(q.size(), 0.0);
    for (int head = 0; head < Int("num_attention_heads"); ++head) {
      const int q_at = head * dim, kv_at = head / group * dim;
      Vector weights;
      double sum = 0;
      for (const Vector& k : ks) {
        double score = 0;
        for (int i = 0; i < dim; ++i) score += q[q_at + i] * k[kv_at + i];
        weights.push_back(std::exp(score / std::sqrt(double(dim))));
        sum += weights.back();
      }
      for (size_t p = 0; p < vs.size(); ++p) {
        for (int i = 0; i < dim; ++i) {
          out[q_at + i] += weights[p] / sum * vs[p][kv_at + i];
        }
      }
    }
    return out;
  }

  void RunLayer(const std::string& layer, std::vector<Vector>& xs) const {
    std::vector<Vector> ks, vs;
    for (size_t position = 0; position < xs.size(); ++position) {
      const Vector h = Norm(layer + "input_layernorm", xs[position]);
      Vector q = Multiply(layer + "self_attn.q_proj", h);
      ks.push_back(Multiply(layer + "self_attn.k_proj", h));
      vs.push_back(Multiply(layer + "self_attn.v_proj", h));
      RotateAll(q, position);
      RotateAll(ks.back(), position);
      Add(Multiply(layer + "self_attn.o_proj", Attend(q, ks, vs)),
          xs[position]);
    }
    for (Vector& x : xs) {
      const Vector h = Norm(layer + "post_attention_layernorm", x);
      Vector gate = Multiply(layer + "mlp.gate_proj", h);
      const Vector up = Multiply(layer + "mlp.up_proj", h);
      for (size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      }
      Add(Multiply(layer + "mlp.down_proj", gate), x);
    }
  }

  static void Add(const Vector& y, Vector& x) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const TinyModel& model_;
};

}  // namespace

std::vector<std::vector<double>> ReferenceLogits(
    const TinyModel& model, const std::vector<TokenId>& tokens) {
  return Reference(model).Run(tokens);
}

}  // namespace espalier::testing
