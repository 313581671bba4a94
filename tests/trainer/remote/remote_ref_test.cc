#include "proto/worker.pb.h"
#include "tests/trainer/autograd/gradient_check.h"
#include "tests/trainer/remote/remote_hosts.h"
#include "trainer/remote/owned_objects.h"
#include "trainer/remote/remote_call.h"

namespace tandem {
namespace {

using namespace testing;
using remote::OwnedObjects;

class RemoteRefTest : public RemoteHosts {};

TEST(OwnedObjectsTest, AnObjectLivesUntilItsLastHolderDropsIt) {
  OwnedObjects objects;
  const uint64_t id = objects.Add({}, /*process=*/1, /*sequence=*/1);
  ASSERT_TRUE(objects.Hold(id, 2, 1).ok());
  EXPECT_TRUE(objects.Drop(id, 1, 2).empty());
  EXPECT_NE(objects.Find(id), nullptr);
  EXPECT_EQ(objects.Drop(id, 2, 2).size(), 1u);
  EXPECT_EQ(objects.Find(id), nullptr);
  EXPECT_EQ(objects.Hold(id, 1, 3).code(), absl::StatusCode::kNotFound);
}

TEST(OwnedObjectsTest, ADropThatALaterHoldOvertookDoesNoHarm) {
  OwnedObjects objects;
  const uint64_t id = objects.Add({}, 1, 1);
  ASSERT_TRUE(objects.Hold(id, 1, 3).ok());
  EXPECT_TRUE(objects.Drop(id, 1, 2).empty());
  EXPECT_EQ(objects.num_references(), 1u);
}

TEST(OwnedObjectsTest, ABeatFreesWhatItsSenderDoesNotNameAndSparesWhatIsBeingMade) {
  OwnedObjects objects;
  const uint64_t kept = objects.Add({}, 1, 1), lost = objects.Add({}, 1, 2),
                 other = objects.Add({}, 2, 1), young = objects.Add({}, 1, 5);
  EXPECT_EQ(objects.Keep(1, {kept}, /*sequence=*/5).size(), 1u);
  EXPECT_EQ(objects.Find(lost), nullptr);
  for (const uint64_t id : {kept, other, young}) EXPECT_NE(objects.Find(id), nullptr);
  EXPECT_EQ(objects.Forget(1).size(), 2u);
  EXPECT_EQ(objects.size(), 1u);
}

TEST_F(RemoteRefTest, CopiesShareAReferenceAndTheLastOneFreesTheObject) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0),
             other = StartHost(false, 1);
  auto ref =
      RemoteRef::Create(*trainer, worker->address(), "Parameter", "shape=3 dtype=f64", Soon());
  ASSERT_TRUE(ref.ok()) << ref.status();
  RemoteRef copy = *ref;
  *ref = RemoteRef();
  auto adopted = RemoteRef::Adopt(*other, copy.owner(), copy.object(), Soon());
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ(adopted->module(), "Parameter");
  EXPECT_EQ(adopted->parameters(), std::vector<std::string>{"value"});
  const uint64_t object = copy.object();
  copy = RemoteRef();
  const auto values = adopted->Fetch(Soon());
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0].num_elements(), 3);
  EXPECT_EQ(worker->NumObjects(), 1u);
  *adopted = RemoteRef();
  EXPECT_TRUE(Eventually([&] { return worker->NumObjects() == 0; }));
  EXPECT_EQ(RemoteRef::Adopt(*other, worker->address(), object, Soon()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(RemoteRefTest, ADropSparesAHoldWhoseAnswerIsOnItsWay) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  auto ref = RemoteRef::Create(*trainer, worker->address(), "Parameter", "shape=3", Soon());
  ASSERT_TRUE(ref.ok()) << ref.status();
  const remote::Reference reference{ref->owner(), ref->object()};
  const uint64_t sequence = trainer->BeginHold();
  HoldRequest hold;
  trainer->Sign(&hold);
  hold.set_object(reference.object);
  hold.set_sequence(sequence);
  const auto held = remote::StartCall(*trainer, reference.owner, "Hold",
                                      rpc::Payload(hold.SerializeAsString()), Soon(), "hold");
  ASSERT_TRUE(held.Wait(Soon()).ok());
  *ref = RemoteRef();  // the answer has come and its taker has not seen it yet
  EXPECT_FALSE(Eventually([&] { return worker->NumObjects() == 0; }, 0.3));
  trainer->EndHold(sequence, &reference);
  trainer->Release(reference);
  EXPECT_TRUE(Eventually([&] { return worker->NumObjects() == 0; }));
}

TEST_F(RemoteRefTest, ReferencesOutliveManyLeasesWhileTheirHolderLives) {
  const auto worker = StartHost(true, 0, absl::Milliseconds(150)),
             trainer = StartHost(false, 0, absl::Milliseconds(150));
  const RemoteModule linear = Make(*trainer, *worker, "Linear", "in=2 out=1");
  const absl::Time later = Soon(0.6);
  EXPECT_FALSE(Eventually([&] { return worker->NumObjects() == 0; },
                          absl::ToDoubleSeconds(later - absl::Now())));
  EXPECT_TRUE(linear.ref().Fetch(Soon()).ok());
}

TEST_F(RemoteRefTest, ARemoteParameterIsDifferentiable) {
  const auto worker = StartHost(true, 0), trainer = StartHost(false, 0);
  const RemoteModule parameter = Make(*trainer, *worker, "Parameter", "shape=2,3 dtype=f64");
  const auto optimizer = Optimizer(*trainer, parameter.Parameters());
  const Tensor before = ValuesOf(parameter)[0];
  Context context(StepOptions());
  DistAutogradContext autograd(*trainer, context);
  const auto value = parameter.Forward(autograd.frame(), {});
  ASSERT_TRUE(value.ok()) << value.status();
  autograd.Backward(ops::Scale(context, (*value)[0], 3));
  ASSERT_TRUE(optimizer->Step(autograd, 1).ok());
  EXPECT_NEAR(ValuesOf(parameter)[0].At(4), before.At(4) - 3, 1e-14);
}

}  // namespace
}  // namespace tandem
