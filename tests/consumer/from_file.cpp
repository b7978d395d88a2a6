// The first way: a run that a file describes.
#include <npu_train/trainer.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  npu_train::set_log_sink(npu_train::make_standard_sink());  // without a sink the library is silent
  try {
    npu_train::Trainer trainer(npu_train::load_config(argv[1], {argv + 2, argv + argc}));
    npu_train::RunResult result = trainer.fit();  // history, why it ended, where the checkpoints are
    std::printf("%s; best checkpoint: %s\n", npu_train::stop_reason_name(result.reason), result.best_checkpoint.c_str());
    return 0;
  } catch (const npu_train::Error& error) {  // the only exception that public functions throw
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
