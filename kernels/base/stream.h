// An ordered queue of kernels on one device. On a CPU a kernel runs at once on the caller's thread and the stream's
// pool; the argument is there so that no kernel call ever has an implicit stream.
// Thread rule: one thread submits to a stream at a time.
#pragma once

#include "kernels/base/device.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/trace.h"

namespace tandem {

class Stream {
 public:
  explicit Stream(ThreadPool* pool, Device device = {}) : pool_(pool), device_(device) {}

  Device device() const { return device_; }
  ThreadPool& pool() const { return *pool_; }
  // Where kernels report their spans; null: nowhere.
  Tracer* tracer() const { return tracer_; }
  void set_tracer(Tracer* tracer) { tracer_ = tracer; }

 private:
  ThreadPool* pool_;
  Device device_;
  Tracer* tracer_ = nullptr;
};

}  // namespace tandem
