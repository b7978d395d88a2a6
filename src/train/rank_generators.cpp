#include "train/rank_generators.hpp"

#include <ATen/ops/empty.h>

#include <sstream>
#include <string>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/random.hpp"

namespace npu_train::detail {
namespace {

std::string prefix(int rank) { return "rank" + std::to_string(rank) + "/"; }

// Returns, for each tensor, a line with its name, dtype and length, followed by its content.
std::string to_text(const State& state) {
  std::string out;
  for (const auto& [name, tensor] : state.tensors) {
    const auto host = tensor.to(at::kCPU).contiguous();
    out += str_cat(name, " ", static_cast<int>(host.scalar_type()), " ", host.numel(), "\n");
    out.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
  return out;
}

void from_text(const std::string& text, const std::string& prefix, State& out) {
  std::istringstream in(text);
  std::string name;
  int dtype = 0;
  int64_t numel = 0;
  while (in.peek() != std::istringstream::traits_type::eof()) {
    in >> name >> dtype >> numel;
    const auto type = static_cast<at::ScalarType>(dtype);
    check(in.good() && (type == at::kByte || type == at::kLong) && numel >= 0 && numel <= static_cast<int64_t>(text.size()) &&
              in.get() == '\n',
          ErrorKind::Peer, "random", "the generators of another rank are damaged");
    auto tensor = at::empty({numel}, type);
    in.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
    check(in.gcount() == static_cast<std::streamsize>(tensor.nbytes()), ErrorKind::Peer, "random",
          "the generators of another rank are cut off");
    out.tensors[prefix + name] = std::move(tensor);
  }
}

int number_of_ranks(const State& saved) {
  int ranks = 1;
  const auto has = [&](const std::string& start) {
    const auto at = saved.tensors.lower_bound(start);
    return at != saved.tensors.end() && at->first.starts_with(start);
  };
  while (has(prefix(ranks))) ++ranks;
  return ranks;
}

}  // namespace

State generators_of_ranks(Ranks& ranks) {
  auto out = rng_state();
  if (ranks.size() == 1) return out;
  const auto of_ranks = ranks.gather(to_text(out));
  if (!ranks.is_main()) return out;
  for (size_t r = 1; r < of_ranks.size(); ++r) from_text(of_ranks[r], prefix(static_cast<int>(r)), out);
  return out;
}

void set_generators_of_rank(const Ranks& ranks, const State& saved) {
  if (ranks.is_main()) set_rng_state(saved);
  if (ranks.size() == 1) return;
  if (const auto saved_ranks = number_of_ranks(saved); saved_ranks != ranks.size()) {
    if (ranks.is_main())
      log_info("the checkpoint has the generators of ", saved_ranks, saved_ranks == 1 ? " process" : " ranks", "; this run has ",
               ranks.size(), " ranks, so those above 0 start theirs again from the seed");
    return;
  }
  if (ranks.is_main()) return;
  const auto own = prefix(ranks.rank());
  State mine;
  for (auto at = saved.tensors.lower_bound(own); at != saved.tensors.end() && at->first.starts_with(own); ++at)
    mine.tensors[at->first.substr(own.size())] = at->second;
  set_rng_state(mine);
}

}  // namespace npu_train::detail
