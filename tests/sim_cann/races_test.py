"""SIM_CANN_CHECK=races with torch_npu: each missing synchronisation is reported by name, and a program that waits gets no report."""
import unittest

import environment

START = '''
import torch, torch_npu
x, side, pinned = torch.ones(1024, device='npu'), torch.npu.Stream(), torch.zeros(1024).pin_memory()
torch.npu.synchronize()
here = torch.npu.current_stream()
'''
END = '''
torch.npu.synchronize()
print('end')
'''
# Cases: a program, its line that orders the accesses, and the report without that line.
WAITS = {
    'a read of what another stream writes': ('''
with torch.npu.stream(side): x.fill_(2)
here.wait_stream(side)
y = x + 1
''', 'here.wait_stream(side)', r'aclnnInplaceFillScalar writes Float\[1024\] in stream (\d+), and aclnnAdds reads Float\[1024\] in stream (?!\1)\d+, which does not wait'),
    'a write of what another stream reads': ('''
with torch.npu.stream(side): y = x + 1
here.wait_stream(side)
x.fill_(2)
''', 'here.wait_stream(side)', r'aclnnAdds reads Float\[1024\] .*, and aclnnInplaceFillScalar writes Float\[1024\]'),
    'two writers': ('''
with torch.npu.stream(side): x.mul_(2)
here.wait_stream(side)
x.fill_(3)
''', 'here.wait_stream(side)', r'aclnnInplaceMuls writes .*, and aclnnInplaceFillScalar writes'),
    'an event': ('''
with torch.npu.stream(side):
    x.fill_(2)
    written = side.record_event()
here.wait_event(written)
y = x + 1
''', 'here.wait_event(written)', 'aclnnInplaceFillScalar writes .*, and aclnnAdds reads'),
    'a third stream between': ('''
third = torch.npu.Stream()
with torch.npu.stream(side): x.fill_(2)
third.wait_stream(side)
here.wait_stream(third)
y = x + 1
''', 'third.wait_stream(side)', 'aclnnInplaceFillScalar writes .*, and aclnnAdds reads'),
    'the host in place of an event': ('''
with torch.npu.stream(side): x.fill_(2)
side.synchronize()
y = x + 1
''', 'side.synchronize()', 'aclnnInplaceFillScalar writes .*, and aclnnAdds reads'),
    'a host that reads a copy': ('''
pinned.copy_(x, non_blocking=True)
here.synchronize()
pinned.sum()
''', 'here.synchronize()', r'aclrtMemcpyAsync writes 4096 bytes in stream \d+, and the host accesses this memory'),
    'a host that fills a buffer again': ('''
x.copy_(pinned, non_blocking=True)
copied = here.record_event()
pinned.sum()  # reading is allowed
copied.synchronize()
pinned[3] = 1
''', 'copied.synchronize()', 'aclrtMemcpyAsync reads 4096 bytes .*, and the host accesses this memory'),
    'memory that is freed while another stream uses it': ('''
side.wait_stream(here)
with torch.npu.stream(side): y = x + 1
x.record_stream(side)
del x
x = torch.ones(1024, device='npu')
''', 'x.record_stream(side)', 'aclnnAdds reads .*, and aclnnInplaceOne writes .* which does not wait for it; .*record_stream'),
}
# Programs without a race, in which streams use the same memory.
OTHERS = {
    'columns of one tensor': '''
z = torch.zeros(64, 64, device='npu')
side.wait_stream(here)
with torch.npu.stream(side): z[:, :32] = 1
z[:, 32:] = 2
''',
    'readers beside each other': '''
with torch.npu.stream(side): y = x + 1
z = x * 2
''',
    'memory of one stream that is used again and again': '''
for _ in range(100): y = (x + 1) * 2
''',
    'buffers that the allocator gives again when their copies are over': '''
for _ in range(50): x.copy_(torch.full((1024,), 3.).pin_memory(), non_blocking=True)
''',
    'an event that is polled': '''
with torch.npu.stream(side):
    x.fill_(2)
    written = side.record_event()
while not written.query(): pass
y = x + 1
''',
    'tensors that are read by the host': '''
y = (x + 1).cpu().sum().item() + x.max().item()
''',
}
RANKS = '''
import os, torch, torch_npu, torch.distributed as dist
torch.npu.set_device(int(os.environ['RANK']))
dist.init_process_group('hccl')
x = torch.ones(1024, device='npu')
work = dist.all_reduce(x, async_op=True)
work.wait()
print((x + 1).cpu().sum().item() == 3072)
torch.npu.synchronize()
dist.destroy_process_group()
'''


class Races(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch_npu  # noqa: F401  once for all scripts

    def reports(self, text):
        """The reported races. torch_npu's queue is off: with it, timing would decide whether the host's access comes before the call of
        AscendCL."""
        status, out, err = environment.script(START + text + END, SIM_CANN_CHECK='races', TASK_QUEUE_ENABLE='0')
        self.assertEqual((status, out.splitlines()[-1:]), (0, ['end']), err)
        return [line for line in err.splitlines() if line.startswith('sim_cann: race')]

    def test_a_missing_wait_is_reported_by_name(self):
        for name, (text, wait, report) in WAITS.items():
            with self.subTest(name):
                self.assertEqual(self.reports(text), [])
                found = self.reports(''.join(line for line in text.splitlines(True) if line.strip() != wait))
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], 'sim_cann: race: ' + report)

    def test_what_needs_no_wait_is_not_reported(self):
        for name, text in OTHERS.items():
            with self.subTest(name): self.assertEqual(self.reports(text), [])

    def test_a_collective_that_is_not_waited_for(self):
        for text, expected in ((RANKS, 0), (RANKS.replace('work.wait()\n', ''), 2)):
            found = 0
            for status, out, err in environment.ranks(text, 2, SIM_CANN_CHECK='races', TASK_QUEUE_ENABLE='0'):
                found += 'HcclAllReduce writes 4096 bytes' in err and 'aclnnAdds reads' in err
                if expected == 0: self.assertEqual((status, out, 'race' in err), (0, 'True\n', False), err)
            self.assertEqual(found, expected)

    def test_a_race_is_the_exit_status(self):
        text, wait, _ = WAITS['an event']
        for kept, expected in ((True, 0), (False, 66)):
            status, out, err = environment.program(START + (text if kept else text.replace(wait, '')) + END, SIM_CANN_CHECK='races')
            self.assertEqual((status, out), (expected, 'end\n'), err)

    def test_a_wrong_setting_is_an_error(self):
        status, _, err = environment.script(START, SIM_CANN_CHECK='race')
        self.assertEqual(status, 2)
        self.assertIn('sim_cann: SIM_CANN_CHECK=race; allowed: races', err)


if __name__ == '__main__':
    environment.main()
