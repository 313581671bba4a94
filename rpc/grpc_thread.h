// Knows whether this code runs inside a gRPC reaction. The last gRPC object of a process joins
// gRPC's callback threads when it is destroyed. So it must not be destroyed on such a thread: it
// would wait for itself. gRPC 1.51 then frees the queue that the thread still reads. Private to
// rpc/.
// Thread rule: the answer is about the calling thread.
#pragma once

namespace tandem::rpc {

// Put one at the top of every reaction that runs Tandem's code.
class ReactionScope {
 public:
  ReactionScope();
  ~ReactionScope();
  ReactionScope(const ReactionScope&) = delete;
  ReactionScope& operator=(const ReactionScope&) = delete;
};

bool InReaction();

}  // namespace tandem::rpc
