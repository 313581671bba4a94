// The interfaces of one client, as its users get them, and the owner of a client and of those wrapped around it.
// Thread rule: as RowClient.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ps/client/pooled_client.h"
#include "ps/client/row_client.h"
#include "ps/client/table_admin.h"

namespace tandem::ps {

// Three interfaces to the same tables.
struct Clients {
  RowClient* rows = nullptr;
  TableAdmin* tables = nullptr;
  PooledClient* pooled = nullptr;
};

// `client` by each of its interfaces.
template <class Client>
Clients ClientsOf(Client& client) {
  return {&client, &client, &client};
}

// A client and the clients around it, each of which calls the one before. As Clients it is the outermost one.
class ClientStack : public Clients {
 public:
  ClientStack() = default;
  template <class Client>
  ClientStack(std::unique_ptr<Client> innermost) {  // NOLINT: a client alone is a stack
    Add(std::move(innermost));
  }
  ClientStack(ClientStack&&) = default;
  ClientStack& operator=(ClientStack&& other) {
    Clear();
    Clients::operator=(other);
    owned_ = std::move(other.owned_);
    return *this;
  }
  ~ClientStack() { Clear(); }

  // Puts Client(the outermost one, args...) around it, and returns that.
  template <class Client, class... Args>
  Client& Wrap(Args&&... args) {
    return Add(std::make_unique<Client>(static_cast<const Clients&>(*this), std::forward<Args>(args)...));
  }

 private:
  template <class Client>
  Client& Add(std::unique_ptr<Client> client) {
    Client& added = *client;
    Clients::operator=(ClientsOf(added));
    owned_.push_back(std::move(client));
    return added;
  }
  // The outermost client first: until it is gone it may call those inside.
  void Clear() {
    while (!owned_.empty()) owned_.pop_back();
  }

  std::vector<std::unique_ptr<RowClient>> owned_;  // the innermost first
};

}  // namespace tandem::ps
