// A row's edits and mask, for warps that read the row in tiles: few, and
// anywhere. They are ascending by token, so a warp needs a run of them at a
// time, one per lane.
#pragma once

#include "kernels/constrain/cuda_masked_rows.cuh"
#include "kernels/logits/cuda_row_pieces.cuh"
#include "kernels/sample/cuda_sample_row.cuh"

namespace espalier::cuda_sample {

using cuda_logits::kWarpLoadSize;
using cuda_logits::LanePiece;

// If not `kMasks`, no row has a mask.
template <bool kMasks>
struct EditList : RowMask<kMasks> {
  const TokenEdit* edits = nullptr;
  CudaRowEdits row = {};

  EditList() = default;
  __device__ EditList(const CudaSampleInputs& in, int row_idx)
      : edits(in.edits) {
    if (in.row_edits == nullptr) return;
    row = in.row_edits[row_idx];
    this->SetMask(in.masks, row.mask, in.vocab_size);
  }
  // True if tokens are banned that have no edit.
  __device__ bool restricts() const {
    return row.is_allow_list || this->has_mask();
  }
  __device__ bool any() const { return row.end > row.begin || restricts(); }

  // One thread: returns a token's score after one edit.
  __device__ float Edited(const TokenEdit& edit, float score) const {
    return edit.banned ? MinusInf()
                       : EditedScore(score, edit, row.repetition_penalty);
  }

  // One thread: returns a token's score after the row's edits.
  __device__ float Edited(int token, float score) const {
    if (this->IsMasked(token)) return MinusInf();
    int begin = row.begin;
    int end = row.end;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (edits[middle].token < token) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    if (begin == row.end || edits[begin].token != token) {
      return row.is_allow_list ? MinusInf() : score;
    }
    return Edited(edits[begin], score);
  }
};

// A warp's logits of up to two pieces, in the order of tokens, so that lanes
// can edit any of them: registers of another lane cannot be indexed by token.
template <int kPieces>
struct WarpLogits {
  alignas(16) float logits[kPieces * kWarpLoadSize];
  unsigned edited[kWarpSize];  // per lane, one bit per token

  // Return the lane of the token at a place, and its bit in that lane.
  template <typename T>
  __device__ static int LaneOf(int place) {
    return place / LanePiece<T>::kPerLoad % kWarpSize;
  }
  template <typename T>
  __device__ static int BitOf(int place) {
    constexpr int kPerLoad = LanePiece<T>::kPerLoad;
    return place / (kPerLoad * kWarpSize) * kPerLoad + place % kPerLoad;
  }

  // Store all lanes' logits, or load them.
  template <typename T>
  __device__ void Put(const float (&x)[16 * kPieces]) {
#pragma unroll
    for (int i = 0; i < 16 * kPieces; i += 4) {
      FourAt<T>(i) = {x[i], x[i + 1], x[i + 2], x[i + 3]};
    }
  }
  template <typename T>
  __device__ void Take(float (&x)[16 * kPieces]) {
#pragma unroll
    for (int i = 0; i < 16 * kPieces; i += 4) {
      const float4 four = FourAt<T>(i);
      x[i] = four.x;
      x[i + 1] = four.y;
      x[i + 2] = four.z;
      x[i + 3] = four.w;
    }
  }

 private:
  template <typename T>
  __device__ float4& FourAt(int i) {
    const int at = cuda_logits::PieceToken<T>(i / 16, i % 16);
    return *reinterpret_cast<float4*>(logits + at);
  }
};

// A run of a row's edits, one per lane, that a warp applies in order.
template <bool kMasks>
class EditWindow {
 public:
  EditWindow() = default;
  // Begins at edit `first`.
  __device__ EditWindow(const EditList<kMasks>& list, int first) : list_(list) {
    Load(first);
    next_ = first;
  }

  // Begins at the first edit of `token` or a later one, found in few dependent
  // loads.
  __device__ static EditWindow At(const EditList<kMasks>& list, int token) {
    int begin = list.row.begin;
    int end = list.row.end;
    // A run of as many edits as lanes is too long: all may be of lower tokens.
    while (end - begin >= kWarpSize) {
      const int step = (end - begin + kWarpSize - 1) / kWarpSize;
      const int probe = begin + Lane() * step;
      const bool before = probe < end && list.edits[probe].token < token;
      const int count = __popc(__ballot_sync(kAllLanes, before));
      if (count == 0) break;
      end = min(end, begin + count * step);
      begin += (count - 1) * step + 1;
    }
    EditWindow window(list, begin);
    window.next_ += __popc(__ballot_sync(kAllLanes, window.token_ < token));
    return window;
  }

  // Returns the index of the next edit.
  __device__ int next() const { return next_; }

  // True if edits not yet passed change tokens below `end`.
  __device__ bool Changes(int end) const {
    return list_.restricts() || Has(end);
  }

