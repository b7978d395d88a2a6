#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

// With this macro, ProcessGroupGloo.hpp also overrides the functions after has_v2_support().
#define GLOO_STORE_HAS_STORE_V2 1

namespace gloo {

class IStore {
 public:
  virtual ~IStore() = default;
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) = 0;
  virtual bool has_v2_support() = 0;
  virtual std::vector<std::vector<char>> multi_get(const std::vector<std::string>& keys) = 0;
  virtual void multi_set(const std::vector<std::string>& keys, const std::vector<std::vector<char>>& values) = 0;
  virtual void append(const std::string& key, const std::vector<char>& data) = 0;
  virtual int64_t add(const std::string& key, int64_t value) = 0;
};

namespace rendezvous {

class Store : public IStore {
 public:
  virtual void wait(const std::vector<std::string>& keys) = 0;
  using IStore::wait;
};

}  // namespace rendezvous
}  // namespace gloo
