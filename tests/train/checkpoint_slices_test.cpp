// Checkpoints whose tensors are divided among ranks.
#include "testing.hpp"

#include <algorithm>
#include <array>
#include <fstream>

#include "dist/in_process.hpp"
#include "npu_train/base/state.hpp"
#include "npu_train/io/json.hpp"
#include "npu_train/train/checkpoint.hpp"
#include "train/callbacks/shared_save.hpp"
#include "train/manifest.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

constexpr int kRanks = 3;

at::Tensor counted(at::IntArrayRef sizes) { return torch::arange(c10::multiply_integers(sizes), torch::kFloat).reshape(sizes); }

// Returns a convolution's weight, with channels last in memory, and a bias.
ParameterSet conv_parameters() {
  return ParameterSet({{.name = "conv.weight", .value = counted({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)},
                       {.name = "conv.bias", .value = counted({5})}});
}

// Returns the slices of parameters that `rank` of `ranks` has; the last rank gets the rest.
ParameterSet own_slices(const ParameterSet& all, int rank, int ranks) {
  ParameterSet out;
  for (const auto& p : all) {
    const auto size = p.value.numel() / ranks, begin = rank * size;
    out.add(p.slice(begin, rank == ranks - 1 ? p.value.numel() - begin : size));
  }
  return out;
}

StateSlices state_slices(const ParameterSet& own) {
  StateSlices out;
  for (const auto& p : own)
    out["optimizer"]["momentum/" + p.name] = {
        .value = p.value, .begin = p.begin, .sizes = p.whole().sizes().vec(), .strides = p.whole().strides().vec()};
  return out;
}

RunState rest_of_state() {
  RunState out;
  out["optimizer"].values["optimizer"] = std::string("sgd");
  out["model"].tensors["conv.bias"] = counted({5});
  return out;
}

std::string saved_in_slices(const TempDir& dir) {
  const auto path = (dir / "c").string();
  CheckpointFolder folder(path);
  folder.write(rest_of_state(), ConfigNode{{"seed", 1}});
  for (int rank = 0; rank < kRanks; ++rank)
    folder.add_slices(write_slices(folder.temporary(), rank, state_slices(own_slices(conv_parameters(), rank, kRanks))));
  folder.commit({});
  return path;
}

void check_joined(const RunState& state) {
  for (const auto& p : conv_parameters()) {
    CAPTURE(p.name);
    CHECK(torch::equal(state.at("optimizer").tensors.at("momentum/" + p.name), p.value));
  }
  CHECK(torch::equal(state.at("model").tensors.at("conv.bias"), counted({5})));
}

// Rewrites the manifest of a checkpoint with `change` applied to its entries of tensors, and a valid checksum.
void change_tensors(const std::string& path, const std::function<void(Json& entry)>& change) {
  const auto manifest = load_json(path + "/manifest.json");
  Json changed = Json::object(), tensors = Json::array();
  for (auto entry : manifest.at("tensors", path).items(path)) {
    change(entry);
    tensors.push_back(entry);
  }
  for (const auto& [key, value] : manifest.members(path))
    if (key != "manifest_checksum") changed.set(key, key == "tensors" ? tensors : value);
  std::ofstream(path + "/manifest.json", std::ios::trunc) << npu_train::detail::sealed(changed);
}

}  // namespace

TEST_CASE("slices of three ranks are joined") {
  TempDir dir;
  const auto path = saved_in_slices(dir);
  CHECK(read_checkpoint_meta(path).format == 3);
  CHECK(fs::exists(path + "/optimizer.rank0002.safetensors"));
  CHECK_FALSE(fs::exists(path + "/optimizer.safetensors"));
  verify_checkpoint(path);
  check_joined(load_checkpoint(path));
  CHECK(load_checkpoint(path, {"model"}).size() == 1);
  CHECK(load_checkpoint(path, {"optimizer"}).at("optimizer").tensors.size() == 2);
}