  // Advances past the edits of tokens below `end`.
  __device__ void SkipTo(int end) {
    while (Pass(__ballot_sync(kAllLanes, IsNext() && token_ < end))) {
    }
  }

  // Edits the lanes' values, whose tokens are token_of(i), up to the last edit
  // of a token below `end`. Fastest for one or two edits at a time.
  template <int kSize, typename TokenOf>
  __device__ void Apply(int end, const TokenOf& token_of,
                        float (&values)[kSize]) {
    unsigned edited = 0;
    unsigned wanted;
    do {
      wanted = __ballot_sync(kAllLanes, IsNext() && token_ < end);
#pragma unroll 1
      for (unsigned left = wanted; left != 0; left &= left - 1) {
        ApplyOne(list_.edits[base_ + __ffs(left) - 1], token_of, values,
                 edited);
      }
    } while (Pass(wanted));
    if (list_.row.is_allow_list) KeepOnly(edited, values);
    if (!list_.has_mask()) return;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (list_.IsMasked(token_of(i))) values[i] = MinusInf();
    }
  }

  // Edits the pieces that begin with a token, all lanes at once. The window
  // must be at their first edit.
  template <typename T, int kPieces>
  __device__ void ApplyToPieces(int begin, WarpLogits<kPieces>& shared,
                                float (&values)[16 * kPieces]) {
    const int end = begin + kPieces * kWarpLoadSize;
    if (list_.row.is_allow_list || Has(end)) {
      ApplyList<T>(begin, end, shared, values);
    }
    if (list_.has_mask()) KeepMasked<T>(begin, values);
  }

 private:
  // True if this lane's edit has not been passed.
  __device__ bool IsNext() const { return base_ + Lane() >= next_; }
  __device__ bool Has(int end) const {
    return __any_sync(kAllLanes, IsNext() && token_ < end);
  }
  __device__ void Load(int base) {
    base_ = base;
    const int own = base + Lane();
    token_ = own < list_.row.end ? list_.edits[own].token : 0x7FFFFFFF;
  }

  // Advances past these lanes' edits. Returns true if a new window was loaded,
  // which may hold more of them.
  __device__ bool Pass(unsigned lanes) {
    next_ += __popc(lanes);
    if (next_ < base_ + kWarpSize || next_ >= list_.row.end) return false;
    Load(next_);
    return true;
  }

  template <int kSize, typename TokenOf>
  __device__ void ApplyOne(const TokenEdit& edit, const TokenOf& token_of,
                           float (&values)[kSize], unsigned& edited) const {
    float value = 0;
    unsigned at = 0;
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (token_of(i) != edit.token) continue;
      value = values[i];
      at = 1u << i;
    }
    if (at == 0) return;
    value = list_.Edited(edit, value);
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if (at == 1u << i) values[i] = value;
    }
    edited |= at;
  }

  template <int kSize>
  __device__ static void KeepOnly(unsigned edited, float (&values)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) {
      if ((edited >> i & 1) == 0) values[i] = MinusInf();
    }
  }

  // ApplyToPieces without the mask.
  template <typename T, int kPieces>
  __device__ void ApplyList(int begin, int end, WarpLogits<kPieces>& shared,
                            float (&values)[16 * kPieces]) {
    using Shared = WarpLogits<kPieces>;
    const bool is_allow_list = list_.row.is_allow_list;
    __syncwarp();  // earlier values have been read
    shared.template Put<T>(values);
    shared.edited[Lane()] = 0;
    __syncwarp();
    unsigned wanted;
    do {
      const bool mine = IsNext() && token_ < end;
      wanted = __ballot_sync(kAllLanes, mine);
      if (mine) {
        const int place = token_ - begin;
        float& value = shared.logits[place];
        value = list_.Edited(list_.edits[base_ + Lane()], value);
        if (is_allow_list) {
          atomicOr(&shared.edited[Shared::template LaneOf<T>(place)],
                   1u << Shared::template BitOf<T>(place));
        }
      }
    } while (Pass(wanted));
    __syncwarp();
    shared.template Take<T>(values);
    if (is_allow_list) KeepOnly(shared.edited[Lane()], values);
  }

  // Bans the tokens of pieces from `begin` on that are not in the mask.
  template <typename T, int kSize>
  __device__ void KeepMasked(int begin, float (&values)[kSize]) const {
#pragma unroll
    for (int i = 0; i < kSize; i += 4) {  // neighbours, in one word
      const int token = begin + cuda_logits::PieceToken<T>(i / 16, i % 16);
      const uint32_t bits = list_.FourAt(token);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if ((bits >> j & 1) == 0) values[i + j] = MinusInf();
      }
    }
  }

  EditList<kMasks> list_;
  int token_;  // token of this lane's edit
  int base_;   // index of lane 0's edit
  int next_;
};

}  // namespace espalier::cuda_sample
