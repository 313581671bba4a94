// The gradients of one table that a client holds until the step's commit, added up per id in order
// of arrival.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "ps/wire/row_index.h"

namespace tandem::ps {

class StepGradients {
 public:
  explicit StepGradients(size_t dim) : dim_(dim) {}

  const std::vector<uint64_t>& ids() const { return ids_; }
  // The sum [dim] of the gradients of ids()[i].
  const float* sum(size_t i) const { return sums_.data() + i * dim_; }

  // REQUIRES: id != 0.
  void Add(uint64_t id, const float* gradient) {
    const auto [place, is_new] = index_.FindOrInsert(id, ids_.size());
    if (is_new) {
      ids_.push_back(id);
      sums_.insert(sums_.end(), gradient, gradient + dim_);
      return;
    }
    for (size_t i = 0; i < dim_; ++i) sums_[place * dim_ + i] += gradient[i];
  }
  void Clear() {
    index_.Clear();
    ids_.clear();
    sums_.clear();
  }

 private:
  const size_t dim_;
  RowIndex index_;
  std::vector<uint64_t> ids_;  // in order of first arrival
  std::vector<float> sums_;
};

}  // namespace tandem::ps
