// ScriptedBackend - the server side of one PostgreSQL connection, played from a script.
// Why: what a real server cannot be made to say at will: notices of a newer version, errors of
// every class, frames cut
//   anywhere.
// Thread: answers on a thread of its own; Send and Close may be called from the test while it
// streams. Lifetime: ends with the destructor. Source: PostgreSQL manual, "Message Formats".
#pragma once

#include <netinet/in.h>

#include <atomic>
#include <string>
#include <string_view>
#include <thread>

namespace walpost::postgres {

class ScriptedBackend {
 public:
  explicit ScriptedBackend(std::string server_version = "15.0");
  ~ScriptedBackend();

  std::string Conninfo() const;

  // To the client, once it streams; waits for that.
  void Send(std::string_view bytes);
  // Ends the connection without a word.
  void Close();

  // Everything the client sent after START, waiting until it is at least `size` bytes.
  std::string AwaitSent(std::size_t size);

  // Messages, for Send.
  static std::string Frame(std::string_view payload);
  static std::string Notice(std::string_view severity, std::string_view sqlstate,
                            std::string_view message, std::string_view function = "");
  static std::string Error(std::string_view sqlstate, std::string_view message,
                           std::string_view context);
  static std::string CopyDone();
  static std::string CommandComplete();
  static std::string ReadyForQuery();

 private:
  // Startup, then every query is answered by COPY BOTH.
  void Serve();
  std::string Read(std::size_t size) const;

  const std::string server_version_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> client_{-1};
  std::thread thread_;  // ends when streaming begins
};

}  // namespace walpost::postgres
