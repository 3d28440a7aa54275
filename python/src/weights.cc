#include "python/src/weights.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/field_error.h"
#include "espalier/generator.h"
#include "espalier/update_weights.h"
#include "python/src/errors.h"
#include "python/src/interpreter.h"

namespace espalier::python {
namespace nb = nanobind;

namespace {

using HostArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

std::string DTypeOf(const nb::dlpack::dtype& dtype) {
  using Code = nb::dlpack::dtype_code;
  if (dtype.lanes != 1) return "";
  if (dtype.code == uint8_t(Code::Bfloat) && dtype.bits == 16) return "BF16";
  if (dtype.code != uint8_t(Code::Float)) return "";
  return dtype.bits == 32 ? "F32" : dtype.bits == 16 ? "F16" : "";
}

RunningRequests RunningOf(const std::string& running) {
  if (running == "wait") return RunningRequests::kWait;
  if (running == "abort") return RunningRequests::kAbort;
  if (running == "keep") return RunningRequests::kKeep;
  Raise(InvalidField("`running` must be wait, abort or keep",
                     Got("\"", running, "\"")));
}

// The result borrows from `array`.
NamedTensor TensorOf(std::string name, const HostArray& array) {
  NamedTensor named;
  named.tensor.dtype = DTypeOf(array.dtype());
  if (named.tensor.dtype.empty()) {
    Raise(InvalidField("`weights`: tensor ", name,
                       " must be float32, float16 or bfloat16, got another ",
                       "type of ", array.dtype().bits, " bits"));
  }
  for (size_t i = 0; i < array.ndim(); ++i) {
    named.tensor.shape.push_back(array.shape(i));
  }
  named.tensor.data =
      std::span(static_cast<const std::byte*>(array.data()), array.nbytes());
  named.name = std::move(name);
  return named;
}

}  // namespace

int64_t UpdateWeights(const Engine& engine, const nb::list& tensors,
                      const std::string& directory,
                      std::optional<int64_t> version,
                      const std::string& running, double timeout) {
  const std::shared_ptr<Generator> generator = engine.generator();
  const UpdateOptions options = {RunningOf(running), version};
  WeightUpdate update;
  update.directory = directory;
  std::vector<HostArray> arrays;  // own what `update` reads
  for (const nb::handle pair : tensors) {
    std::string name = nb::cast<std::string>(pair[0]);
    HostArray array;
    if (!nb::try_cast(pair[1], array)) {
      Raise(InvalidField(
          "`weights`: tensor ", name, " must be an array in host memory",
          Got(nb::cast<std::string>(nb::repr(nb::type_name(pair[1].type()))))));
    }
    update.tensors.push_back(TensorOf(std::move(name), array));
    arrays.push_back(std::move(array));
  }
  std::stop_source stop;
  const CallOptions call = CallOf(timeout, stop.get_token());
  std::promise<absl::StatusOr<int64_t>> promise;
  std::future<absl::StatusOr<int64_t>> updated = promise.get_future();
  std::optional<std::thread> worker;
  try {
    worker.emplace([&] {
      promise.set_value(generator->UpdateWeights(update, options, call));
    });
  } catch (const std::system_error& error) {
    Raise(absl::ResourceExhaustedError(error.what()));
  }
  const auto join = [&] { RunWithoutGil([&] { worker->join(); }); };
  try {
    WaitInterruptibly(
        [&] {
          constexpr auto kShortly = std::chrono::milliseconds(100);
          return updated.wait_for(kShortly) == std::future_status::ready;
        },
        [&] { stop.request_stop(); }, [] {});
  } catch (...) {
    join();
    throw;
  }
  join();
  return ValueOrRaise(updated.get());
}

}  // namespace espalier::python