TEST_CASE("a checkpoint without slices has the format that earlier versions read") {
  TempDir dir;
  save_checkpoint((dir / "c").string(), rest_of_state(), {}, ConfigNode{});
  CHECK(read_checkpoint_meta((dir / "c").string()).format == 2);
}

TEST_CASE("any number of ranks reads its slices, and no file that has none of them") {
  TempDir dir;
  const auto path = saved_in_slices(dir);
  for (const int ranks : {1, 2, 3, 5, 7}) {
    for (int rank = 0; rank < ranks; ++rank) {
      CAPTURE(ranks);
      CAPTURE(rank);
      const auto own = own_slices(conv_parameters(), rank, ranks);
      const auto state = load_checkpoint(path, {"optimizer"}, own).at("optimizer");
      for (const auto& p : own) CHECK(torch::equal(state.tensors.at("momentum/" + p.name), p.value));
    }
  }
  fs::remove(path + "/optimizer.rank0000.safetensors");
  const auto own = own_slices(conv_parameters(), 2, kRanks);
  CHECK(torch::equal(load_checkpoint(path, {"optimizer"}, own).at("optimizer").tensors.at("momentum/conv.bias"), own[1].value));
  const auto error = error_of([&] { load_checkpoint(path, {"optimizer"}); });
  CHECK((error.kind() == ErrorKind::Checkpoint));
  CHECK_MESSAGE(std::string(error.what()).find("optimizer.rank0000.safetensors") != std::string::npos, error.what());
}

TEST_CASE("parameters in another memory layout get the complete tensor") {
  TempDir dir;
  const auto path = saved_in_slices(dir);
  ParameterSet rows;
  for (const auto& p : conv_parameters()) rows.add({.name = p.name, .value = p.value.contiguous()});
  const auto own = own_slices(rows, 1, 2);
  const auto state = load_checkpoint(path, {}, own).at("optimizer");
  CHECK(torch::equal(state.tensors.at("momentum/conv.weight"), conv_parameters()[0].value));
  CHECK(torch::equal(own[0].part_of(state.tensors.at("momentum/conv.weight")), own[0].value));
  CHECK(torch::equal(state.tensors.at("momentum/conv.bias"), own[1].value));
}

TEST_CASE("a manifest whose slices are not all of a tensor, once, is refused") {
  TempDir dir;
  const auto refused = [&](const std::string& what, const std::function<void(Json & entry)>& change) {
    const auto path = saved_in_slices(dir);
    change_tensors(path, change);
    for (const auto& error : {error_of([&] { load_checkpoint(path); }), error_of([&] { verify_checkpoint(path); })}) {
      CHECK((error.kind() == ErrorKind::Checkpoint));
      CHECK_MESSAGE(std::string(error.what()).find(what) != std::string::npos, error.what());
    }
  };
  const auto of_rank = [](Json& entry, int64_t rank) {
    return entry.find("sizes") != nullptr && entry.at("rank", "").integer("") == rank &&
           entry.at("name", "").text("") == "momentum/conv.bias";
  };
  const auto set_range = [&](int64_t rank, int64_t begin, int64_t end) {
    return [=](Json& entry) {
      if (of_rank(entry, rank)) entry.set("range", Json::array({begin, end}));
    };
  };
  refused("leave out or repeat elements at 1 of 5", set_range(1, 2, 3));
  refused("leave out or repeat elements at 1 of 5", set_range(1, 0, 2));
  refused("end at element 4 of 5", set_range(2, 2, 4));
  refused("leave out or repeat", set_range(2, 2, int64_t{1} << 60));
  refused("leave out or repeat", set_range(0, -1, 1));
  refused("of tensors of different shapes", [&](Json& entry) {
    if (of_rank(entry, 1)) entry.set("sizes", Json::array({6}));
  });
  for (const auto& [key, bad] : std::vector<std::pair<std::string, Json>>{{"range", Json::array({0})},
                                                                          {"sizes", Json::array({-5})},
                                                                          {"sizes", Json::array({int64_t{1} << 40, int64_t{1} << 40})},
                                                                          {"strides", Json::array({2})},
                                                                          {"strides", Json::array({-1})}})
    refused("no valid range, sizes or strides", [&, key = key, bad = bad](Json& entry) {
      if (of_rank(entry, 0)) entry.set(key, bad);
    });
}

