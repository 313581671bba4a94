#include "trainer/parallel/flat_layout.h"

#include <algorithm>
#include <map>

namespace tandem::parallel {

namespace {

constexpr size_t kAlignment = 64;  // bytes

size_t RoundedUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

FlatLayout LayOut(const std::vector<Parameter*>& parameters, const FlatLayoutOptions& options) {
  FlatLayout buckets;
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    const size_t limit = buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    if (buckets.empty() || buckets.back().num_bytes >= limit) buckets.emplace_back();
    FlatBucket& bucket = buckets.back();
    const auto bytes = static_cast<size_t>((*it)->num_elements()) * SizeOf((*it)->variable.dtype());
    bucket.members.push_back({*it, bucket.num_bytes});
    bucket.num_bytes += RoundedUp(bytes, kAlignment);
  }
  for (FlatBucket& bucket : buckets)
    bucket.num_bytes = RoundedUp(bucket.num_bytes, options.unit_bytes);
  return buckets;
}

std::vector<optim::ElementRange> RangesOfPart(const FlatLayout& layout,
                                              const std::vector<Parameter*>& parameters, int part,
                                              int num_parts) {
  std::map<const Parameter*, optim::ElementRange> found;
  for (const FlatBucket& bucket : layout) {
    for (const FlatMember& member : bucket.members) {
      const auto element = static_cast<int64_t>(SizeOf(member.parameter->variable.dtype())),
                 bytes = static_cast<int64_t>(bucket.num_bytes) / num_parts,
                 offset = static_cast<int64_t>(member.offset);
      const int64_t begin = std::max<int64_t>(0, (part * bytes - offset) / element),
                    end = std::min(member.parameter->num_elements(),
                                   ((part + 1) * bytes - offset) / element);
      if (begin < end) found[member.parameter] = {member.parameter, begin, end - begin};
    }
  }
  std::vector<optim::ElementRange> ranges;
  for (Parameter* const parameter : parameters) {
    if (const auto range = found.find(parameter); range != found.end())
      ranges.push_back(range->second);
  }
  return ranges;
}

}  // namespace tandem::parallel
