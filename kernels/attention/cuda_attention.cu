// Host side of attention: checks, and the choice of the kernel.
#include <cmath>

#include "kernels/attention/cuda_attention.h"
#include "kernels/attention/cuda_attention_launch.cuh"
#include "kernels/attention/cuda_attention_work.h"

namespace espalier {
namespace cuda_attention {
namespace {

absl::Status CheckShapes(const CudaAttentionInputs& inputs,
                         const CudaAttentionShape& shape,
                         const CudaKvCache& cache, int layer, int q_stride) {
  if (shape.num_kv_heads < 1 || shape.num_heads < 1 ||
      shape.num_heads % shape.num_kv_heads != 0) {
    return InvalidArgument(shape.num_heads, " heads cannot share ",
                           shape.num_kv_heads, " key/value heads");
  }
  if (shape.head_dim < 8 || shape.head_dim % 8 != 0 || shape.head_dim > 256) {
    return InvalidArgument("head_dim must be a multiple of 8 up to 256, got ",
                           shape.head_dim);
  }
  if (cache.dtype != shape.dtype || cache.page_size != shape.page_size ||
      cache.num_kv_heads != shape.num_kv_heads ||
      cache.head_dim != shape.head_dim || shape.page_size < 1) {
    return InvalidArgument("the cache is of another shape");
  }
  if (shape.window < 0) {
    return InvalidArgument("window must not be negative, got ", shape.window);
  }
  if (!(shape.scale >= 0) || !(shape.soft_cap >= 0)) {
    return InvalidArgument("scale and soft_cap must not be negative, got ",
                           shape.scale, " and ", shape.soft_cap);
  }
  if (shape.biases != nullptr &&
      (!shape.without_tensor_cores || shape.max_distance < 0)) {
    return InvalidArgument(
        "biases up to a distance of ", shape.max_distance,
        shape.without_tensor_cores ? "" : " in a kernel that has none");
  }
  if (layer < 0 || layer >= cache.num_layers) {
    return InvalidArgument("layer ", layer, " of ", cache.num_layers);
  }
  if (q_stride < shape.num_heads * shape.head_dim || q_stride % 8 != 0) {
    return InvalidArgument("q_stride must be a multiple of 8 of at least ",
                           shape.num_heads * shape.head_dim, ", got ",
                           q_stride);
  }
  // Required by the division by page_size (cuda_attention_parts.cuh).
  if (int64_t{inputs.table_stride} * shape.page_size * shape.page_size >=
      int64_t{1} << 32) {
    return InvalidArgument("pages of ", shape.page_size,
                           " tokens are too large for sequences of ",
                           inputs.table_stride, " pages");
  }
  if (inputs.max_items < 0 || inputs.max_queries < 0 ||
      inputs.max_partials < 0) {
    return InvalidArgument("bounds must not be negative");
  }
  return absl::OkStatus();
}

Params MakeParams(const CudaAttentionInputs& inputs,
                  const CudaAttentionShape& shape, const CudaKvCache& cache,
                  int layer, void* scratch) {
  Params params;
  params.inputs = inputs;
  params.num_heads = shape.num_heads;
  params.num_kv_heads = shape.num_kv_heads;
  params.group = HeadsPerKvHead(shape);
  params.head_dim = shape.head_dim;
  params.page_size = shape.page_size;
  params.by_kv_heads = FastDivmod(shape.num_kv_heads);
  params.by_group = FastDivmod(params.group);
  params.by_page_size = FastDivmod(shape.page_size);
  params.head_stride = cache.head_stride();
  params.values_offset = cache.values_offset();
  params.page_stride = cache.page_stride();
  params.cache = static_cast<const char*>(cache.data) +
                 layer * cache.layer_stride() * NumBytes(cache.dtype);
  constexpr double kLog2E = 1.4426950408889634;
  const double default_scale = std::sqrt(static_cast<double>(shape.head_dim));
  params.score_scale = static_cast<float>(
      shape.scale > 0 ? kLog2E * shape.scale : kLog2E / default_scale);
  if (shape.soft_cap > 0) {
    const double scale = shape.scale > 0 ? shape.scale : 1 / default_scale;
    params.score_scale = static_cast<float>(scale / shape.soft_cap);
    params.soft_cap = static_cast<float>(kLog2E * shape.soft_cap);
  }
  params.window = shape.window;
  params.biases = shape.biases;
  params.bias_scale =
      shape.soft_cap > 0 ? 1 / shape.soft_cap : static_cast<float>(kLog2E);
  params.max_distance = shape.max_distance;
  if (inputs.bias_positions == nullptr) {
    params.inputs.bias_positions = inputs.positions;
  }
  params.partials = static_cast<float*>(scratch);
  return params;
}

}  // namespace
}  // namespace cuda_attention

size_t CudaAttentionScratchBytes(const CudaAttentionInputs& inputs,
                                 const CudaAttentionShape& shape) {
  return sizeof(float) * inputs.max_partials * shape.num_heads *
         (shape.head_dim + 4);
}

absl::Status PrepareCudaAttention(const CudaAttentionShape& shape,
                                  const CudaDevice& device) {
  return AttentionUsesTensorCores(shape)
             ? cuda_attention::PrepareTensorCores(shape.dtype, shape.head_dim,
                                                  HasAttentionOptions(shape),
                                                  device)
             : cuda_attention::PrepareSimt(shape.dtype, device);
}

absl::Status CudaAttention(const CudaAttentionInputs& inputs,
                           const CudaAttentionShape& shape, const void* q,
                           int q_stride, const CudaKvCache& cache, int layer,
                           void* out, void* scratch, const CudaDevice& device,
                           cudaStream_t stream) {
  RETURN_IF_ERROR(
      cuda_attention::CheckShapes(inputs, shape, cache, layer, q_stride));
  if (inputs.max_items == 0) return absl::OkStatus();
  cuda_attention::Params params =
      cuda_attention::MakeParams(inputs, shape, cache, layer, scratch);
  params.q = q;
  params.q_stride = q_stride;
  params.out = out;
  RETURN_IF_ERROR(
      AttentionUsesTensorCores(shape)
          ? cuda_attention::LaunchTensorCores(shape.dtype, params, device,
                                              stream)
          : cuda_attention::LaunchSimt(shape.dtype, params, device, stream));
  if (inputs.max_partials == 0) return absl::OkStatus();
  return cuda_attention::LaunchMerge(shape.dtype, params, device, stream);
}

}  // namespace espalier
