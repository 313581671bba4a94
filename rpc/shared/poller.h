// One thread that serves any number of shared-memory streams. The thread does the work of every
// stream, spins a little longer when there is none, and then sleeps. Before it sleeps, it says so
// in every segment; a peer that then posts rings the stream's socket. The sockets also tell that a
// peer is gone, however it ended.
// Thread rule: Add, Wake and Stop from any thread. The members' functions run on the poller's
// thread.
#pragma once

#include <memory>
#include <string>

namespace tandem::rpc {

class SharedPoller {
 public:
  class Member {
   public:
    virtual ~Member() = default;
    virtual int fd() const = 0;  // constant while it is a member
    // Does available work, but not so much that others wait long. Returns false if there was none.
    virtual bool Step() = 0;
    // Called before the thread sleeps. Returns false if there is still work.
    virtual bool Rest() = 0;
    // Called when fd() is readable. Returns false if the peer is gone; the member is then removed.
    virtual bool OnReadable() = 0;
    // The last call, once: the member has been removed.
    virtual void End() = 0;
  };

  explicit SharedPoller(std::string thread_name);
  ~SharedPoller() { Stop(); }
  SharedPoller(const SharedPoller&) = delete;
  SharedPoller& operator=(const SharedPoller&) = delete;

  // Adds a member. Ends the member at once after Stop, or if the system has no epoll or eventfd
  // left.
  void Add(std::shared_ptr<Member> member);
  // Wakes the thread to look at its members.
  void Wake();
  // Ends all members and waits for the thread. A call on the poller's own thread returns at once,
  // and the members end later.
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace tandem::rpc
