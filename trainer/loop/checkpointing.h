// Brings a replica's state, the state that owners elsewhere hold, and the tables to disk and back.
// trainer/checkpoint writes and reads the files.
// Thread rule: the step's thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "trainer/loop/batches.h"
#include "trainer/loop/replica/replica.h"
#include "trainer/optim/dense_state.h"

namespace tandem::loop {

// Gives the replica, the tables and the owners elsewhere the state of environment.resume. Without a
// checkpoint to resume, owners elsewhere get the initial values. Collective.
// REQUIRES: Replica::Connect, and no step has run.
absl::Status RestoreOrInitialize(Replica& replica);

// Writes a checkpoint of the last step. Collective.
absl::Status SaveCheckpoint(Replica& replica, Batches& batches);

// Adds the state of parameters whose owners are elsewhere, as the owners have it.
absl::Status ReadElsewhere(const Replica& replica, optim::DenseState* state, absl::Time deadline);

}  // namespace tandem::loop
