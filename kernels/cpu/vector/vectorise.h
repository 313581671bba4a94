// Runs a loop compiled for the widest vectors that the processor has: the same source three times (AVX-512, AVX2, baseline),
// chosen at run time. The loop and all it calls are flattened into each copy: a CHECK, or a call that cannot be inlined, belongs on
// rare paths only, for it costs a change of registers. Bits do not depend on the copy: contraction to FMA is off, and sums run over a fixed number of lanes (lanes.h).
// Builds with sanitizers have the baseline only: it is the same source, and three instrumented copies take minutes to compile.
// The copies make a copy of the loop: what it captured is then theirs alone, stays in registers, and no store of the loop can change it.
// They make it themselves: a caller that copies what it has just stored, in wider pieces, waits until all of its stores have gone.
// A loop that takes an argument gets its copy's instruction set as a type, to choose shapes that fit the registers.
#pragma once

#include <type_traits>

#if defined(__x86_64__) && !defined(TANDEM_SANITIZED)
#define TANDEM_VECTOR_COPIES
#endif

namespace tandem::kernels {

// AVX512_BF16 and AMX have no copies here; what rounds to bf16 (bf16_rounding.h) or multiplies it in tiles (bf16_tiles.h) looks at the limit.
// PLAIN_TILES, which no processor has and a limit may name: the same anywhere, in plain loops, for tests of what is around.
enum class InstructionSet { BASELINE, AVX2, AVX512, AVX512_BF16, AMX, PLAIN_TILES };

template <InstructionSet kSet>
using InstructionSetTag = std::integral_constant<InstructionSet, kSet>;

inline InstructionSet WidestInstructionSet() {
#ifdef TANDEM_VECTOR_COPIES
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
    return InstructionSet::AVX512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
    return InstructionSet::AVX2;
  }
#endif
  return InstructionSet::BASELINE;
}

// For tests that compare the copies: while one lives, Vectorised() on its thread (and on no other of the pool) takes nothing
// wider than `set`.
class InstructionSetLimit {
 public:
  explicit InstructionSetLimit(InstructionSet set) : previous_(current) { current = set; }
  ~InstructionSetLimit() { current = previous_; }
  InstructionSetLimit(const InstructionSetLimit&) = delete;
  InstructionSetLimit& operator=(const InstructionSetLimit&) = delete;

  static InstructionSet Current() { return current; }

 private:
  static inline constinit thread_local InstructionSet current = InstructionSet::AMX;
  const InstructionSet previous_;
};

template <InstructionSet kSet, class Loop>
inline void CallLoop(const Loop& loop) {
  if constexpr (std::is_invocable_v<const Loop&, InstructionSetTag<kSet>>) loop(InstructionSetTag<kSet>{});
  else loop();
}

#ifdef TANDEM_VECTOR_COPIES

template <class Loop>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,prfchw,prefer-vector-width=512"), flatten, noinline)) void
RunAvx512(const Loop& loop) {
  const Loop own = loop;
  CallLoop<InstructionSet::AVX512>(own);
}

template <class Loop>
__attribute__((target("avx2,fma,bmi2"), flatten, noinline)) void RunAvx2(const Loop& loop) {
  const Loop own = loop;
  CallLoop<InstructionSet::AVX2>(own);
}

#endif

template <class Loop>
void Vectorised(const Loop& loop) {
#ifdef TANDEM_VECTOR_COPIES
  const InstructionSet widest = WidestInstructionSet(), limit = InstructionSetLimit::Current();
  const InstructionSet set = limit < widest ? limit : widest;
  if (set == InstructionSet::AVX512) return RunAvx512(loop);
  if (set == InstructionSet::AVX2) return RunAvx2(loop);
#endif
  CallLoop<InstructionSet::BASELINE>(loop);
}

}  // namespace tandem::kernels
