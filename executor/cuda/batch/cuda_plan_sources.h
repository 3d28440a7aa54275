// CudaPlanSources: the encoder part of a plan, separated from the decoder part.
// In the plan of an encoder-decoder model a sequence begins with its source
// (docs/step.md, "Sources"). On the device, decoder tokens have positions and
// pages of their own. The plan is therefore split once, and all later code
// reads a decoder-only plan:
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
#include "base/page_count.h"
#include "exec_request/step_plan.h"
#include "pages/page_table.h"

namespace espalier {

// Returns the positions that a source occupies in a sequence: whole pages.
inline int SourceEnd(int source_length, int page_size) {
  return static_cast<int>(NumPages(source_length, page_size)) * page_size;
}

struct CudaPlanSources {
  // A source that the encoder reads for a row.
  struct Read {
    int row = 0;                                         // in StepPlan::rows
    std::shared_ptr<const std::vector<TokenId>> tokens;  // all of it
    // Positions whose keys and values are written to the row's pages.
    int first_fed = 0;
    int end_fed = 0;
  };

  std::vector<Read> reads;
  // The source pages that row r has are pages[page_indptr[r],
  // page_indptr[r + 1]). Empty: the model has no encoder.
  std::vector<int> page_indptr;
  std::vector<PageId> pages;

  std::span<const PageId> row_pages(size_t row) const {
    if (page_indptr.empty()) return {};
    return std::span(pages).subspan(page_indptr[row],
                                    page_indptr[row + 1] - page_indptr[row]);
  }
};

// Removes the sources from `*plan`: its rows keep only the decoder's tokens,
// positions and pages, possibly none, and source_length. Positions of
// continuations do not change.
// REQUIRES: the plan has the source of each row that feeds source positions.
CudaPlanSources TakeSources(int page_size, StepPlan* plan);

}  // namespace espalier
