#include "ps/wire/bags.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace tandem::ps {

absl::Status CheckBags(const Bags& bags) {
  bool rising = !bags.offsets.empty() && bags.offsets.front() == 0 &&
                bags.offsets.back() == bags.ids.size() &&
                bags.offsets.size() <= std::numeric_limits<uint32_t>::max();
  for (size_t bag = 0; rising && bag < bags.size(); ++bag)
    rising = bags.offsets[bag] <= bags.offsets[bag + 1];
  if (!rising) {
    return absl::InvalidArgumentError(absl::StrCat("table ", bags.table,
                                                   ": offsets of bags do not rise from 0 to ",
                                                   bags.ids.size(), ", the number of ids"));
  }
  if (std::find(bags.ids.begin(), bags.ids.end(), 0) == bags.ids.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("table ", bags.table, ": id 0 is padding, never a row"));
}

void ScalePooled(const Bags& bags, size_t dim, const float* from, float* to) {
  for (size_t bag = 0; bag < bags.size(); ++bag) {
    const auto factor =
        static_cast<float>(PoolingFactor(bags.pooling, bags.offsets[bag + 1] - bags.offsets[bag]));
    for (size_t i = bag * dim; i < (bag + 1) * dim; ++i) to[i] = factor * from[i];
  }
}

}  // namespace tandem::ps
