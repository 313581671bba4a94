// One optimizer step of one weight and its state (formulas: kernels/optimizer.h). Dense parameters
// and rows of a parameter server share this source, so their bits are the same. `g` is the
// gradient, already scaled. Rules use only +, -, *, / and square roots of one element, which every
// instruction set rounds correctly. So an element's new value does not depend on its place in a
// run. Inline bodies for Vectorised().
// Thread rule: a value.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/base/check.h"
#include "kernels/cpu/vector/math.h"
#include "kernels/optimizer.h"

namespace tandem::kernels {

template <class T>
class SgdRule {
 public:
  explicit SgdRule(const SgdArgs& args)
      : decay_(static_cast<T>(1.0 - args.learning_rate * args.weight_decay)),
        rate_(static_cast<T>(args.learning_rate)) {}
  T operator()(T w, T g) const { return w * decay_ - rate_ * g; }

 private:
  T decay_, rate_;
};

template <class T>
class AdagradRule {
 public:
  explicit AdagradRule(const AdagradArgs& args)
      : rate_(static_cast<T>(args.learning_rate)), epsilon_(static_cast<T>(args.epsilon)) {}
  T operator()(T w, T& squares, T g) const {
    const T a = squares + g * g;
    squares = a;
    return w - rate_ * g / (Sqrt(a) + epsilon_);
  }

 private:
  T rate_, epsilon_;
};

// The constants of Adam and AMSGrad.
template <class T>
struct AdamFactors {
  // REQUIRES: args.step >= 1.
  explicit AdamFactors(const AdamArgs& args)
      : rate(static_cast<T>(args.learning_rate /
                            (1.0 - std::pow(args.beta1, static_cast<double>(args.step))))),
        correction(
            static_cast<T>(1.0 / (1.0 - std::pow(args.beta2, static_cast<double>(args.step))))),
        decay(static_cast<T>(1.0 - args.learning_rate * args.weight_decay)),
        b1(static_cast<T>(args.beta1)),
        c1(static_cast<T>(1.0 - args.beta1)),
        b2(static_cast<T>(args.beta2)),
        c2(static_cast<T>(1.0 - args.beta2)),
        epsilon(static_cast<T>(args.epsilon)) {
    TANDEM_CHECK_GE(args.step, uint64_t{1});
  }
  // The new first and second moments.
  T First(T m, T g) const { return b1 * m + c1 * g; }
  T Second(T v, T g) const { return b2 * v + c2 * (g * g); }
  T Weight(T w, T first, T second) const {
    return w * decay - rate * first / (Sqrt(second * correction) + epsilon);
  }

  T rate, correction, decay, b1, c1, b2, c2, epsilon;
};

template <class T>
class AdamRule {
 public:
  explicit AdamRule(const AdamArgs& args) : factors_(args) {}
  T operator()(T w, T& m, T& v, T g) const {
    const T first = factors_.First(m, g), second = factors_.Second(v, g);
    m = first;
    v = second;
    return factors_.Weight(w, first, second);
  }

 private:
  AdamFactors<T> factors_;
};

template <class T>
class AmsgradRule {
 public:
  explicit AmsgradRule(const AdamArgs& args) : factors_(args) {}
  T operator()(T w, T& m, T& v, T& v_max, T g) const {
    const T first = factors_.First(m, g), second = factors_.Second(v, g);
    const T largest = second > v_max ? second : v_max;
    m = first;
    v = second;
    v_max = largest;
    return factors_.Weight(w, first, largest);
  }

 private:
  AdamFactors<T> factors_;
};

template <class T>
class MomentumRule {
 public:
  // With Nesterov the step is momentum * (new m) + g; without, the new m.
  explicit MomentumRule(const MomentumArgs& args)
      : rate_(static_cast<T>(args.learning_rate)),
        momentum_(static_cast<T>(args.momentum)),
        of_m_(args.nesterov ? momentum_ : T{1}),
        of_g_(args.nesterov ? T{1} : T{0}) {}
  T operator()(T w, T& m, T g) const {
    const T moved = momentum_ * m + g;
    m = moved;
    return w - rate_ * (of_g_ * g + of_m_ * moved);
  }

 private:
  T rate_, momentum_, of_m_, of_g_;
};

template <class T>
class RmspropRule {
 public:
  explicit RmspropRule(const RmspropArgs& args)
      : rate_(static_cast<T>(args.learning_rate)),
        rho_(static_cast<T>(args.rho)),
        rest_(static_cast<T>(1.0 - args.rho)),
        epsilon_(static_cast<T>(args.epsilon)) {}
  T operator()(T w, T& mean_square, T g) const {
    const T a = rho_ * mean_square + rest_ * (g * g);
    mean_square = a;
    return w - rate_ * g / (Sqrt(a) + epsilon_);
  }

 private:
  T rate_, rho_, rest_, epsilon_;
};

template <class T>
class AdadeltaRule {
 public:
  explicit AdadeltaRule(const AdadeltaArgs& args)
      : rate_(static_cast<T>(args.learning_rate)),
        rho_(static_cast<T>(args.rho)),
        rest_(static_cast<T>(1.0 - args.rho)),
        epsilon_(static_cast<T>(args.epsilon)) {}
  T operator()(T w, T& mean_square, T& mean_square_change, T g) const {
    const T a = rho_ * mean_square + rest_ * (g * g), d = mean_square_change;
    const T change = g * Sqrt(d + epsilon_) / Sqrt(a + epsilon_);
    mean_square = a;
    mean_square_change = rho_ * d + rest_ * (change * change);
    return w - rate_ * change;
  }

 private:
  T rate_, rho_, rest_, epsilon_;
};

}  // namespace tandem::kernels
