// CudaPlanSources: what a plan says of sources, taken out of it. In a plan a
// sequence of a model with an encoder begins with its source (docs/step.md,
// "Sources"); on the device the decoder's tokens have positions and pages of
// their own, and the source's pages are beside them. So the plan is divided
// once, and whatever reads it then sees a decoder's plan:
//
//   plan      positions  0 .. 10   11   12             13 ..
//                        source    pad  decoder_start  generated
//             pages      [p0][p1][p2]   [p3]
//   decoder   positions                 0              1 ..
//             pages                     [p3]
//   source    pages      [p0][p1][p2]
//
// Thread safety: a plain value.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "exec_request/step_plan.h"
#include "pages/page_table.h"

namespace espalier {

// Positions that a source takes in a sequence: whole pages.
inline int SourceEnd(int source_length, int page_size) {
  return static_cast<int>(NumPages(source_length, page_size)) * page_size;
}

struct CudaPlanSources {
  // A source that the encoder reads for a row.
  struct Read {
    int row = 0;                                         // of the plan
    std::shared_ptr<const std::vector<TokenId>> tokens;  // all of it
    // Positions whose keys and values go to the row's pages.
    int first_fed = 0;
    int end_fed = 0;
  };

  std::vector<Read> reads;
  // Those of row r's source, as far as the row has them, are
  // pages[page_indptr[r], page_indptr[r + 1]). Empty: the model has no encoder.
  std::vector<int> page_indptr;
  std::vector<PageId> pages;

  std::span<const PageId> row_pages(size_t row) const {
    if (page_indptr.empty()) return {};
    return std::span(pages).subspan(page_indptr[row],
                                    page_indptr[row + 1] - page_indptr[row]);
  }
};

// Takes the sources out of `*plan`: tokens, positions and pages of its rows
// become those of the decoder, of which a row may be left with none. What is
// left of a row about its source is source_length. Positions of continuations
// stay as they are.
// REQUIRES: each row that feeds positions of its source has it in the plan.
CudaPlanSources TakeSources(int page_size, StepPlan* plan);

}  // namespace espalier
