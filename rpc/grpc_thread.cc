#include "rpc/grpc_thread.h"

namespace tandem::rpc {
namespace {
// A counter, because a reaction of one call may start another call's reaction.
thread_local int reaction_depth = 0;
}  // namespace

ReactionScope::ReactionScope() { ++reaction_depth; }
ReactionScope::~ReactionScope() { --reaction_depth; }

bool InReaction() { return reaction_depth > 0; }

}  // namespace tandem::rpc
