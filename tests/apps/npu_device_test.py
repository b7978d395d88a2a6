"""device=npu as a process: the stand-in for torch_npu is started and ended, and a machine without it gets a sentence."""
import os
import unittest

from programs import BIN, ProgramTest, main, train_app

FAKE = BIN.parent / 'tests' / 'fake_torch_npu' / 'works'


class NpuDevice(ProgramTest):
    def train(self, **env):
        words = ('device=npu', 'trainer.max_epochs=1', f'output.dir={self.dir}/out')
        return train_app(self.config(), *words, env={**os.environ, **env})

    def test_the_device_is_started_once_and_ended_with_the_process(self):
        trace = self.dir / 'trace.txt'
        self.assertDone(self.train(NPU_TRAIN_TORCH_NPU=str(FAKE), FAKE_NPU_TRACE=str(trace)))
        self.assertEqual(trace.read_text().split(), ['init', 'finalize'])

    def test_a_device_that_cannot_be_ended_does_not_abort_the_process(self):
        self.assertDone(self.train(NPU_TRAIN_TORCH_NPU=str(FAKE), FAKE_NPU_THROWS='1'))

    def test_without_the_library_the_exit_code_is_that_of_a_missing_device(self):
        self.assertFails(self.train(NPU_TRAIN_TORCH_NPU=str(self.dir)), 4, 'libtorch_npu.so', 'torch_npu', 'CANN')

    def test_channels_last_is_refused(self):
        result = train_app(self.config(), 'device=npu', 'trainer.memory_format=channels_last', f'output.dir={self.dir}/out',
                           env={**os.environ, 'NPU_TRAIN_TORCH_NPU': str(FAKE)})
        self.assertFails(result, 2, 'channels_last', 'contiguous')


if __name__ == '__main__':
    main()
