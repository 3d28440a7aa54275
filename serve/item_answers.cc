#include "serve/item_answers.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/json.h"
#include "base/shown_bytes.h"
#include "base/status.h"
#include "base/wording.h"
#include "batcher/engine.h"
#include "constrain/item_catalogues.h"
#include "espalier/generator.h"
#include "request/read_items.h"

namespace espalier::serve::routes {
namespace {

constexpr size_t kMaxCatalogues = 64;
// While a catalogue is built, for each byte of its lines, of which an item has
// four at least, or of its numbers, two at least: the byte, tokens, the keys
// that they are sorted by, and the catalogue.
constexpr int64_t kHeldPerByte = 16;

// Errors: kInvalidArgument naming the catalogue, if it would be one too many.
absl::Status CheckNumber(const ItemCatalogues& catalogues,
                         const std::string& name) {
  if (catalogues.Find(name) != nullptr ||
      catalogues.Names().size() < kMaxCatalogues) {
    return absl::OkStatus();
  }
  return InvalidArgument("there may be ", kMaxCatalogues, " catalogues, and ",
                         ShownInQuotes(name), " would be one more: delete one");
}

// The lines of a catalogue, with what they hold of the server's memory.
struct Lines {
  std::string text;
  HeldMemory::Share share;
};

// A catalogue, with the memory that it holds until the last request that has it
// is over.
struct HeldItems {
  std::shared_ptr<const ItemCatalogue> items;
  HeldMemory::Share share;
};

// Adds to an error of HeldMemory::Take what catalogues hold, if that is not
// given back by itself.
absl::Status NameCatalogues(const ItemCatalogues& catalogues,
                            const absl::Status& error) {
  int64_t num_bytes = 0;
  const auto all = catalogues.All();
  for (const auto& [name, version] : all)
    num_bytes += version.items->num_bytes();
  if (IsPermanent(error) || num_bytes == 0) return error;
  return ResourceExhausted(Message(error), "; ",
                           Pluralize(std::ssize(all), "catalogue"), " ",
                           all.size() == 1 ? "has " : "have ", num_bytes,
                           " of these bytes until they are deleted or "
                           "replaced");
}

// Returns `items` with a share of its size, made of that of its lines.
// Errors: as HeldMemory::Take.
absl::StatusOr<std::shared_ptr<const ItemCatalogue>> Hold(
    std::shared_ptr<const ItemCatalogue> items, HeldMemory::Share share,
    HeldMemory* memory) {
  const int64_t num_bytes = items->num_bytes();
  if (share.num_bytes() < num_bytes) {
    ASSIGN_OR_RETURN(HeldMemory::Share more,
                     memory->Take(num_bytes - share.num_bytes()));
    share.Merge(std::move(more));
  }
  share.ShrinkTo(num_bytes);
  const auto held = std::make_shared<const HeldItems>(
      HeldItems{std::move(items), std::move(share)});
  return std::shared_ptr<const ItemCatalogue>(held, held->items.get());
}

// Errors: as HeldMemory::Take.
boost::asio::awaitable<absl::StatusOr<std::shared_ptr<Lines>>> ReadLines(
    ServerState& server, http::Exchange& exchange) {
  constexpr int64_t kStep = 1 << 20;
  auto lines = std::make_shared<Lines>();
  // At once where the size is known: one that is too large is not read.
  int64_t num_known = 0;
  if (!absl::SimpleAtoi(ToAbsl(exchange.request().Find("content-length")),
                        &num_known)) {
    num_known = 0;
  }
  int64_t num_taken = 0;
  const auto take = [&](int64_t num_bytes) {
    absl::StatusOr<HeldMemory::Share> share = server.memory.Take(
        num_bytes <= INT64_MAX / kHeldPerByte ? kHeldPerByte * num_bytes
                                              : INT64_MAX);
    if (!share.ok()) return share.status();
    lines->share.Merge(*std::move(share));
    num_taken += num_bytes;
    return absl::OkStatus();
  };
  absl::Status taken = take(num_known);
  while (taken.ok()) {
    const std::string piece = co_await exchange.ReadBody();
    if (piece.empty()) co_return lines;
    const int64_t num_bytes = std::ssize(lines->text) + std::ssize(piece);
    if (num_bytes > num_taken) {
      taken = take(std::max(kStep, num_bytes - num_taken));
    }
    if (taken.ok()) lines->text += piece;
  }
  co_return taken;
}

json::object Describe(const std::string& name,
                      const ItemCatalogues::Version& version) {
  const ItemCatalogue& items = *version.items;
  return {{"id", name},
          {"object", "items"},
          {"version", version.number},
          {"num_items", items.num_items()},
          {"max_length", items.max_length()},
          {"num_bytes", items.num_bytes()}};
}

std::string ListOf(const ItemCatalogues& catalogues) {
  json::array list;
  for (const auto& [name, version] : catalogues.All()) {
    list.push_back(Describe(name, version));
  }
  return WriteJson(json::object{{"object", "list"}, {"data", std::move(list)}});
}

std::string Removed(const std::string& name) {
  return WriteJson(
      json::object{{"id", name}, {"object", "items"}, {"deleted", true}});
}

openai::Error NoCatalogue(const std::string& name) {
  return openai::MakeHttpError(
      404, Concat("there is no catalogue ", BytesInQuotes(name)));
}

}  // namespace

RouteWork PutItems(ServerState& server, RouteCall& call) {
  ItemCatalogues& catalogues = server.model.load()->generator.items();
  const std::string name = call.id;
  absl::Status refusal = CheckCatalogueName(name);
  if (refusal.ok()) refusal = CheckNumber(catalogues, name);
  if (!refusal.ok()) {
    co_await Refuse(call, openai::ErrorOf(refusal));
    co_return;
  }
  absl::StatusOr<std::shared_ptr<Lines>> lines =
      co_await ReadLines(server, call.exchange);
  if (!lines.ok()) {
    co_await Refuse(
        call, openai::ErrorOf(NameCatalogues(catalogues, lines.status())));
    co_return;
  }
  const WorkerThread::WorkFor<std::string> build =
      [&server, &catalogues, name,
       lines = *std::move(lines)]() -> absl::StatusOr<std::string> {
    const Generator& generator = server.model.load()->generator;
    ASSIGN_OR_RETURN(std::shared_ptr<const ItemCatalogue> items,
                     ReadItems(lines->text, generator.tokenizer().get(),
                               generator.description().vocab_size,
                               EndIdsByDefault(generator.defaults(),
                                               generator.description()),
                               catalogues.trie_builder()));
    // Again: others may have been added. This thread alone adds them.
    RETURN_IF_ERROR(CheckNumber(catalogues, name));
    absl::StatusOr<std::shared_ptr<const ItemCatalogue>> held =
        Hold(std::move(items), std::move(lines->share), &server.memory);
    if (!held.ok()) return NameCatalogues(catalogues, held.status());
    items = *std::move(held);
    return WriteJson(Describe(name, catalogues.Put(name, std::move(items))));
  };
  absl::StatusOr<std::string> answer =
      co_await server.building.Run<std::string>(build);
  co_await RespondOr(call, std::move(answer));
}

RouteWork ListItems(ServerState& server, RouteCall& call) {
  return RespondJson(call, ListOf(server.model.load()->generator.items()));
}

RouteWork RemoveItems(ServerState& server, RouteCall& call) {
  if (!server.model.load()->generator.items().Remove(call.id)) {
    co_await Refuse(call, NoCatalogue(call.id));
    co_return;
  }
  co_await RespondJson(call, Removed(call.id));
}

}  // namespace espalier::serve::routes
