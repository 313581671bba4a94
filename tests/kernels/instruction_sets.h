// Runs a piece of a test once per copy that Vectorised() may choose on this processor.
// The limit holds on the calling thread only, so kernels under test need a pool of one thread.
#pragma once

#include <gtest/gtest.h>

#include "kernels/cpu/vector/vectorise.h"

namespace tandem::kernels {

// Calls body(set), the baseline first.
template <class Body>
void ForEachInstructionSet(const Body& body) {
  for (InstructionSet set :
       {InstructionSet::BASELINE, InstructionSet::AVX2, InstructionSet::AVX512}) {
    if (set > WidestInstructionSet()) break;
    SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(set));
    InstructionSetLimit limit(set);
    body(set);
  }
}

}  // namespace tandem::kernels
