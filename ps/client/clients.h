// Clients holds one client's interfaces. ClientStack also owns the client and the clients that wrap
// the client.
// Thread rule: same as RowClient.
// Invariant: all three interfaces lead to the same tables.
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

// Returns the interfaces of `client`.
template <class Client>
Clients ClientsOf(Client& client) {
  return {&client, &client, &client};
}

// A client and its wrappers. Each wrapper calls the client that it wraps. The Clients base is the
// outermost wrapper.
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

  // Wraps the outermost client in Client(outermost, args...). Returns the new outermost client.
  template <class Client, class... Args>
  Client& Wrap(Args&&... args) {
    return Add(
        std::make_unique<Client>(static_cast<const Clients&>(*this), std::forward<Args>(args)...));
  }

 private:
  template <class Client>
  Client& Add(std::unique_ptr<Client> client) {
    Client& added = *client;
    Clients::operator=(ClientsOf(added));
    owned_.push_back(std::move(client));
    return added;
  }
  // Destroys the outermost client first, because an outer client may call the inner ones until
  // destroyed.
  void Clear() {
    while (!owned_.empty()) owned_.pop_back();
  }

  std::vector<std::unique_ptr<RowClient>> owned_;  // innermost first
};

}  // namespace tandem::ps
