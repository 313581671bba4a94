// The blocks of a model that a pipeline's stage has: Options::blocks of Options::layers in all.
// Thread rule: pure functions.
#pragma once

#include "trainer/autograd/parameter_slice.h"

namespace tandem::models {

template <class Options>
IndexRange BlocksOf(const Options& options) {
  return options.blocks.value_or(IndexRange{0, options.layers});
}
template <class Options>
bool IsFirst(const Options& options) {
  return BlocksOf(options).begin == 0;
}
template <class Options>
bool IsLast(const Options& options) {
  return BlocksOf(options).end == options.layers;
}

}  // namespace tandem::models
