// The places of many parameters side by side in a few large buckets of memory, so that many arrays
// travel as one. Buckets follow the reverse order of the parameters, in which a backward pass
// completes their gradients. The parameters of a bucket have one gradient record, so one sum serves
// all. Gradients have these places, and under ZeRO weights too.
// Thread rule: values and pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "trainer/optim/dense_state.h"

namespace tandem::parallel {

struct FlatMember {
  Parameter* parameter = nullptr;
  size_t offset = 0;  // bytes from the begin of the bucket; keeps vector loads aligned
};

struct FlatBucket {
  GradientRecord record;  // of all members
  int block = 0;          // Parameter::block of the first member
  std::vector<FlatMember> members;
  size_t num_bytes = 0;  // with the gaps between members and at the end
};

using FlatLayout = std::vector<FlatBucket>;

struct FlatLayoutOptions {
  // 0: 25 MB on a device, where a launch costs as much as some MB. 1 MB on the host, where the last
  // bucket's way over a slow network would be long.
  size_t bucket_bytes = 0;
  size_t first_bucket_bytes = 1 << 20;  // small, so that communication starts early
  size_t unit_bytes = 64;               // a bucket is a multiple of unit_bytes
  // Puts all of a block's parameters with one record in one bucket, and nothing else.
  bool by_block = false;
};

FlatLayout LayOut(const std::vector<Parameter*>& parameters, const FlatLayoutOptions& options);

// Elements of one parameter in a part of a bucket.
struct FlatPiece {
  Parameter* parameter = nullptr;
  int64_t begin = 0, count = 0;  // of the rank's array of the parameter
  size_t offset = 0;             // bytes from the begin of the part
};
// Returns what lies in part `part` of a bucket that is cut into `num_parts` equal parts. A part may
// begin inside a parameter.
// REQUIRES: the bucket's size is a multiple of num_parts elements.
std::vector<FlatPiece> PiecesOfPart(const FlatBucket& bucket, int part, int num_parts);

// Returns the elements in part `part` of each bucket, in the order of `parameters`.
// REQUIRES: the buckets' sizes are multiples of num_parts elements; `parameters` are the layout's.
std::vector<optim::ElementRange> RangesOfPart(const FlatLayout& layout,
                                              const std::vector<Parameter*>& parameters, int part,
                                              int num_parts);

}  // namespace tandem::parallel
