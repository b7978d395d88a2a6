#include "testing.hpp"

#include "npu_train/data/sample_choice.hpp"

#include <algorithm>
#include <fstream>

using namespace npu_train;
using namespace npu_train::testing;

namespace {

DatasetPair of_sampler(const std::string& yaml) {
  return builtin_datasets().make({"generated", parse_yaml("val_size: 2\n" + yaml, "test"), {}}, "data", builtin_transforms());
}

}  // namespace

TEST_CASE("weights and the indices of a subset are read from a file, one in each line") {
  const TempDir dir;
  const auto file = (dir / "numbers.txt").string();
  const auto pair = [&](const std::string& sampler) {
    return of_sampler("train_size: 6\nbatch_size: 2\nnum_workers: 0\n" + sampler + "\nsampler_file: " + file);
  };
  const auto ids = [](Loader loader, int64_t epoch) {
    std::vector<int64_t> out;
    loader.begin_epoch(epoch);
    while (const auto batch = loader.next()) out.insert(out.end(), batch->ids.begin(), batch->ids.end());
    return out;
  };
  std::ofstream(file) << "\xEF\xBB\xBF"
                      << "0\n0\n1.5e+00\n0\n0.5\r\n0\n";
  const auto weighted = train_loader(pair("sampler: weighted"), {.seed = 1}).options().sample_weights;
  CHECK(weighted == std::vector<double>{0, 0, 1.5, 0, 0.5, 0});
  auto drawn = ids(train_loader(pair("sampler: weighted"), {.seed = 1}), 0);
  CHECK(drawn.size() == 6);
  CHECK(std::all_of(drawn.begin(), drawn.end(), [](int64_t i) { return i == 2 || i == 4; }));
  std::ofstream(file) << "5\n0\n3";
  CHECK(ids(train_loader(pair("shuffle: false\nsampler: subset"), {}), 0) == std::vector<int64_t>{5, 0, 3});
  const auto loader = train_loader(pair("sampler: subset"), {.seed = 1});
  CHECK(loader.samples_per_epoch() == 3);
  CHECK(loader.batches_per_epoch() == 2);

  auto in_code = of_sampler("train_size: 6\nbatch_size: 2\nshuffle: false");
  in_code.subset = {4, 1};
  CHECK(ids(train_loader(in_code, {}), 0) == std::vector<int64_t>{4, 1});
  in_code.options.sampler = "balanced";
  CHECK(has(error_of([&] { train_loader(in_code, {}); }).what(), "the program chooses the samples"));
}

TEST_CASE("a file of a sampler that does not fit the data is refused") {
  const TempDir dir;
  const auto file = (dir / "numbers.txt").string();
  const auto error = [&](const std::string& sampler, const std::string& content) {
    std::ofstream(file) << content;
    const auto pair = of_sampler("train_size: 3\nbatch_size: 1\n" + sampler);
    return std::string(error_of([&] { train_loader(pair, {}); }).what());
  };
  const auto weighted = "sampler: weighted\nsampler_file: " + file, subset = "sampler: subset\nsampler_file: " + file;
  CHECK(has(error(weighted, "1\n2\n"), "has 2 weights, and the training data have 3 samples"));
  CHECK(has(error(weighted, "1\nx\n3\n"), "line 2: 'x'; allowed: UTF-8, with a number in each line"));
  CHECK(has(error(weighted, "1\n-2\n3\n"), "the weight of sample 1 is -2"));
  CHECK(has(error(weighted, "0\n0\n0\n"), "the sum of all 3 weights is 0"));
  CHECK(has(error(weighted, std::string(70000, '1')), "70000 bytes"));
  CHECK(has(error(weighted, std::string("\xFF\xFE"
                                        "3\0",
                                        4)),
            R"(line 1: '\xff\xfe3\x00'; allowed: UTF-8)"));
  CHECK(has(error(subset, "1\n\n2 x\n"), "line 3: '2 x'"));
  CHECK(has(error(subset, "1.0\n"), "line 1: '1.0'; allowed: UTF-8, with a whole number"));
  CHECK(has(error(subset, "3\n"), file + ": the subset has the index 3; allowed: 0 to 2"));
  CHECK(has(error(subset, ""), "is empty; allowed: at least one index"));
  CHECK(has(error("sampler: subset", ""), "data.sampler_file"));
  CHECK(has(error("sampler: subset\nsampler_file: " + file + ".none", ""), "numbers.txt.none"));
  CHECK(has(error("sampler: balanced\nsampler_file: " + file, ""), "allowed: with sampler weighted or subset"));
}

TEST_CASE("comments, empty lines and blanks around numbers are skipped") {
  const TempDir dir;
  const auto file = (dir / "numbers.txt").string();
  std::ofstream(file) << "# indices\n 2 \n\n0\t\n\n";
  const auto pair = of_sampler("train_size: 3\nsampler: subset\nsampler_file: " + file);
  CHECK(npu_train::detail::sample_choice(pair).subset == std::vector<int64_t>{2, 0});
}

TEST_CASE("a choice of the program is checked before a label is read by it") {
  auto pair = of_sampler("train_size: 3");
  pair.subset = {3};
  CHECK(has(error_of([&] { npu_train::detail::sample_choice(pair); }).what(), "the index 3; allowed: 0 to 2"));
  pair.subset.clear();
  pair.sample_weights = {1, 1};
  CHECK(has(error_of([&] { npu_train::detail::sample_choice(pair); }).what(), "2 weights for 3 samples"));
}
