// A thread that serves any number of shared-memory streams: it does what there is to do in each, looks around a little longer
// when there is nothing, and sleeps. Before it sleeps it says so in every segment; whoever then posts something rings the
// stream's socket. The sockets also tell that a peer is gone, however it ended.
// Thread rule: Add, Wake and Stop from any thread; the members' functions run on the poller's.
#pragma once

#include <memory>
#include <string>

namespace tandem::rpc {

class SharedPoller {
 public:
  class Member {
   public:
    virtual ~Member() = default;
    virtual int fd() const = 0;  // the same for as long as it is a member
    // Does what there is to do, as much as is good for the others too. False: there was nothing.
    virtual bool Step() = 0;
    // The thread is about to sleep. False if there is something to do after all.
    virtual bool Rest() = 0;
    // fd() is readable. False: the peer is gone, the member goes.
    virtual bool OnReadable() = 0;
    // It is a member no more. Once, last.
    virtual void End() = 0;
  };

  explicit SharedPoller(std::string thread_name);
  ~SharedPoller() { Stop(); }
  SharedPoller(const SharedPoller&) = delete;
  SharedPoller& operator=(const SharedPoller&) = delete;

  // Ends it at once after Stop, or if the system has no means to wait.
  void Add(std::shared_ptr<Member> member);
  // Makes the thread look at its members.
  void Wake();
  // Ends all members and waits for the thread, unless this is it: then the rest happens behind the caller.
  void Stop();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace tandem::rpc
