#include "trainer/parallel/flat_layout.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace tandem::parallel {

namespace {

constexpr size_t kAlignment = 64;  // bytes

size_t RoundedUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t DefaultBucketBytes(const std::vector<Parameter*>& parameters) {
  const bool on_device =
      std::any_of(parameters.begin(), parameters.end(), [](Parameter* parameter) {
        const Tensor& value = parameter->variable.value();
        return value.defined() && value.device().is_cuda();
      });
  return on_device ? 25 << 20 : 1 << 20;
}

}  // namespace

FlatLayout LayOut(const std::vector<Parameter*>& parameters, const FlatLayoutOptions& options) {
  // One bucket is open for each record. A bucket completes with its last member, so buckets are
  // ordered by the places of their last members.
  struct Filled {
    FlatBucket bucket;
    size_t limit = 0;
    std::ptrdiff_t last = 0;
  };
  std::vector<Filled> filled;
  const size_t bucket_bytes =
      options.bucket_bytes != 0 ? options.bucket_bytes : DefaultBucketBytes(parameters);
  for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
    Parameter* const parameter = *it;
    auto open = std::find_if(filled.begin(), filled.end(), [&](const Filled& f) {
      const bool fits =
          options.by_block ? f.bucket.block == parameter->block : f.bucket.num_bytes < f.limit;
      return f.bucket.record == parameter->record && fits;
    });
    if (open == filled.end()) {
      const size_t limit = filled.empty() ? options.first_bucket_bytes : bucket_bytes;
      open = filled.insert(open, {{parameter->record, parameter->block, {}, 0}, limit, 0});
    }
    FlatBucket& bucket = open->bucket;
    const auto bytes =
        static_cast<size_t>(parameter->num_elements()) * SizeOf(parameter->variable.dtype());
    bucket.members.push_back({parameter, bucket.num_bytes});
    bucket.num_bytes += RoundedUp(bytes, kAlignment);
    open->last = it - parameters.rbegin();
  }
  std::sort(filled.begin(), filled.end(),
            [](const Filled& a, const Filled& b) { return a.last < b.last; });
  FlatLayout layout;
  for (Filled& f : filled) {
    f.bucket.num_bytes = RoundedUp(f.bucket.num_bytes, options.unit_bytes);
    layout.push_back(std::move(f.bucket));
  }
  return layout;
}

std::vector<FlatPiece> PiecesOfPart(const FlatBucket& bucket, int part, int num_parts) {
  std::vector<FlatPiece> pieces;
  const auto bytes = static_cast<int64_t>(bucket.num_bytes) / num_parts, part_begin = part * bytes;
  for (const FlatMember& member : bucket.members) {
    const auto element = static_cast<int64_t>(SizeOf(member.parameter->variable.dtype())),
               offset = static_cast<int64_t>(member.offset);
    const int64_t begin = std::max<int64_t>(0, (part_begin - offset) / element),
                  end = std::min(member.parameter->num_elements(),
                                 (part_begin + bytes - offset) / element);
    if (begin >= end) continue;
    pieces.push_back({member.parameter, begin, end - begin,
                      static_cast<size_t>(offset + begin * element - part_begin)});
  }
  return pieces;
}

std::vector<optim::ElementRange> RangesOfPart(const FlatLayout& layout,
                                              const std::vector<Parameter*>& parameters, int part,
                                              int num_parts) {
  std::map<const Parameter*, optim::ElementRange> found;
  for (const FlatBucket& bucket : layout) {
    for (const FlatPiece& piece : PiecesOfPart(bucket, part, num_parts))
      found[piece.parameter] = {piece.parameter, piece.begin, piece.count};
  }
  std::vector<optim::ElementRange> ranges;
  for (Parameter* const parameter : parameters) {
    if (const auto range = found.find(parameter); range != found.end())
      ranges.push_back(range->second);
  }
  return ranges;
}

}  // namespace tandem::parallel
