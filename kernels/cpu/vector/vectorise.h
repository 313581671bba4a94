// Runs a loop compiled for the widest vectors of the processor: the same source three times
// (AVX-512, AVX2, baseline), chosen at run time. Bits do not depend on the copy: contraction to FMA
// is off, and sums use a fixed number of lanes (lanes.h). Each copy flattens the loop and all its
// calls. So keep CHECKs and calls that cannot be inlined on rare paths: they spill registers.
// Sanitizer builds have the baseline only, because three instrumented copies take minutes to
// compile.
// A loop that takes an argument gets its copy's instruction set as a type, to choose shapes for the
// registers.
// Thread rule: any thread; a limit is about the calling thread.
#pragma once

#include <type_traits>

#if defined(__x86_64__) && !defined(TANDEM_SANITIZED)
#define TANDEM_VECTOR_COPIES
#endif

namespace tandem::kernels {

// AVX512_BF16 and AMX have no copies here; bf16_rounding.h and bf16_tiles.h check the limit
// themselves. PLAIN_TILES names no processor: as a limit it selects plain loops for tiles, so that
// tests of the surrounding code run anywhere.
enum class InstructionSet { BASELINE, AVX2, AVX512, AVX512_BF16, AMX, PLAIN_TILES };

template <InstructionSet kSet>
using InstructionSetTag = std::integral_constant<InstructionSet, kSet>;

inline InstructionSet WidestInstructionSet() {
#ifdef TANDEM_VECTOR_COPIES
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw")) {
    return InstructionSet::AVX512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    return InstructionSet::AVX2;
  }
#endif
  return InstructionSet::BASELINE;
}

// For tests that compare the copies. While an object lives, Vectorised() on its thread (and no
// other thread of the pool) uses nothing wider than `set`.
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
  if constexpr (std::is_invocable_v<const Loop&, InstructionSetTag<kSet>>)
    loop(InstructionSetTag<kSet>{});
  else
    loop();
}

#ifdef TANDEM_VECTOR_COPIES

// The functions copy the loop: then its captures stay in registers, and no store of the loop can
// change them. Their callers must not copy instead. A caller would read back, in wider pieces, what
// it has just stored, and so wait for its own stores.
template <class Loop>
__attribute__((
    target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,prfchw,prefer-vector-width=512"),
    flatten, noinline)) void
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
