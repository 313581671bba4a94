#include "trainer/data/catalogue.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/machine_memory.h"
#include "kernels/base/utf8.h"

namespace tandem::data {
namespace {

constexpr double kWorthAWord = 64e6;  // bytes
constexpr uint64_t kMostIdsPerItem = 16;

}  // namespace

absl::Status CheckDenseIds(const std::string& path, const Interactions& interactions,
                           double item_bytes) {
  if (static_cast<double>(interactions.num_items) * item_bytes <= kWorthAWord)
    return absl::OkStatus();
  const std::vector<uint64_t>& values = interactions.items.values;
  const absl::flat_hash_set<uint64_t> distinct(values.begin(), values.end());
  if (interactions.num_items / kMostIdsPerItem <= distinct.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(Printable(path), ": the item ids are sparse: the largest is ",
                   interactions.num_items, ", of ", distinct.size(),
                   " different ones; each id up to the largest would have a row: number items 1, "
                   "2, 3 ..., or set data.ids=MAP or data.num_items"));
}

absl::Status CheckCatalogueFits(uint64_t num_items, double item_bytes) {
  const auto memory = static_cast<double>(MachineMemory());
  const double needed = static_cast<double>(num_items) * item_bytes;
  if (needed <= memory) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("data.num_items: a catalogue of %d items takes %.3g GB in an evaluation, and "
                      "this machine has %.3g GB; give a smaller "
                      "data.num_items, or renumber the items",
                      num_items, needed / 1e9, memory / 1e9));
}

}  // namespace tandem::data
