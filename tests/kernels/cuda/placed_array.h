// A device array that begins some elements behind a place where packs may be read.
#pragma once

#include <algorithm>

#include "tests/kernels/cuda/device_arrays.h"

namespace tandem::kernels {

template <class T>
class Placed {
 public:
  // Begins `shift` elements behind an aligned place.
  Placed(const Array<T>& host, int64_t shift, Stream& stream)
      : shape_(host.shape), shift_(shift), memory_(Behind(host, shift), stream) {}

  operator ArrayView() const { return DenseView(memory_.data() + shift_, shape_); }
  Array<T> Get() const {
    const Array<T> whole = memory_.Get();
    Array<T> host(shape_);
    std::copy_n(whole.values.begin() + shift_, shape_.num_elements(), host.values.begin());
    return host;
  }

 private:
  static Array<T> Behind(const Array<T>& host, int64_t shift) {
    Array<T> whole = Poisoned<T>({shift + host.size()});
    std::copy_n(host.values.begin(), host.size(), whole.values.begin() + shift);
    return whole;
  }

  Shape shape_;
  int64_t shift_;
  OnDevice<T> memory_;
};

// Returns true if all bytes are equal. Works for types that cannot be printed too.
template <class T>
bool SameBits(const Array<T>& a, const Array<T>& b) {
  return a.size() == b.size() && std::memcmp(a.values.data(), b.values.data(),
                                             static_cast<size_t>(a.size()) * sizeof(T)) == 0;
}

}  // namespace tandem::kernels
