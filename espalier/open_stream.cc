#include "espalier/open_stream.h"

#include <new>
#include <utility>
#include <variant>

#include "base/status.h"
#include "batcher/engine.h"
#include "espalier/run_prepared.h"

namespace espalier {

OpenStream::OpenStream(std::shared_ptr<Call> call, OpenRequest request,
                       ResultStream stream)
    : call_(std::move(call)),
      request_(std::move(request)),
      stream_(std::move(stream)) {}

absl::StatusOr<std::unique_ptr<OpenStream>> OpenStream::Open(
    const std::shared_ptr<GeneratorCore>& core, GenerationRequest from,
    const CallOptions& options, const StreamOptions& stream_options) try {
  const GeneratorCore::Deadline deadline = DeadlineOf(options.timeout);
  ASSIGN_OR_RETURN(OpenRequest request, espalier::Open(core, std::move(from)));
  std::shared_ptr<Call> call = Call::Make(core, options, deadline);
  absl::StatusOr<ResultStream> stream = call->Await<ResultStream>([&] {
    return StreamPrepared(core->engine(), std::move(request.prepared.request),
                          stream_options);
  });
  if (!stream.ok()) return request.prepared.finish(stream.status()).status();
  return std::unique_ptr<OpenStream>(
      new OpenStream(std::move(call), std::move(request), *std::move(stream)));
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

absl::StatusOr<OpenStream::Event> OpenStream::Next() try {
  return call_->Await<Event>([&] { return stream_.Next(); });
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

absl::StatusOr<Generation> OpenStream::Read(
    const Generator::EventFunction& on_event) {
  while (true) {
    absl::StatusOr<Event> event = Next();
    if (!event.ok()) return request_.prepared.finish(event.status());
    if (!event->has_value()) return Internal("the stream has no result");
    StreamEvent& told = **event;
    if (Result* const result = std::get_if<Result>(&told)) {
      return request_.prepared.finish(std::move(*result));
    }
    if (!on_event(told)) return StoppedByCaller();
  }
}

}  // namespace espalier
