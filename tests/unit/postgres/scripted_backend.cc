#include "scripted_backend.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace walpost::postgres {
namespace {

std::string Length(std::size_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>((value >> shift) & 0xff));
  }
  return bytes;
}

std::size_t LengthOf(std::string_view bytes) {
  std::size_t value = 0;
  for (const char c : bytes.substr(0, 4)) {
    value = value << 8 | static_cast<unsigned char>(c);
  }
  return value;
}

std::string Message(char type, std::string_view body) {
  return std::string(1, type) + Length(body.size() + 4) + std::string(body);
}

std::string Field(char code, std::string_view value) {
  return std::string(1, code) + std::string(value) + '\0';
}

void WriteAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    CHECK_GT(sent, 0);
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

}  // namespace

ScriptedBackend::ScriptedBackend(std::string server_version)
    : server_version_(std::move(server_version)),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = static_cast<sockaddr*>(static_cast<void*>(&address));
  CHECK_EQ(bind(listener_, generic, size), 0);
  CHECK_EQ(listen(listener_, 1), 0);
  CHECK_EQ(getsockname(listener_, generic, &size), 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Serve(); });
}

ScriptedBackend::~ScriptedBackend() {
  shutdown(listener_, SHUT_RDWR);  // wakes accept when no client came
  if (thread_.joinable()) {
    thread_.join();
  }
  close(listener_);
  Close();
}

std::string ScriptedBackend::Conninfo() const {
  return "host=127.0.0.1 port=" + std::to_string(port_) +
         " user=u dbname=d sslmode=disable gssencmode=disable";
}

std::string ScriptedBackend::Read(std::size_t size) const {
  std::string bytes(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    const ssize_t count = recv(client_, bytes.data() + got, size - got, 0);
    if (count <= 0) {
      return bytes.substr(0, got);
    }
    got += static_cast<std::size_t>(count);
  }
  return bytes;
}

void ScriptedBackend::Serve() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (client < 0) {
    return;
  }
  client_ = client;
  Read(LengthOf(Read(4)) - 4);
  WriteAll(client, Message('R', Length(0)) +
                       Message('S', std::string("server_version") + '\0' + server_version_ + '\0') +
                       ReadyForQuery());
  Read(1);
  Read(LengthOf(Read(4)) - 4);
  WriteAll(client, Message('W', std::string(3, '\0')));
}

void ScriptedBackend::Send(std::string_view bytes) {
  if (thread_.joinable()) {
    thread_.join();
  }
  WriteAll(client_, bytes);
}

void ScriptedBackend::Close() {
  if (const int client = client_.exchange(-1); client >= 0) {
    close(client);
  }
}

std::string ScriptedBackend::AwaitSent(std::size_t size) { return Read(size); }

std::string ScriptedBackend::Frame(std::string_view payload) { return Message('d', payload); }

std::string ScriptedBackend::Notice(std::string_view severity, std::string_view sqlstate,
                                    std::string_view message, std::string_view function) {
  return Message('N', Field('S', severity) + Field('V', severity) + Field('C', sqlstate) +
                          Field('M', message) + (function.empty() ? "" : Field('R', function)) +
                          '\0');
}

std::string ScriptedBackend::Error(std::string_view sqlstate, std::string_view message,
                                   std::string_view context) {
  return Message('E', Field('S', "ERROR") + Field('V', "ERROR") + Field('C', sqlstate) +
                          Field('M', message) + Field('W', context) + '\0');
}

std::string ScriptedBackend::CopyDone() { return Message('c', ""); }

std::string ScriptedBackend::CommandComplete() { return Message('C', std::string("COPY 0\0", 7)); }

std::string ScriptedBackend::ReadyForQuery() { return Message('Z', "I"); }

}  // namespace walpost::postgres
