// Feeder: runs sequences through a model by hand-made plans, any rows at a
// time, and keeps each sequence's tokens and pages.
//
//   Feeder feeder(model.get());
//   const int a = feeder.Add();
//   feeder.Step({{a, {1, 4, 7}}});  // logits after each of the 3 tokens
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "exec_request/model.h"

namespace espalier::testing {

// One row of logits a token.
using LogitsRows = std::vector<std::vector<float>>;

class Feeder {
 public:
  explicit Feeder(Model* model);

  // A new, empty sequence. With an encoder its source is `source`, which is
  // read with its first row.
  int Add(std::vector<TokenId> source = {});
  // As Add, with any source; null: none.
  int AddInput(std::shared_ptr<const EncoderInput> source);

  struct Row {
    int sequence = 0;
    std::vector<TokenId> tokens;
    int num_logits = -1;  // -1: one for each token
  };
  // Runs one plan with these rows; their logits, by row.
  std::vector<LogitsRows> Step(const std::vector<Row>& rows);

  // A new sequence with the tokens of `parent`: full pages are shared, a
  // partly filled one is copied at the next step.
  int Fork(int parent);

 private:
  struct Sequence {
    int num_tokens = 0;
    std::vector<PageId> pages;
    std::shared_ptr<const EncoderInput> source;  // null: none
    // Null until the source is read; forks share them.
    std::shared_ptr<const std::vector<PageId>> source_pages;
  };

  PageId TakePage();
  // Adds the source of the next row, which is read if it was not yet.
  void AddSource(Sequence* sequence, StepPlan* plan);
  std::vector<LogitsRows> Split(const StepPlan& plan,
                                const std::vector<float>& logits) const;

  Model* model_;
  std::vector<PageId> free_pages_;
  std::vector<Sequence> sequences_;
  std::vector<PageCopy> copies_;
};

// Logits after every token of one sequence, fed `chunk` tokens at a time.
LogitsRows FeedAlone(Model* model, const std::vector<TokenId>& tokens,
                     int chunk, const std::vector<TokenId>& source = {});
LogitsRows FeedAlone(Model* model, const std::vector<TokenId>& tokens,
                     int chunk, std::shared_ptr<const EncoderInput> source);

}  // namespace espalier::testing
