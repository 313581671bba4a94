#include "trainer/sparse/remote_embedding.h"

#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/radix_sort.h"
#include "kernels/base/random.h"
#include "kernels/base/status_macros.h"

namespace tandem::sparse {

MergedIds MergeIds(absl::Span<const absl::Span<const uint64_t>> lists) {
  struct Use {
    uint64_t id;
    size_t at;  // in the concatenation of all lists
  };
  std::vector<Use> uses, scratch;
  for (const absl::Span<const uint64_t> list : lists) {
    for (const uint64_t id : list) uses.push_back({id, uses.size()});
  }
  RadixSort(&uses, &scratch, [](const Use& use) { return use.id; });
  const Tensor all = Tensor::Empty(Shape{static_cast<int64_t>(uses.size())}, DType::I64);
  int64_t* const places = all.data<int64_t>();
  MergedIds merged;
  merged.ids.reserve(uses.size());
  for (const Use& use : uses) {
    if (merged.ids.empty() || merged.ids.back() != use.id) merged.ids.push_back(use.id);
    places[use.at] = static_cast<int64_t>(merged.ids.size()) - 1;
  }
  int64_t begin = 0;
  for (const absl::Span<const uint64_t> list : lists) {
    const int64_t end = begin + static_cast<int64_t>(list.size());
    merged.places.push_back(all.Rows(std::exchange(begin, end), end));
  }
  return merged;
}

PulledRows::~PulledRows() { done_.Wait(absl::InfiniteFuture()).IgnoreError(); }

float* PulledRows::Part::memory() const {
  return upload == nullptr ? rows.data<float>() : static_cast<float*>(upload->host());
}

void PulledRows::Arrive(rpc::Future<rpc::Done> pulled) {
  if (parts_.front().upload == nullptr) {
    done_ = std::move(pulled);
    return;
  }
  const auto sent = std::make_shared<rpc::Promise<rpc::Done>>();
  done_ = sent->future();
  pulled.OnReady([this, sent](const absl::StatusOr<rpc::Done>& done) {
    if (done.ok()) {
      for (Part& part : parts_) part.upload->Send();
    }
    sent->Set(done);  // the last statement: a waiting thread may now destroy the rows
  });
}

absl::Status PulledRows::Share(absl::Time deadline) {
  if (sharers_ == nullptr || shared_) return absl::OkStatus();
  for (const Part& part : parts_) {
    const comm::CollectiveArgs args{.tag = StableHash("pulled rows")};
    RETURN_IF_ERROR(sharers_->Await(sharers_->Broadcast(part.rows.view(), 0, args), deadline));
  }
  shared_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> PulledRows::Await(absl::Time deadline) {
  RETURN_IF_ERROR(done_.Wait(deadline).status());
  RETURN_IF_ERROR(Share(deadline));
  std::vector<Tensor> rows;
  for (Part& part : parts_) {
    if (!part.rows.defined())
      part.rows = Tensor::InBuffer(part.upload->Receive(), 0, part.shape, DType::F32);
    rows.push_back(part.rows);
  }
  return rows;
}

RemoteEmbedding::RemoteEmbedding(ps::RowClient* client, std::vector<RemoteTable> tables,
                                 Stream* stream, comm::ProcessGroup* sharers)
    : client_(client),
      sharers_(sharers),
      tables_(std::move(tables)),
      uploads_(stream->on_cuda() ? std::make_unique<Uploads>(stream) : nullptr) {
  TANDEM_CHECK(!tables_.empty());
  TANDEM_CHECK(sharers_ == nullptr || uploads_ == nullptr) << "shared rows on a device";
}

std::unique_ptr<PulledRows> RemoteEmbedding::Pull(uint64_t step, bool create,
                                                  std::vector<std::vector<uint64_t>> ids) {
  TANDEM_CHECK_EQ(ids.size(), tables_.size());
  std::unique_ptr<PulledRows> pulled(new PulledRows(sharers_));
  std::vector<ps::PullSegment> segments;
  for (size_t t = 0; t < tables_.size(); ++t) {
    PulledRows::Part& part = pulled->parts_.emplace_back();
    part.shape = Shape{static_cast<int64_t>(ids[t].size()), tables_[t].dim};
    part.ids = std::make_shared<const std::vector<uint64_t>>(std::move(ids[t]));
    if (uploads_ == nullptr) {
      part.rows = Tensor::Empty(part.shape, DType::F32);
    } else {
      const auto elements = static_cast<size_t>(part.shape.num_elements());
      part.upload = uploads_->Begin(elements * sizeof(float));
    }
    segments.push_back({tables_[t].number, *part.ids, part.memory()});
  }
  if (leads()) {
    for (const ps::PullSegment& segment : segments) num_pulled_ += segment.ids.size();
  }
  pulled->Arrive(leads() ? client_->Pull(step, create, std::move(segments))
                         : rpc::Future<rpc::Done>::Ready(rpc::Done()));
  return pulled;
}

namespace {

// The leaves of one step, whose gradients leave in one push.
struct Leaves {
  struct Leaf {
    uint32_t table;
    Variable rows;
    Ids ids;
    int pass = 0;
    bool taken = false;
  };
  Leaves(StepPushes& to, bool pushed) : pushes(to), is_pushed(pushed) {}

  void Take(Context& context, Leaf& leaf) {
    if (leaf.taken || !leaf.rows.leaf().has_gradient()) return;
    leaf.taken = true;
    gradients.push_back(
        {leaf.table, leaf.ids, leaf.rows.leaf().gradient().ToHost(context.stream())});
  }
  void TakeAndSendLast(Context& context, Leaf& leaf) {
    Take(context, leaf);
    if (gradients.size() == leaves.size()) Send();
  }
  void Send() {
    std::vector<RowGradients> complete = std::exchange(gradients, {});
    if (is_pushed) pushes.Push(std::move(complete));
  }

  StepPushes& pushes;
  const bool is_pushed;  // by this rank
  std::vector<Leaf> leaves;
  std::vector<RowGradients> gradients;  // complete and not sent
};

}  // namespace

std::vector<Variable> RemoteEmbedding::Enter(Context& context, PulledRows& rows, StepPushes& pushes,
                                             int last_pass) {
  const absl::StatusOr<std::vector<Tensor>> values = rows.Await(context.deadline());
  context.Fail(values.status());
  const auto entered = std::make_shared<Leaves>(pushes, leads());
  std::vector<Variable> variables;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const PulledRows::Part& part = rows.parts_[t];
    variables.push_back(
        Variable::Leaf(values.ok() ? (*values)[t] : context.Empty(part.shape, DType::F32), "rows"));
    entered->leaves.push_back({tables_[t].number, variables[t], part.ids});
  }
  for (Leaves::Leaf& leaf : entered->leaves) {
    // `pushes` keeps the leaves until the step's pushes are awaited, after its last pass.
    leaf.rows.leaf().set_hook([all = entered.get(), &leaf, last_pass](Context& c) {
      if (leaf.pass++ == last_pass) all->TakeAndSendLast(c, leaf);
    });
  }
  pushes.BeforeAwait([entered](Context& c) {
    for (Leaves::Leaf& leaf : entered->leaves) entered->Take(c, leaf);
    if (!entered->gradients.empty()) entered->Send();
  });
  return variables;
}

}  // namespace tandem::sparse