TEST_CASE("a file whose slice has another shape than the manifest says is refused") {
  TempDir dir;
  const auto path = saved_in_slices(dir);
  change_tensors(path, [](Json& entry) {  // the ranges fit each other, but not the files
    if (entry.find("sizes") == nullptr || entry.at("name", "").text("") != "momentum/conv.bias") return;
    const auto rank = entry.at("rank", "").integer("");
    entry.set("range", rank == 0 ? Json::array({0, 2}) : rank == 1 ? Json::array({2, 3}) : Json::array({3, 5}));
  });
  const auto error = error_of([&] { load_checkpoint(path); });
  CHECK((error.kind() == ErrorKind::Checkpoint));
  CHECK_MESSAGE(std::string(error.what()).find("another shape or dtype than the manifest") != std::string::npos, error.what());
}

TEST_CASE("a rank that does not see the folder of a checkpoint is named with it") {
  TempDir dir;
  const auto error = error_of([&] { write_slices(dir / "missing", 2, {}); });
  CHECK((error.kind() == ErrorKind::Checkpoint));
  CHECK_MESSAGE(std::string(error.what()).find("rank 2 does not see") != std::string::npos, error.what());
}

TEST_CASE("a checkpoint that ranks write together, at once or while training continues") {
  for (const bool async : {false, true}) {
    CAPTURE(async);
    TempDir dir;
    const auto path = (dir / "c").string();
    const auto exchange = std::make_shared<Exchange>(kRanks);
    on_ranks(*exchange, [&](int rank) {
      const auto strategy = make_rank(exchange, rank, /*sharded=*/false);
      npu_train::detail::SharedSave save(strategy->ranks());
      auto slices = state_slices(own_slices(conv_parameters(), rank, kRanks));
      save.begin(rank == 0 ? std::make_unique<CheckpointFolder>(path) : nullptr, rank == 0 ? rest_of_state() : RunState(), slices, {},
                 async);
      CHECK(save.under_way());
      if (async)
        for (auto& [name, slice] : slices["optimizer"]) slice.value.zero_();  // as the next step would do
      if (const auto folder = save.finish()) folder->commit({});
      CHECK_FALSE(save.under_way());
    });
    check_joined(load_checkpoint(path));
  }
}

TEST_CASE("if one rank cannot write its part, every rank reports it and nothing is left") {
  TempDir dir;
  const auto exchange = std::make_shared<Exchange>(kRanks);
  std::array<std::string, kRanks> told;
  on_ranks(*exchange, [&](int rank) {
    const auto strategy = make_rank(exchange, rank, /*sharded=*/false);
    npu_train::detail::SharedSave save(strategy->ranks());
    auto slices = state_slices(own_slices(conv_parameters(), rank, kRanks));
    if (rank == 1) slices["optimizer"].begin()->second.value = torch::zeros({16}, torch::kComplexFloat);  // safetensors has no such dtype
    save.begin(rank == 0 ? std::make_unique<CheckpointFolder>((dir / "c").string()) : nullptr, {}, slices, {}, /*async=*/true);
    told[static_cast<size_t>(rank)] = error_of([&] { save.finish(); }).what();
  });
  for (const int rank : {0, 2}) {
    const auto& what = told[static_cast<size_t>(rank)];
    CHECK_MESSAGE(what.find("rank 1 could not write its part of a checkpoint") != std::string::npos, what);
  }
  CHECK(told[1].find("omplex") != std::string::npos);
  CHECK(fs::is_empty(dir.path()));
}
