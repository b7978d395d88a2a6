#include "testing.hpp"

#include "npu_train/data/image_dataset.hpp"

#include <fstream>

#include "images.hpp"
#include "only_if.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

/// Returns records with label i % classes and pixels (i + position) % 251.
std::vector<uint8_t> records(int count, int label_bytes, int classes = 10) {
  std::vector<uint8_t> out;
  for (int i = 0; i < count; ++i) {
    if (label_bytes == 2) out.push_back(19);
    out.push_back(static_cast<uint8_t>(i % classes));
    for (int k = 0; k < 3072; ++k) out.push_back(static_cast<uint8_t>((i + k) % 251));
  }
  return out;
}

void write_cifar10_folder(const TempDir& dir, int count = 3) {
  for (int i = 1; i <= 5; ++i) write_bytes((dir / ("data_batch_" + std::to_string(i) + ".bin")).string(), records(count, 1));
  write_bytes((dir / "test_batch.bin").string(), records(2, 1));
}

std::string text_of(const Error& error) { return error.what(); }

}  // namespace

TEST_CASE("the files are read in order, whatever number of complete records they hold") {
  const TempDir dir;
  write_cifar10_folder(dir);
  const CifarDataset train(CifarKind::Cifar10, dir.path().string(), Split::Train);
  CHECK(train.size() == 15);
  CHECK(train.labels()[4] == 1);
  CHECK(train.image(4).pixels.at(0, 0, 0) == 1);
  CHECK(train.image(4).pixels.at(1, 0, 0) == (1 + 1024) % 251);
  CHECK(train.where(4) == (dir / "data_batch_2.bin").string() + ", record 1");
  CHECK(train.info().class_names[9] == "truck");
  CHECK(CifarDataset(CifarKind::Cifar10, dir.path().string(), Split::Val).size() == 2);
}

TEST_CASE("CIFAR-100 takes the fine label") {
  const TempDir dir;
  write_bytes((dir / "train.bin").string(), records(120, 2, 100));
  const CifarDataset train(CifarKind::Cifar100, dir.path().string(), Split::Train);
  CHECK(train.size() == 120);
  CHECK(train.labels()[99] == 99);
  CHECK(train.info().class_names.size() == 100);
  CHECK(train.info().class_names[0] == "apple");
  CHECK(train.info().class_names[99] == "worm");
}

TEST_CASE("a missing file says how to get it and how to do without") {
  const TempDir dir;
  const Error error = error_of([&] { CifarDataset(CifarKind::Cifar10, dir.path().string(), Split::Train); });
  CHECK(error.kind() == ErrorKind::Data);
  for (const char* word : {"data_batch_1.bin", "data.download=true", "scripts/get_data", "generated"})
    CHECK(text_of(error).find(word) != std::string::npos);
}

TEST_CASE("a short file says its size and the record's") {
  const TempDir dir;
  write_cifar10_folder(dir);
  auto bytes = records(3, 1);
  bytes.resize(bytes.size() - 100);
  write_bytes((dir / "data_batch_3.bin").string(), bytes);
  const Error error = error_of([&] { CifarDataset(CifarKind::Cifar10, dir.path().string(), Split::Train); });
  CHECK(error.kind() == ErrorKind::Data);
  for (const char* word : {"data_batch_3.bin", "9119 bytes", "3073 bytes"}) CHECK(text_of(error).find(word) != std::string::npos);
  write_bytes((dir / "data_batch_3.bin").string(), {});
  CHECK(error_of([&] { CifarDataset(CifarKind::Cifar10, dir.path().string(), Split::Train); }).kind() == ErrorKind::Data);
}

TEST_CASE("a label out of range says the record") {
  const TempDir dir;
  write_cifar10_folder(dir);
  auto bytes = records(3, 1);
  bytes[3073] = 10;
  write_bytes((dir / "test_batch.bin").string(), bytes);
  const Error error = error_of([&] { CifarDataset(CifarKind::Cifar10, dir.path().string(), Split::Val); });
  CHECK(error.kind() == ErrorKind::Data);
  CHECK(text_of(error).find("record 1 has the label 10") != std::string::npos);
}

TEST_CASE("a folder in the place of a file is an error") {
  const TempDir dir;
  write_cifar10_folder(dir);
  std::filesystem::remove(dir / "test_batch.bin");
  std::filesystem::create_directory(dir / "test_batch.bin");
  CHECK(error_of([&] { CifarDataset(CifarKind::Cifar10, dir.path().string(), Split::Val); }).kind() == ErrorKind::Data);
}

TEST_CASE("images written in CIFAR's layout are read back") {
  const TempDir dir;
  DatasetInfo info;
  info.num_classes = 10;
  info.shape = {3, 32, 32};
  std::vector<uint8_t> pixels(2 * 3072);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 7 % 253);
  const MemoryImages images(pixels, {4, 9}, info);
  write_cifar10(images, (dir / "test_batch.bin").string());
  const CifarDataset back(CifarKind::Cifar10, dir.path().string(), Split::Val);
  CHECK(back.labels() == std::vector<int64_t>{4, 9});
  CHECK(std::equal(pixels.begin(), pixels.end(), back.pixels(0)));
}

TEST_CASE("the real subset has its classes in balance" *
          only_if(!real_images().empty(), "no real CIFAR-10 images next to the repository (NPU_TRAIN_SHARED)")) {
  const auto root = real_images();
  const CifarDataset train(CifarKind::Cifar10, root.string(), Split::Train), val(CifarKind::Cifar10, root.string(), Split::Val);
  CHECK(train.size() == 4660);
  CHECK(val.size() == 846);
  std::vector<int> counts(10);
  for (const int64_t label : train.labels()) ++counts[label];
  for (const int count : counts) CHECK((count > 380 && count < 560));
}
