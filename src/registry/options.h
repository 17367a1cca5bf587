// RegistryOptions - where the Schema Registry is, and who asks. Plain data, filled in by config.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace walpost::registry {

struct RegistryOptions {
  std::vector<std::string> urls;  // of one registry, tried in turn; empty = there is none
  std::string username;
  std::string password;
  std::string token;             // bearer, instead of the two
  std::string ca_file;           // empty = those of the system
  std::string certificate_file;  // of the client
  std::string key_file;
  std::chrono::milliseconds timeout{5'000};    // of each request
  std::chrono::milliseconds refresh{300'000};  // of schemas that may change
};

}  // namespace walpost::registry
