#include "trainer/bench/gloo_allreduce.h"

#include <gloo/algorithm.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/hash_store.h>
#include <gloo/transport/tcp/device.h>

namespace tandem::bench {

namespace {

class Rank final : public GlooRank {
 public:
  Rank(gloo::rendezvous::HashStore& store, int rank, int size)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    auto device = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr("127.0.0.1"));
    context_->connectFullMesh(store, device);
  }

  std::vector<std::string> Algorithms() const override {
    return {"ring", "bcube", "ring_chunked", "halving_doubling"};
  }
  void Use(const std::string& algorithm, float* values, int64_t count) override {
    options_.reset();
    algorithm_.reset();
    const std::vector<float*> arrays{values};
    if (algorithm == "ring_chunked") {
      algorithm_ = std::make_unique<gloo::AllreduceRingChunked<float>>(context_, arrays,
                                                                       static_cast<int>(count));
    } else if (algorithm == "halving_doubling") {
      algorithm_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context_, arrays,
                                                                           static_cast<int>(count));
    } else {
      options_ = std::make_unique<gloo::AllreduceOptions>(context_);
      options_->setOutput(values, static_cast<size_t>(count));
      options_->setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
      options_->setAlgorithm(algorithm == "ring" ? gloo::AllreduceOptions::Algorithm::RING
                                                 : gloo::AllreduceOptions::Algorithm::BCUBE);
    }
  }
  void AllReduce() override {
    if (algorithm_ != nullptr)
      algorithm_->run();
    else
      gloo::allreduce(*options_);
  }

 private:
  using Sum = void (*)(void*, const void*, const void*, size_t);

  const std::shared_ptr<gloo::rendezvous::Context> context_;
  std::unique_ptr<gloo::AllreduceOptions> options_;
  std::unique_ptr<gloo::Algorithm> algorithm_;
};

}  // namespace

bool HasGloo() { return true; }

std::shared_ptr<void> NewGlooStore() { return std::make_shared<gloo::rendezvous::HashStore>(); }

std::unique_ptr<GlooRank> NewGlooRank(const std::shared_ptr<void>& store, int rank, int size) {
  return std::make_unique<Rank>(*static_cast<gloo::rendezvous::HashStore*>(store.get()), rank,
                                size);
}

}  // namespace tandem::bench
